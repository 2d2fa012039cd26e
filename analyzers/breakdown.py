"""Where the device time went: per device the span in five parts that sum to it, and its kernels by name and kind.

busy = union of kernels, copies and sets over all streams. compute = union of kernels that are no communication;
exposed communication = communication while nothing computes; memory = copies and sets that neither covers; idle = the
rest of the span. Without any device activity the time of CPU operators stands instead.
"""

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .doubts import doubts
from .findings import Finding
from .intervals import length, shared, together, union, without
from .kinds import COMMUNICATION, kind_of
from .operators import OperatorTime, operator_times
from .timeline import Source, Timeline


class NameTime(msgspec.Struct, frozen=True, kw_only=True):
    """All activities or ranges of one name."""

    name: str
    kind: str
    count: int
    total_ns: int
    mean_ns: float
    median_ns: float
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
    """What `stepscope trace` and `analyze-nsys` print as JSON."""

    schema: Literal["stepscope.timeline/1"] = "stepscope.timeline/1"
    ranks: list[RankTime]
    findings: list[Finding]


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
    work = _of_rank(timeline.activities, source.rank)
    work = work.filter(pc.not_equal(work["kind"].cast(pa.string()), "sync"))
    devices = sorted(pc.unique(work["device"]).to_pylist())
    ranges = _of_rank(timeline.ranges, source.rank)
    return RankTime(
        rank=source.rank,
        source=source.path,
        devices=[
            _device(work.filter(pc.equal(work["device"], device)), device, source.device_names.get(device))
            for device in devices
        ],
        operators=operator_times(_of_rank(timeline.ops, source.rank)),
        ranges=name_times(ranges, ranges["style"].cast(pa.string()).to_pylist()),
    )


def _device(work: pa.Table, device: int, name: str | None) -> DeviceTime:
    starts, ends = _int64(work["start"]), _int64(work["end"])
    activity = work["kind"].cast(pa.string()).to_pylist()
    names = work["name"].cast(pa.string()).to_pylist()
    kinds = np.array(
        [kind_of(text) if what in ("kernel", "graph") else what for text, what in zip(names, activity, strict=True)],
        dtype=object,
    )
    is_kernel = np.array([what in ("kernel", "graph") for what in activity], dtype=bool)
    is_communication = is_kernel & (kinds == COMMUNICATION)
    compute = union(starts[is_kernel & ~is_communication], ends[is_kernel & ~is_communication])
    communication = union(starts[is_communication], ends[is_communication])
    memory = union(starts[~is_kernel], ends[~is_kernel])
    exposed = without(communication, compute)
    copies = without(memory, together(compute, communication))
    span_ns = int(ends.max() - starts.min())
    parts = {
        "compute_ns": length(compute),
        "comm_exposed_ns": length(exposed),
        "memory_ns": length(copies),
    }
    busy_ns = sum(parts.values())
    return DeviceTime(
        device=device,
        name=name,
        span_ns=span_ns,
        busy_ns=busy_ns,
        comm_overlapped_ns=length(shared(communication, compute)),
        idle_ns=span_ns - busy_ns,
        kinds=_kind_times(kinds.tolist(), ends - starts),
        kernels=name_times(work.filter(pa.array(is_kernel)), kinds[is_kernel].tolist()),
        **parts,
    )


def _kind_times(kinds: list[str], durations: npt.NDArray[np.int64]) -> list[KindTime]:
    found, index, counts = np.unique(np.array(kinds, dtype=str), return_inverse=True, return_counts=True)
    totals = np.zeros(len(found), dtype=np.int64)
    np.add.at(totals, index, durations)
    rows = [
        KindTime(kind=str(kind), count=int(count), total_ns=int(total))
        for kind, count, total in zip(found, counts, totals, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row.total_ns, row.kind))


def name_times(rows: pa.Table, kinds: list[str]) -> list[NameTime]:
    """Statistics of a table's durations by name (and kind), largest total first, then by name.

    `rows` has columns name, start and end; `kinds` holds one entry a row. The median is that of the two middle values.
    """
    names = rows["name"].cast(pa.string()).to_pylist()
    keys = list(zip(names, kinds, strict=True))
    code = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    codes = np.fromiter((code[key] for key in keys), dtype=np.int64, count=len(keys))
    durations = _int64(rows["end"]) - _int64(rows["start"])
    order = np.argsort(codes, kind="stable")
    groups = np.split(durations[order], np.flatnonzero(np.diff(codes[order])) + 1) if len(keys) else []
    found = [
        NameTime(
            name=name,
            kind=kind,
            count=len(group),
            total_ns=int(group.sum()),
            mean_ns=int(group.sum()) / len(group),
            median_ns=float(np.median(group)),
            min_ns=int(group.min()),
            max_ns=int(group.max()),
        )
        for (name, kind), group in zip(code, groups, strict=True)
    ]
    return sorted(found, key=lambda row: (-row.total_ns, row.name))


def _of_rank(table: pa.Table, rank: int) -> pa.Table:
    return table.filter(pc.equal(table["rank"], rank))


def _int64(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.asarray(column.to_numpy(), dtype=np.int64)
