"""What a run costs: memory, hours of nodes and GPUs, energy for a token.

node-hours = wall clock in hours · nodes; GPU-hours = wall clock in hours · GPUs. The wall clock is that of training,
first step to last; start-up and loading are not in it.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Literal

import msgspec

from .gpu_use import gpu_use
from .runs import Run

_HOUR_NS = 3_600_000_000_000


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Of one run; the mean over a recipe's whole runs. None = not measured."""

    node_hours: float | None
    gpu_hours: float | None
    """None without a GPU."""
    tokens: float | None
    """Unmasked tokens of all ranks and steps."""
    energy_per_token_j: float | None
    """Energy of all GPUs in training, by the driver's counter, for an unmasked token."""


def cost(runs: Sequence[Run]) -> Cost:
    """Of the runs of one recipe that came to their end."""
    whole = [run for run in runs if run.finished]
    return Cost(
        node_hours=_mean(_hours(run, run.manifest.world.nodes) for run in whole),
        gpu_hours=_mean(_hours(run, _gpus(run)) if _gpus(run) else None for run in whole),
        tokens=_mean(tokens(run) for run in whole),
        energy_per_token_j=_mean(energy_per_token(run) for run in whole),
    )


def tokens(run: Run) -> int | None:
    """Unmasked tokens of all ranks and steps; None where a step does not tell."""
    counts = [step.tokens for step in run.steps]
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None


def energy_per_token(run: Run) -> float | None:
    """Joules of all GPUs for an unmasked token."""
    energy, count = gpu_use([run]).energy_j, tokens(run)
    return energy / count if energy is not None and count else None


def peak_memory(
    group: Sequence[Run],
) -> tuple[int | None, Literal["cuda allocator", "resident"] | None, int | None]:
    """The largest peak of any rank's CUDA allocator (without GPUs, all ranks' resident memory), and all there is."""
    totals = [device.memory_bytes for run in group for device in run.manifest.devices if device.memory_bytes]
    total = min(totals, default=None)
    if any(run.on_gpu for run in group):
        peaks = [step.memory_allocated_bytes for run in group for step in run.steps]
        return max((peak for peak in peaks if peak is not None), default=None), "cuda allocator", total
    resident = [step.rss_bytes for run in group for step in run.steps]
    peak = max((value for value in resident if value is not None), default=None)
    return (peak, "resident", total) if peak is not None else (None, None, total)


def _gpus(run: Run) -> int:
    return sum(device.kind == "cuda" for device in run.manifest.devices)


def _hours(run: Run, of: int) -> float | None:
    return run.wall_clock_ns / _HOUR_NS * of if run.wall_clock_ns is not None else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
