"""FSDP2's collectives by layer: all-gathers of forward and backward, reduce-scatters, hidden by compute or not.

FSDP2 opens `FSDP::all_gather (layer)` and `FSDP::post_backward_reduce (layer)` where it starts a collective. A
communication kernel is of the range that launched it. It is exposed while no compute kernel runs, told for each kernel
by itself. In a run without GPUs the spans of gloo's worker threads are the communication and operators the compute.
"""

import re
from typing import NamedTuple

import msgspec
import numpy as np

from .activities import Ints, Mask
from .breakdown import Coverage
from .host import Host
from .intervals import covered_before
from .nesting import Nest, Ranges, nearest, within
from .phases import BACKWARD
from .projection import owners

ALL_GATHER = r"^FSDP::all_gather(?: \(|$)"
REDUCE = r"^FSDP::post_backward_reduce"
ROOT = "(root)"
"""What no layer's name is given for: the outermost wrapped module."""
_LAYER = re.compile(r"\((.*)\)$")


class FsdpTime(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of one layer. `comm_ns = exposed_ns + overlapped_ns`."""

    layer: str
    phase: str
    """`all-gather forward`, `all-gather backward` or `reduce-scatter`."""
    count: int
    host_ns: int
    """In the ranges that start it; where the host waits in them too (CPU), with the waiting."""
    comm_ns: int | None
    """Communication started in them, summed; None where it was not recorded."""
    exposed_ns: int | None
    overlapped_ns: int | None
    bytes: int | None
    """What one rank hands in; None where it was not recorded."""


class _Key(NamedTuple):
    layer: str
    phase: str


def fsdp_times(host: Host, covers: dict[int, Coverage], sizes: Ints) -> list[FsdpTime]:
    """By layer in the order in which forward comes to it, then by phase; empty without FSDP2's ranges.

    `covers` is what each device did when; `sizes` the bytes that each activity's rank handed in (`NONE`: not known).
    """
    if host.ranges is None or host.nested is None:
        return []
    ranges = host.ranges.push_pop
    starts = ranges.is_named(f"{ALL_GATHER}|{REDUCE}")
    if not starts.any():
        return []
    keys = _keys(ranges, host.nested, starts)
    exposed = _exposed(host, covers)
    of_range = _range_of(host, starts)
    found: dict[_Key, list[int]] = {}
    for row in sorted(keys, key=lambda row: int(ranges.start[row])):
        entry = found.setdefault(keys[row], [0, 0, 0, 0, 0, 0])
        entry[0] += 1
        entry[1] += int(ranges.end[row] - ranges.start[row])
    communicates = host.work.is_communication
    for at in np.flatnonzero(communicates & (of_range >= 0)).tolist():
        entry = found[keys[int(of_range[at])]]
        entry[2] += 1
        entry[3] += int(host.work.duration[at])
        entry[4] += int(exposed[at])
        entry[5] = entry[5] + int(sizes[at]) if sizes[at] >= 0 and entry[5] >= 0 else -1
    return [
        FsdpTime(
            layer=key.layer,
            phase=key.phase,
            count=count,
            host_ns=host_ns,
            comm_ns=comm_ns if kernels else None,
            exposed_ns=exposed_ns if kernels else None,
            overlapped_ns=comm_ns - exposed_ns if kernels else None,
            bytes=size if kernels and size >= 0 else None,
        )
        for key, (count, host_ns, kernels, comm_ns, exposed_ns, size) in found.items()
    ]


def _keys(ranges: Ranges, nested: Nest, starts: Mask) -> dict[int, _Key]:
    """Row of a range that starts a collective → its layer and phase."""
    backward = within(nested.parent, ranges.is_named(BACKWARD) | ranges.is_backward)
    reduces = ranges.is_named(REDUCE)
    found = {}
    for row in np.flatnonzero(starts).tolist():
        layer = _LAYER.search(ranges.names[ranges.name[row]])
        gather = "all-gather backward" if backward[row] else "all-gather forward"
        found[row] = _Key(layer[1] if layer and layer[1] else ROOT, "reduce-scatter" if reduces[row] else gather)
    return found


def _range_of(host: Host, starts: Mask) -> Ints:
    """For each activity the row of the range of `starts` that it was launched in; `NONE` in none."""
    assert host.ranges is not None
    assert host.nested is not None
    owned = owners(host.asked, host.ranges.push_pop, host.nested)
    around = nearest(host.nested.parent, starts)
    direct = np.where(owned.direct >= 0, around[owned.direct], owned.direct)
    by_time = np.where(owned.by_time >= 0, around[owned.by_time], owned.by_time)
    return np.where(direct >= 0, direct, by_time)


def _exposed(host: Host, covers: dict[int, Coverage]) -> Ints:
    """For each activity how long nothing computed on its device while it ran."""
    work = host.work
    found = work.duration
    for device, cover in covers.items():
        mine = work.device == device
        hidden = covered_before(cover.compute, work.end[mine]) - covered_before(cover.compute, work.start[mine])
        found[mine] -= hidden
    return found
