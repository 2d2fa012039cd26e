"""The critical path of a step: the chain of work, launches and waiting that its end hangs on, walked from the end back.

At the start of a piece of device work there are two that it may have waited for: the work of its device that ended
last before it, and the call that launched it. The later of the two is taken to be the one. From work to work the time
between them is *waiting* (for another stream's event, or the launch's way to the device); from a call, the time until
the work starts is *launch*. On the host the path follows the launching thread back to the last call in which it
waited for the device: the time since is *host*, the call's return is *synchronisation*, and the path goes on with the
work that ended last before the call did. It ends at the step's beginning. The parts sum to the step's time.

It is an estimate: a trace does not say which event a stream waited for, and what other threads and ranks did is not
followed.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from .activities import NONE, Ints, Label
from .host import Host
from .kinds import COMMUNICATION
from .nesting import main_threads

LONGEST = 5


class PathPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one name has of the path."""

    name: str
    kind: str
    """`compute`, `communication`, `memory`, or one of the parts of the host's."""
    count: int
    total_ns: int


class CriticalPath(msgspec.Struct, frozen=True, kw_only=True):
    """One step on one device. `span_ns` is the sum of the seven parts below it."""

    process: int
    device: int
    number: int
    span_ns: int
    """From the step's beginning on the host to the end of the last work that it launched."""
    compute_ns: int
    communication_ns: int
    memory_ns: int
    launch_ns: int
    waiting_ns: int
    host_ns: int
    synchronisation_ns: int
    longest: list[PathPart]
    """The names with most of it, largest first."""


@dataclass
class _Walk:
    """The path of one step, from `now` back to `begin`."""

    begin: int
    now: int
    parts: dict[tuple[str, str], list[int]]

    def back_to(self, time: int, kind: str, name: str) -> None:
        """Charge what lies between `time` and now."""
        time = max(time, self.begin)
        if time < self.now:
            entry = self.parts.setdefault((kind, name), [0, 0])
            entry[0] += 1
            entry[1] += self.now - time
            self.now = time


def critical_paths(host: Host, device: int) -> list[CriticalPath]:
    """Of each step that launched work on a device, in their order; empty without steps or without calls."""
    if host.calls is None or host.ranges is None:
        return []
    by_end = _by_end(host, np.flatnonzero((host.work.device == device) & (host.work.duration > 0)))
    waits = _Waits(host)
    found = []
    for process, steps in host.step_rows.items():
        for number, step in enumerate(steps.tolist()):
            mine = by_end[(host.step[by_end] == number) & (host.asked.thread[by_end] >> 24 == process)]
            if len(mine):
                begin, end = int(host.ranges.push_pop.start[step]), int(host.work.end[mine[-1]])
                walk = _Walk(begin, max(end, begin), {})
                _follow(host, by_end, waits, walk, int(np.searchsorted(host.work.end[by_end], end, "right")) - 1)
                found.append(_told(walk, process, device, number, max(end - begin, 0)))
    return found


def _by_end(host: Host, rows: Ints) -> Ints:
    """Rows of work by their end; of those that end together the last to begin, then the last launched, comes last."""
    work = host.work
    by_name = np.argsort(np.array([entry.name for entry in work.labels], dtype=object), kind="stable")
    place = np.empty(len(by_name), dtype=np.int64)
    place[by_name] = np.arange(len(by_name))
    order = (place[work.label[rows]], host.launched.time[rows], work.start[rows], work.end[rows])
    found: Ints = rows[np.lexsort(order)]
    return found


def _follow(host: Host, by_end: Ints, waits: "_Waits", walk: _Walk, at: int) -> None:
    """Walk back from the work at place `at` of `by_end`, until the step's beginning."""
    work, ends = host.work, host.work.end[by_end]
    while at >= 0 and walk.now > walk.begin:
        row = int(by_end[at])
        label = work.labels[work.label[row]]
        walk.back_to(int(work.start[row]), _kind(label), label.name)
        before = int(np.searchsorted(ends, walk.now, side="right")) - 1
        before = min(before, at - 1)
        call = int(host.call[row])
        launched = int(host.launched.time[row]) if call != NONE else None
        if launched is not None and (before < 0 or int(ends[before]) < launched):
            walk.back_to(launched, "launch", host.calls.names[host.calls.name[call]] if host.calls else "")
            at = _over_host(host, waits, walk, int(host.launched.thread[row]), ends)
        else:
            if before >= 0:
                walk.back_to(int(ends[before]), "waiting", "between work")
            at = before
    walk.back_to(walk.begin, "host", "before the first launch")


def _over_host(host: Host, waits: "_Waits", walk: _Walk, thread: int, ends: Ints) -> int:
    """Along a thread back to where it last waited for the device; the place of the work it waited for, or −1."""
    while walk.now > walk.begin:
        call = waits.before(thread, walk.now)
        if call is None:
            break
        start, end, name = call
        walk.back_to(end, "host", "host")
        if end <= walk.begin:
            break
        waited = int(np.searchsorted(ends, min(end, walk.now), side="right")) - 1
        if waited >= 0 and int(ends[waited]) > start:
            walk.back_to(int(ends[waited]), "synchronisation", name)
            return waited
        walk.back_to(start, "synchronisation", name)
    walk.back_to(walk.begin, "host", "host")
    return -1


class _Waits:
    """The calls of each thread, and of its process's main thread, that wait for the device, in order of their end."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._of: dict[int, Ints] = {}
        self._main = main_threads(host.ranges.push_pop) if host.ranges else {}

    def before(self, thread: int, time: int) -> tuple[int, int, str] | None:
        """Start, end and name of the last one that ended by `time`."""
        calls = self._host.calls
        assert calls is not None
        if thread not in self._of:
            both = {thread, self._main.get(thread >> 24, thread)}
            rows = np.concatenate([self._host.waiting_calls(one) for one in both])
            self._of[thread] = rows[np.argsort(calls.end[rows], kind="stable")]
        rows = self._of[thread]
        at = int(np.searchsorted(calls.end[rows], time, side="right")) - 1
        while at >= 0 and calls.start[rows[at]] >= time:
            at -= 1
        if at < 0:
            return None
        row = int(rows[at])
        return int(calls.start[row]), int(calls.end[row]), calls.names[calls.name[row]]


def _kind(label: Label) -> str:
    if label.kind == COMMUNICATION:
        return "communication"
    return "compute" if label.what in ("kernel", "graph") else "memory"


def _told(walk: _Walk, process: int, device: int, number: int, span_ns: int) -> CriticalPath:
    sums: dict[str, int] = {}
    for (kind, _), (_, time_ns) in walk.parts.items():
        sums[kind] = sums.get(kind, 0) + time_ns
    longest = sorted(walk.parts.items(), key=lambda entry: (-entry[1][1], entry[0]))[:LONGEST]
    return CriticalPath(
        process=process,
        device=device,
        number=number,
        span_ns=span_ns,
        compute_ns=sums.get("compute", 0),
        communication_ns=sums.get("communication", 0),
        memory_ns=sums.get("memory", 0),
        launch_ns=sums.get("launch", 0),
        waiting_ns=sums.get("waiting", 0),
        host_ns=sums.get("host", 0),
        synchronisation_ns=sums.get("synchronisation", 0),
        longest=[
            PathPart(name=name, kind=kind, count=count, total_ns=total) for (kind, name), (count, total) in longest
        ],
    )
