"""What the FP8 study's two telemetry columns would have been for a run of ours: Weights & Biases' way of reading.

W&B takes one reading of each GPU every 15 s, without averaging over the time in between: the driver's utilisation of
that moment (itself of the last 1/6 to 1 s), and memory allocated, reserved bytes left out, in percent of all. A column
is the mean of the points.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from statistics import fmean

import msgspec

from ..record.telemetry import GpuSample, Sample, SamplerNote
from .runs import Run

PERIOD_NS = 15_000_000_000


class StudyColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The two columns, each the mean over GPUs of the mean over points. None: see `missing`."""

    utilization_pct: float | None
    """GPU Utilization (avg %)."""
    memory_allocated_pct: float | None
    """Memory Allocated (avg %)."""
    points: int
    """Readings that the utilisation is a mean of, all GPUs together; of memory, where it alone is there."""
    missing: str | None = None
    """Why a column is None."""


def study_columns(
    telemetry: Mapping[int, Iterable[Sample]],
    start_ns: int,
    end_ns: int,
    *,
    period_ns: int = PERIOD_NS,
    first: int = 1,
) -> StudyColumns:
    """The columns of a run from `start_ns` (where W&B would have begun) to `end_ns`, Unix time, from node → samples.

    `first` is the first point of the grid: 1 as in W&B 0.22, which the study used; 0 as in 0.31. A point takes the last
    reading before it, if that is no older than two periods of our sampler.
    """
    grid = range(start_ns + first * period_ns, end_ns + 1, period_ns)
    utilization: dict[tuple[int, int], list[float]] = {}
    memory: dict[tuple[int, int], list[float]] = {}
    on_gpu = False
    for node, samples in telemetry.items():
        by_device, oldest_ns = _by_device(samples)
        on_gpu = on_gpu or bool(by_device)
        for device, readings in by_device.items():
            for reading in _at(grid, readings, oldest_ns):
                if reading.utilization_pct is not None:
                    utilization.setdefault((node, device), []).append(reading.utilization_pct)
                if reading.memory_used_bytes is not None and reading.memory_total_bytes:
                    share = 100 * reading.memory_used_bytes / reading.memory_total_bytes
                    memory.setdefault((node, device), []).append(share)
    return StudyColumns(
        utilization_pct=_mean(utilization),
        memory_allocated_pct=_mean(memory),
        points=sum(map(len, (utilization or memory).values())),
        missing=None if utilization and memory else _why(on_gpu=on_gpu, points=len(grid), period_ns=period_ns),
    )


def study_columns_of(runs: list[Run]) -> StudyColumns:
    """The columns of a recipe's repeats: the mean over runs, each from its start to its end, evaluation and all.

    W&B would have begun where the manifest was written; a run that never wrote its end ends with its last reading.
    """
    found = [study_columns(run.telemetry, run.manifest.started_ns, _end_ns(run)) for run in runs]
    return StudyColumns(
        utilization_pct=_over_runs([one.utilization_pct for one in found]),
        memory_allocated_pct=_over_runs([one.memory_allocated_pct for one in found]),
        points=sum(one.points for one in found),
        missing=next((one.missing for one in found if one.missing), None),
    )


def _end_ns(run: Run) -> int:
    last = (samples[-1].t_ns for samples in run.telemetry.values() if samples)
    return run.manifest.ended_ns or max(last, default=run.manifest.started_ns)


def _over_runs(values: list[float | None]) -> float | None:
    """Their mean; None where one is missing, since runs of which some were measured are not these runs."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _by_device(samples: Iterable[Sample]) -> tuple[dict[int, list[GpuSample]], int]:
    """Readings by device in order of time, and how old the last one may be to count as the present, ns."""
    found: dict[int, list[GpuSample]] = {}
    period_s = 1.0
    for sample in samples:
        if isinstance(sample, GpuSample):
            found.setdefault(sample.device, []).append(sample)
        elif isinstance(sample, SamplerNote):
            period_s = sample.period_s
    for readings in found.values():
        readings.sort(key=lambda reading: reading.t_ns)
    return found, round(2e9 * period_s)


def _at(grid: range, readings: list[GpuSample], oldest_ns: int) -> Iterable[GpuSample]:
    times = [reading.t_ns for reading in readings]
    for point in grid:
        after = bisect_right(times, point)
        if after and point - times[after - 1] <= oldest_ns:
            yield readings[after - 1]


def _mean(by_device: dict[tuple[int, int], list[float]]) -> float | None:
    return fmean(fmean(points) for points in by_device.values()) if by_device else None


def _why(*, on_gpu: bool, points: int, period_ns: int) -> str:
    if not on_gpu:
        return "there are no GPU readings"
    if not points:
        return f"the run was over before the first point, at {period_ns / 1e9:g} s"
    return "no reading at these points has the counter; the telemetry file says why"
