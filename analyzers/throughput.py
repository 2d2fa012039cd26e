"""How fast runs of one recipe trained: within steps, over the whole run, and against the hardware's limit.

Rates within steps come from timed steps only. The wall clock holds everything from the first step to the last:
profiled, compiling, evaluating and checkpointing ones, and what lies between steps.
"""

import msgspec
import numpy as np

from .medians import Estimate, Values, median_of
from .model_flops import least_ns_per_position, work_per_position
from .runs import Run


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one recipe. None = not measured."""

    step_time_p95_ns: float | None
    """95th percentile of all timed steps."""
    data_wait_pct: float | None
    """Share of the timed steps' time in which the slowest rank waited for its data."""
    flops_per_s: Estimate | None
    """Model FLOP/s of one GPU, or of one rank on CPUs; `analyzers/model_flops.py` says what counts."""
    mfu_pct: Estimate | None
    """Model FLOPs utilisation, each GEMM against the peak of its dtype."""
    mfu_why: str | None
    """Why MFU is not measured."""
    tokens_per_s_wall_clock: float | None
    """Unmasked tokens of all ranks and all steps, by the wall clock; the mean over runs, as are the three below."""
    training_ns: float | None
    """The steps alone, marked ones too."""
    wall_clock_ns: float | None
    padded_pct: float | None
    """Share of positions that hold no token of an example."""


def throughput(group: list[Run]) -> Throughput:
    """Of the runs of one recipe."""
    durations = [step.duration_ns for run in group for step in run.timed]
    waits = [(step.data_ns, step.duration_ns) for run in group for step in run.timed if step.data_ns is not None]
    why, least = _least(group)
    return Throughput(
        step_time_p95_ns=float(np.percentile(durations, 95)) if durations else None,
        data_wait_pct=100 * sum(wait for wait, _ in waits) / sum(time for _, time in waits) if waits else None,
        flops_per_s=_flops_per_s(group),
        mfu_pct=median_of([_rates(run, 100 * least_ns) for run, least_ns in least]),
        mfu_why=why,
        tokens_per_s_wall_clock=_mean([_tokens_per_wall_clock(run) for run in group]),
        training_ns=_mean([run.training_ns for run in group]),
        wall_clock_ns=_mean([run.wall_clock_ns for run in group]),
        padded_pct=_mean([_padded(run) for run in group]),
    )


def _flops_per_s(group: list[Run]) -> Estimate | None:
    works = [work_per_position(run.manifest) for run in group]
    rates = [_rates(run, work.flops * 1e9) for run, work in zip(group, works, strict=True) if work]
    return median_of(rates)


def _least(group: list[Run]) -> tuple[str | None, list[tuple[Run, float]]]:
    """Each run with its least time for a position at the hardware's peak; else why one of them is not known."""
    found: list[tuple[Run, float]] = []
    for run in group:
        work = work_per_position(run.manifest)
        least = least_ns_per_position(run.manifest, work) if work else "run.json does not name the linear layers"
        if isinstance(least, str):
            return least, []
        found.append((run, least))
    return (None, found) if any(run.timed for run in group) else ("no timed step", [])


def _rates(run: Run, per_position: float) -> Values:
    """`per_position` × positions of one rank / step time in ns, for each timed step."""
    ranks = run.manifest.world.size
    timed = [(step.positions, step.duration_ns) for step in run.timed if step.positions]
    return np.array([per_position * positions / ranks / duration for positions, duration in timed])


def _tokens_per_wall_clock(run: Run) -> float | None:
    wall_clock = run.wall_clock_ns
    tokens = sum(step.tokens or 0 for step in run.steps)
    return tokens / wall_clock * 1e9 if wall_clock and tokens else None


def _padded(run: Run) -> float | None:
    share = run.manifest.data.get("padded_share")
    return 100 * share if isinstance(share, int | float) else None


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
