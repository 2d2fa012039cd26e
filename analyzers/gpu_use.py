"""What the GPUs did during training, from telemetry: tensor cores, SMs, power and energy. CPUs have none of it."""

from collections.abc import Iterable
from itertools import pairwise
from statistics import fmean

import msgspec

from ..record.telemetry import GpuSample, Unavailable
from .runs import Run

Span = tuple[int, int, float]
"""A value and the time it tells of: from, to (Unix ns), value."""

_MEANS = ("tensor_active_pct", "sm_active_pct", "dram_bandwidth_pct")
_COUNTERS = {name: (name, "gpm", "gpu") for name in _MEANS} | {
    "power_w": ("power", "gpu"),
    "energy_j": ("energy", "gpu"),
}
"""Field → the counters of `Unavailable` whose absence explains its own."""


class GpuUse(msgspec.Struct, frozen=True, kw_only=True):
    """Between the first step's start and the last one's end. None: `missing` says why."""

    tensor_active_pct: float | None = None
    """Mean share of time in which SMs' tensor cores worked (GPM, Hopper and newer), as are the two below."""
    sm_active_pct: float | None = None
    """Mean share of SMs that were busy."""
    dram_bandwidth_pct: float | None = None
    """Mean memory traffic, of the theoretical most."""
    power_w: float | None = None
    """Mean of one GPU."""
    energy_j: float | None = None
    """Of all GPUs together in one run; the mean of the runs."""
    missing: dict[str, str] = {}
    """Field → why it is None."""


def gpu_use(runs: list[Run]) -> GpuUse:
    """Of the repeats of one recipe."""
    values: dict[str, float | None] = {name: _mean(_means(runs, name)) for name in (*_MEANS, "power_w")}
    energies = [_energy_j(run) for run in runs]
    values["energy_j"] = fmean(known) if len(known := [e for e in energies if e is not None]) == len(runs) > 0 else None
    missing = {name: _why(runs, name) for name, value in values.items() if value is None}
    return GpuUse(**values, missing=missing)


def time_weighted(spans: Iterable[Span], start: int, end: int) -> float | None:
    """The mean of values over what of their time lies between `start` and `end`."""
    weighted = weight = 0.0
    for since, until, value in spans:
        inside = min(until, end) - max(since, start)
        if inside > 0:
            weighted += value * inside
            weight += inside
    return weighted / weight if weight else None


def _training(run: Run) -> tuple[int, int] | None:
    if not run.steps:
        return None
    return run.steps[0].start_ns, run.steps[-1].start_ns + run.steps[-1].duration_ns


def _devices(run: Run) -> dict[tuple[int, int], list[GpuSample]]:
    """(node, device) → its readings in order."""
    found: dict[tuple[int, int], list[GpuSample]] = {}
    for node, samples in run.telemetry.items():
        for sample in samples:
            if isinstance(sample, GpuSample):
                found.setdefault((node, sample.device), []).append(sample)
    return found


def _means(runs: list[Run], name: str) -> list[float | None]:
    """One a device and run."""
    found = []
    for run in runs:
        training = _training(run)
        for readings in _devices(run).values() if training else ():
            found.append(time_weighted(_spans(readings, name), *(training or (0, 0))))
    return found


def _spans(readings: list[GpuSample], name: str) -> list[Span]:
    """A mean of the driver's has its own interval; a power reading tells of the time since the reading before."""
    found: list[Span] = []
    before: int | None = None
    for reading in readings:
        if name == "power_w":
            if reading.power_mw is not None:
                found.append((before if before is not None else 0, reading.t_ns, reading.power_mw / 1000))
        elif (value := getattr(reading, name)) is not None and reading.gpm_interval_ns is not None:
            found.append((reading.t_ns - reading.gpm_interval_ns, reading.t_ns, value))
        before = reading.t_ns
    return found


def _energy_j(run: Run) -> float | None:
    """All GPUs' energy in training, where every GPU's counter spans it and never fell."""
    training, devices = _training(run), _devices(run)
    if not training or not devices:
        return None
    start, end = training
    total = 0.0
    for readings in devices.values():
        points = [(r.t_ns, r.energy_mj) for r in readings if r.energy_mj is not None and not r.mig]
        if not points or points[0][0] > start or points[-1][0] < end:
            return None
        for (since, low), (until, high) in pairwise(points):
            if high < low:
                return None
            inside = min(until, end) - max(since, start)
            total += (high - low) * inside / (until - since) / 1000 if inside > 0 else 0
    return total


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _why(runs: list[Run], name: str) -> str:
    if not any(run.on_gpu for run in runs):
        return "no GPU"
    told = [
        sample
        for run in runs
        for samples in run.telemetry.values()
        for sample in samples
        if isinstance(sample, Unavailable) and sample.counter in _COUNTERS[name]
    ]
    if told:
        return told[0].reason
    if name == "energy_j":
        return "the counter was reset, is a whole GPU's beside a MIG instance, or its readings do not span training"
    return "no reading during training has it"
