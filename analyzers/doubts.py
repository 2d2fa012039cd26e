"""What in a timeline's device activities cannot be quite true: late stamps, and launched work not recorded.

A stream runs one thing after another, so an activity that ends after the next one of its stream has begun was stamped
late, or overlaps it on purpose (programmatic dependent launch). A launch whose activity is not there was dropped, or
cut off with the rest of its file.
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


def doubts(timeline: Timeline) -> list[Finding]:
    """A finding for each rank and each thing that does not add up; none for a sound timeline."""
    found = []
    for source in timeline.sources:
        work = activities_of(timeline.activities.filter(pc.equal(timeline.activities["rank"], source.rank)))
        if len(work):
            launches = timeline.launches.filter(pc.equal(timeline.launches["rank"], source.rank))
            found += [overruns(source.rank, work), _unrecorded(source.rank, work, launches)]
    return [finding for finding in found if finding]


def overruns(rank: int, work: Activities) -> Finding | None:
    """Activities that end after the next of their stream has begun; None where there are none."""
    whole = [entry.what == "graph" for entry in work.labels]
    if any(whole):  # whole graphs run over several streams
        work = work.where(~np.array(whole)[work.label])
    work = work.where(work.duration > 0)  # what has no length overlaps nothing
    starts, ends, devices, streams = work.start, work.end, work.device, work.stream
    order = np.lexsort((ends, starts, streams, devices))
    starts, ends, devices, streams = starts[order], ends[order], devices[order], streams[order]
    same_stream = (devices[1:] == devices[:-1]) & (streams[1:] == streams[:-1])
    late = np.where(same_stream, ends[:-1] - starts[1:], 0)
    late = late[late > 0]
    if not len(late):
        return None
    over_ns, all_ns = int(late.sum()), int((ends - starts).sum())
    return Finding(
        code="overlap-on-a-stream",
        severity="warning" if over_ns > _WORTH_A_WARNING * all_ns else "info",
        text=f"Rank {rank}: {len(late)} activities end after the next one of their stream has begun, by "
        f"{show_ns(over_ns)} in all: they were stamped late, or overlap on purpose (programmatic dependent launch). "
        "Times by kernel, and busy time, may be too high by that much.",
        evidence={"rank": rank, "activities": len(late), "overlap_ns": over_ns, "summed_ns": all_ns},
    )


def _unrecorded(rank: int, work: Activities, launches: pa.Table) -> Finding | None:
    kernels = launches.filter(pc.match_substring_regex(launches["name"].cast(pa.string()), LAUNCHES_KERNELS))
    kernels = kernels.filter(pc.is_valid(kernels["correlation"]))
    recorded = pa.array(work.correlation[work.correlation != NONE])
    if not len(recorded):
        return None  # activities do not say which launch they are of
    known = pc.is_in(kernels["correlation"], value_set=recorded)
    return unrecorded(rank, len(kernels), len(kernels) - (pc.sum(known).as_py() or 0))


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
