"""What in a timeline's device activities cannot be quite true: late stamps, and launched work not recorded.

A stream runs one thing after another, so an activity that ends after the next one of its stream has begun was stamped
late, or overlaps it on purpose (programmatic dependent launch). A launch whose activity is not there was dropped, or
cut off with the rest of its file; what a CUDA graph ran is then told as idle.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..record.units import show_ns
from .activities import NONE, Activities, activities_of
from .findings import Finding
from .timeline import Timeline

_WORTH_A_WARNING = 0.01
"""Share of the device time, or of the launches, from which on a conclusion may be wrong."""
_AT_A_WINDOWS_EDGE = 10
"""So many launches may lack their activity because the window ended between the two."""
LAUNCHES_KERNELS = r"LaunchKernel|^cuLaunch|^hip.*Module.*Launch"
LAUNCHES_GRAPHS = r"^(?:cuda|cu|hip)GraphLaunch"


def doubts(timeline: Timeline) -> list[Finding]:
    """A finding for each rank and each thing that does not add up; none for a sound timeline."""
    found = []
    for source in timeline.sources:
        part = timeline.of_rank(source.rank)
        work = activities_of(part.activities)
        if len(work):
            found.append(overruns(source.rank, work))
            found.append(unrecorded(source.rank, *_lost(work, part.launches, LAUNCHES_KERNELS)))
            found.append(unrecorded_graphs(source.rank, *_lost(work, part.launches, LAUNCHES_GRAPHS)))
        else:
            launches = pc.sum(pc.match_substring_regex(part.launches["name"].cast(pa.string()), LAUNCHES_GRAPHS))
            found.append(unrecorded_graphs(source.rank, launches.as_py() or 0, launches.as_py() or 0))
    return [finding for finding in found if finding]


def overruns(rank: int, work: Activities) -> Finding | None:
    """Activities that end after the next of their stream has begun; None where there are none."""
    whole = [entry.what == "graph" for entry in work.labels]
    if any(whole):  # whole graphs run over several streams
        work = work.where(~np.array(whole)[work.label])
    work = work.where(work.end > work.start)  # what has no length overlaps nothing
    # Processes number their streams alike; a column that says nothing is not worth a sort.
    places = [column for column in (work.stream, work.process, work.device) if len(column) and np.ptp(column)]
    order = np.lexsort((work.end, work.start, *places))
    starts, ends = work.start[order], work.end[order]
    same_stream = np.ones(max(len(order) - 1, 0), dtype=bool)
    for column in places:
        same_stream &= column[order][1:] == column[order][:-1]
    late = np.where(same_stream, ends[:-1] - starts[1:], 0)
    rows = np.flatnonzero(late > 0)
    if not len(rows):
        return None
    over_ns, all_ns = int(late[rows].sum()), int(work.duration.sum())
    by_label = np.bincount(work.label[order][rows], weights=late[rows], minlength=len(work.labels))
    worst = work.labels[int(by_label.argmax())].name
    shown = " ".join(worst.split())[:80]
    return Finding(
        code="overlap-on-a-stream",
        severity="warning" if over_ns > _WORTH_A_WARNING * all_ns else "info",
        text=f"Rank {rank}: {len(rows)} activities end after the next one of their stream has begun, by "
        f"{show_ns(over_ns)} in all: they were stamped late, or overlap on purpose (programmatic dependent launch). "
        f"Ended where the next begins, all work takes {show_ns(all_ns - over_ns)} in place of {show_ns(all_ns)}; "
        f"times by kernel, and busy time, may be too high by the difference. Most of it is of {shown}.",
        evidence={
            "rank": rank,
            "activities": len(rows),
            "overlap_ns": over_ns,
            "summed_ns": all_ns,
            "clipped_ns": all_ns - over_ns,
            "most_of": worst,
        },
    )


def _lost(work: Activities, launches: pa.Table, which: str) -> tuple[int, int]:
    """How many launches match the pattern `which`, and how many of them have no activity."""
    chosen = launches.filter(pc.match_substring_regex(launches["name"].cast(pa.string()), which))
    chosen = chosen.filter(pc.is_valid(chosen["correlation"]))
    recorded = pa.array(work.correlation[work.correlation != NONE])
    if not len(recorded):
        return 0, 0  # activities do not say which launch they are of
    known = pc.is_in(chosen["correlation"], value_set=recorded)
    return len(chosen), len(chosen) - (pc.sum(known).as_py() or 0)


def unrecorded(rank: int, launches: int, lost: int) -> Finding | None:
    """What to say of `lost` of `launches` kernel launches that have no kernel; None of as many as an edge explains."""
    if lost <= max(_AT_A_WINDOWS_EDGE, _WORTH_A_WARNING * launches):
        return None
    return Finding(
        code="launches-without-activity",
        severity="warning",
        text=f"Rank {rank}: {lost} of {launches} kernel launches have no kernel in the trace. The profiler dropped "
        "them (its buffers were full, or the window ended first) or the file was cut: device times lack theirs.",
        evidence={"rank": rank, "launches": launches, "without_activity": lost},
    )


def unrecorded_graphs(rank: int, launches: int, lost: int) -> Finding | None:
    """What to say of `lost` of `launches` CUDA graph launches of which nothing was recorded; one may be at an edge."""
    if not lost or (lost < launches and lost <= max(1, _WORTH_A_WARNING * launches)):
        return None
    return Finding(
        code="graphs-without-activity",
        severity="warning",
        text=f"Rank {rank}: of {lost} of {launches} CUDA graph launches nothing was recorded: what they ran is in no "
        "sum, and the device seems idle meanwhile. nsys records them with --cuda-graph-trace=node (or =graph).",
        evidence={"rank": rank, "launches": launches, "without_activity": lost},
    )
