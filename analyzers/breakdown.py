"""Where the device time went: per device the span in five parts that sum to it, and its kernels by name and kind.

busy = union of kernels, copies and sets over all streams. compute = union of kernels that are no communication;
exposed communication = communication while nothing computes; memory = copies and sets that neither covers; idle = the
rest of the span. Without any device activity the time of CPU operators stands instead.
"""

from typing import Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .activities import Activities, Ints, activities_of
from .doubts import doubts
from .findings import Finding
from .intervals import Intervals, length, together, union
from .operators import OperatorTime, operator_times
from .timeline import Source, Timeline

_DURATION_BITS = 42
"""Room for 73 minutes in ns."""


class NameTime(msgspec.Struct, frozen=True, kw_only=True):
    """All activities or ranges of one name."""

    name: str
    kind: str
    count: int
    total_ns: int
    mean_ns: float
    median_ns: float
    p95_ns: float
    min_ns: int
    max_ns: int


class KindTime(msgspec.Struct, frozen=True, kw_only=True):
    """All kernels of one kind; durations are summed, so that overlapping ones count each."""

    kind: str
    count: int
    total_ns: int


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """One device of one rank. `span_ns = compute_ns + comm_exposed_ns + memory_ns + idle_ns`, exactly."""

    device: int
    name: str | None
    span_ns: int
    busy_ns: int
    compute_ns: int
    comm_overlapped_ns: int
    """Communication that compute covers; counted inside `compute_ns`."""
    comm_exposed_ns: int
    memory_ns: int
    idle_ns: int
    kinds: list[KindTime]
    """Largest first."""
    kernels: list[NameTime]
    """Largest total first, then by name."""


