"""Why a device stood idle: each gap in its busy time with what the host was doing, and who was late.

A gap ends with a piece of work, and that was launched by a thread. The part of a gap before the launch call began is
the host's: it had not asked yet. That part is split by what the thread was in: first ranges that load data, then
communication, then waiting for the device. The rest is the launch's own latency, or waiting for another stream or
device. What the thread was doing is told at the middle of the gap: the API call it was in, and the innermost range that
somebody named.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from .activities import NONE, Ints, Mask
from .intervals import Intervals


class GapCause(msgspec.Struct, frozen=True, kw_only=True):
    """All gaps of a device in which the launching thread was in the same call and range."""

    call: str | None
    """None: in no API call."""
    range: str | None
    """None: in no range."""
    count: int
    total_ns: int
    longest_ns: int
    longest_start_ns: int
    """When the longest began."""


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """A device's idle time. `idle_ns = before_launch_ns + after_launch_ns + unknown_ns`, and
    `before_launch_ns = host_bound_ns + synchronisation_ns + communication_ns + data_ns`."""

    idle_ns: int
    gaps: int
    before_launch_ns: int
    """While the work that ended the gap had not been launched."""
    host_bound_ns: int
    """The part of `before_launch_ns` that none of the next three explains: the host was busy with something else."""
    synchronisation_ns: int
    """The part in calls that wait for the device, or all that follows one that was open when the gap began: the host
    had waited until the device ran dry."""
    communication_ns: int
    """The part in which the launching thread communicated, or waited for it."""
    data_ns: int
    """The part in which it waited for its data."""
    after_launch_ns: int
    """Between launch and start: latency, or waiting for something else."""
    in_graph_ns: int
    """The part of `after_launch_ns` between kernels of one launch of a graph, which may be the tracing's own doing."""
    unknown_ns: int
    """Ended by work whose launch was not recorded."""
    causes: list[GapCause] | None
    """Largest first, of gaps ended by work whose launch is known; None where no API calls were recorded."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """What the launching thread did in each gap before it launched, and the part within a graph, ns a gap."""

    data: Ints
    communication: Ints
    synchronisation: Ints
    in_graph: Ints


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """The gaps of one device in order of time, one row each."""

    start: Ints
    end: Ints
    next: Ints
    """Row of the work that begins at its end (of several, the one launched first)."""

    @property
    def middle(self) -> Ints:
        """Half-way."""
        return (self.start + self.end) // 2


def gaps(busy: Intervals, starts: Ints, launched: Ints) -> Gaps:
    """The gaps in `busy`, the union of work that starts at `starts`, launched at `launched` (`NONE`: unknown)."""
    ends = busy[1:, 0]
    if (starts[1:] > starts[:-1]).all():
        return Gaps(start=busy[:-1, 1], end=ends, next=np.searchsorted(starts, ends))
    order = np.lexsort((np.where(launched == NONE, np.iinfo(np.int64).max, launched), starts))
    return Gaps(start=busy[:-1, 1], end=ends, next=order[np.searchsorted(starts[order], ends)])


def idle(
    found: Gaps, launched: Ints, call: Ints | None, within: Ints, names: tuple[list[str], list[str]], waits: Waits
) -> Idle:
    """What the gaps come to; `launched` is when the work after each was launched (`NONE`: unknown).

    `call` and `within` are codes into the two lists of `names`, of calls and of ranges, for each gap; `NONE` in none.
    `call` None: no calls were recorded.
    """
    length = found.end - found.start
    known: Mask = launched != NONE
    before = np.where(known, np.clip(launched - found.start, 0, length), 0)
    unknown_ns = int(length[~known].sum())
    data_ns, communication_ns, synchronisation_ns = (
        int(part[known].sum()) for part in (waits.data, waits.communication, waits.synchronisation)
    )
    return Idle(
        idle_ns=int(length.sum()),
        gaps=len(length),
        before_launch_ns=int(before.sum()),
        host_bound_ns=int(before.sum()) - data_ns - communication_ns - synchronisation_ns,
        synchronisation_ns=synchronisation_ns,
        communication_ns=communication_ns,
        data_ns=data_ns,
        after_launch_ns=int((length - before)[known].sum()),
        in_graph_ns=int(waits.in_graph[known].sum()),
        unknown_ns=unknown_ns,
        causes=None if call is None else _causes(found.start[known], length[known], call[known], within[known], names),
    )


_FEW = 1 << 20
"""So many pairs of a call and a range, and as many as there are gaps, are counted without sorting them."""


def _causes(start: Ints, length: Ints, call: Ints, within: Ints, names: tuple[list[str], list[str]]) -> list[GapCause]:
    calls, ranges = names
    code = (call + 1) * (len(ranges) + 1) + within + 1
    size = (len(calls) + 1) * (len(ranges) + 1)
    if size > _FEW + len(code):
        _, code = np.unique(code, return_inverse=True)
        size = len(code)
    longest = np.zeros(size, dtype=np.int64)
    np.maximum.at(longest, code, length)
    candidates = np.flatnonzero(length == longest[code])
    keys, first_of_each = np.unique(code[candidates], return_index=True)
    firsts = candidates[first_of_each]  # the earliest of the longest: gaps are in order of time
    counts = np.bincount(code, minlength=size)[keys]
    totals = np.bincount(code, weights=length, minlength=size)[keys]
    rows = [
        GapCause(
            call=calls[call[first]] if call[first] != NONE else None,
            range=ranges[within[first]] if within[first] != NONE else None,
            count=int(count),
            total_ns=int(total),
            longest_ns=int(length[first]),
            longest_start_ns=int(start[first]),
        )
        for first, count, total in zip(firsts.tolist(), counts, totals, strict=True)
    ]
    return sorted(rows, key=lambda row: (-row.total_ns, row.call or "", row.range or ""))