class RankTime(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's trace."""

    rank: int
    source: str
    devices: list[DeviceTime]
    operators: list[OperatorTime]
    """CPU operators by self time, largest first."""
    ranges: list[NameTime]
    """Named host ranges by total time, largest first; `kind` is their style."""


class TimelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """Device and operator times alone, without what explains them: `trace_answers` and `nsys.answers` do that."""

    schema: Literal["stepscope.timeline/1"] = "stepscope.timeline/1"
    ranks: list[RankTime]
    findings: list[Finding]


class Coverage(NamedTuple):
    """What a device did when, as sets of intervals, each within the next.

    Exposed communication is what `kernels` has beyond `compute`, memory operations what `busy` has beyond `kernels`.
    """

    compute: Intervals
    """Kernels that are no communication."""
    kernels: Intervals
    """All kernels."""
    busy: Intervals
    """Kernels, copies and sets."""
    communication: Intervals
    """Kernels of communication, hidden or not."""


def breakdown(timeline: Timeline) -> TimelineReport:
    """The report of a timeline. A rank without device activities has no devices, and a finding says so."""
    ranks = [_rank(timeline, source) for source in timeline.sources]
    bare = [rank.rank for rank in ranks if not rank.devices]
    findings = [*timeline.findings, *doubts(timeline)]
    if bare:
        which = "The trace has" if len(ranks) == 1 else f"Ranks {', '.join(map(str, bare))} have"
        findings.append(
            Finding(
                code="no-device-activity",
                severity="info",
                text=f"{which} no device activities: device time is not measured. Where the job ran on a GPU, profile "
                "with its activity type (ProfilerActivity.CUDA, or nsys -t cuda); on a CPU the operators tell.",
                evidence={"ranks": bare},
            )
        )
    return TimelineReport(ranks=ranks, findings=findings)


def _rank(timeline: Timeline, source: Source) -> RankTime:
    part = timeline.of_rank(source.rank)
    work = activities_of(part.activities)
    return RankTime(
        rank=source.rank,
        source=source.path,
        devices=[
            device_time(on_it, device, source.device_names.get(device), coverage(on_it))
            for device in np.unique(work.device).tolist()
            if len(on_it := work.where(work.device == device))
        ],
        operators=operator_times(part.ops),
        ranges=_range_times(part.ranges),
    )


def device_time(work: Activities, device: int, name: str | None, cover: Coverage) -> DeviceTime:
    """The time of one device; `work` is all that ran on it, at least one activity, and `cover` its coverage."""
    span_ns = int(work.end.max() - work.start.min())
    compute_ns, kernels_ns, busy_ns, communication_ns = map(length, cover)
    comm_exposed_ns = kernels_ns - compute_ns
    durations = work.duration
    named = name_times(work.label, durations, [(entry.name, entry.kind) for entry in work.labels])
    kernels = {(entry.name, entry.kind) for entry in work.labels if entry.what in ("kernel", "graph")}
    return DeviceTime(
        device=device,
        name=name,
        span_ns=span_ns,
        busy_ns=busy_ns,
        compute_ns=compute_ns,
        comm_overlapped_ns=communication_ns - comm_exposed_ns,
        comm_exposed_ns=comm_exposed_ns,
        memory_ns=busy_ns - kernels_ns,
        idle_ns=span_ns - busy_ns,
        kinds=_kind_times(named),
        kernels=[row for row in named if (row.name, row.kind) in kernels],
    )


def coverage(work: Activities) -> Coverage:
    """The sets of one device's work."""
    is_kernel, is_communication = work.is_kernel, work.is_communication
    is_compute = is_kernel & ~is_communication
    compute = union(work.start[is_compute], work.end[is_compute])
    communication = union(work.start[is_communication], work.end[is_communication])
    kernels = together(compute, communication)
    return Coverage(
        compute=compute,
        kernels=kernels,
        busy=together(kernels, union(work.start[~is_kernel], work.end[~is_kernel])),
        communication=communication,
    )


def _kind_times(named: list[NameTime]) -> list[KindTime]:
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    for row in named:
        counts[row.kind] = counts.get(row.kind, 0) + row.count
        totals[row.kind] = totals.get(row.kind, 0) + row.total_ns
    rows = [KindTime(kind=kind, count=counts[kind], total_ns=total) for kind, total in totals.items()]
    return sorted(rows, key=lambda row: (-row.total_ns, row.kind))


def _range_times(ranges: pa.Table) -> list[NameTime]:
    keys = list(
        zip(ranges["name"].cast(pa.string()).to_pylist(), ranges["style"].cast(pa.string()).to_pylist(), strict=True)
    )
    code = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    codes = np.fromiter((code[key] for key in keys), dtype=np.int32, count=len(keys))
    return name_times(codes, ranges["end"].to_numpy() - ranges["start"].to_numpy(), list(code))


def name_times(
    codes: npt.NDArray[np.int32], durations: npt.NDArray[np.int64], keys: list[tuple[str, str]]
) -> list[NameTime]:
    """Statistics of durations (ns) by name and kind, largest total first, then by name; a name without rows has none.

    `codes` says for each duration which of the (name, kind) in `keys` it is of. Medians and percentiles lie between
    two values in proportion, as numpy's and DuckDB's do.
    """
    grouped, ordered = _sorted(codes, durations)
    edges = np.searchsorted(grouped, np.arange(len(keys) + 1))
    found = [
        _statistics(key, ordered[first:last])
        for key, first, last in zip(keys, edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        if last > first
    ]
    return sorted(found, key=lambda row: (-row.total_ns, row.name, row.kind))


def _sorted(codes: npt.NDArray[np.int32], durations: Ints) -> tuple[Ints, Ints]:
    """Both by code, then by duration; packed into one number where it fits, which sorts several times faster."""
    if len(codes) and not durations.max() >> _DURATION_BITS and not int(codes.max()) >> (63 - _DURATION_BITS):
        packed = np.sort((codes.astype(np.int64) << _DURATION_BITS) | durations)
        return packed >> _DURATION_BITS, packed & ((1 << _DURATION_BITS) - 1)
    order = np.lexsort((durations, codes))
    return codes[order].astype(np.int64), durations[order]


def _statistics(key: tuple[str, str], ordered: npt.NDArray[np.int64]) -> NameTime:
    total = int(ordered.sum())
    return NameTime(
        name=key[0],
        kind=key[1],
        count=len(ordered),
        total_ns=total,
        mean_ns=total / len(ordered),
        median_ns=_quantile(ordered, 50),
        p95_ns=_quantile(ordered, 95),
        min_ns=int(ordered[0]),
        max_ns=int(ordered[-1]),
    )


def _quantile(ordered: npt.NDArray[np.int64], percent: int) -> float:
    """The value `percent` of the way through sorted values, in proportion between the two nearest."""
    whole, rest = divmod((len(ordered) - 1) * percent, 100)
    low, high = int(ordered[whole]), int(ordered[min(whole + 1, len(ordered) - 1)])
    return low + (high - low) * rest / 100
