"""When any range of a name was open on a thread, and how much of what threads launched falls into such windows.

Ranges of one name that lie within one another, or overlap in part, make one window: what is launched in it counts once.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .activities import Ints
from .intervals import Intervals, shared, union
from .nesting import Ranges


@dataclass(frozen=True, kw_only=True)
class Windows:
    """One row a window, by thread and name; half-open, ns."""

    start: Ints
    end: Ints
    thread: Ints
    name: Ints

    def of(self, thread: int) -> slice:
        """The rows of one thread."""
        first, last = np.searchsorted(self.thread, [thread, thread + 1]).tolist()
        return slice(first, last)


def windows_of(ranges: Ranges) -> Windows:
    """The windows of all names on all threads."""
    order = np.lexsort((ranges.start, ranges.name, ranges.thread))
    start, thread, name = ranges.start[order], ranges.thread[order], ranges.name[order].astype(np.int64)
    first = np.concatenate(([True], (thread[1:] != thread[:-1]) | (name[1:] != name[:-1])))[: len(order)]
    ends, place = np.unique(ranges.end[order], return_inverse=True)
    # The furthest end so far within the group: a later group's number outweighs all before it.
    group = np.cumsum(first) * max(1, len(ends))
    reach = ends[np.maximum.accumulate(group + place) - group] if len(order) else ends
    opens = first.copy()
    opens[1:] |= start[1:] >= reach[:-1]
    closes = np.concatenate((opens[1:], [True]))[: len(order)]
    return Windows(start=start[opens], end=reach[closes], thread=thread[opens], name=name[opens])


@dataclass(frozen=True, kw_only=True)
class LaunchTimes:
    """What one thread, or several, launched, in order of time; `before[n]` is the GPU time of the first n."""

    time: Ints
    before: Ints

    def within(self, start: Ints, end: Ints) -> Ints:
        """For each window the GPU time of what was launched in it."""
        first, last = (np.searchsorted(self.time, edge) for edge in (start, end))
        return self.before[last] - self.before[first]


def launch_times(time: Ints, duration: Ints) -> LaunchTimes:
    """Of launches in any order."""
    order = np.argsort(time, kind="stable")
    return LaunchTimes(time=time[order], before=np.concatenate(([0], np.cumsum(duration[order]))))


def twice(windows: Windows, main: int, launched: Mapping[int, LaunchTimes]) -> dict[int, int]:
    """Name → time of what other threads launched in a window of their own while one of that name was open on `main`."""
    found: dict[int, int] = {}
    on_main = _by_name(windows, main)
    for thread, of_thread in launched.items():
        own = _by_name(windows, thread) if thread != main and on_main else {}
        for name in own.keys() & on_main.keys():
            both = shared(own[name], on_main[name])
            found[name] = found.get(name, 0) + int(of_thread.within(both[:, 0], both[:, 1]).sum())
    return found


def _by_name(windows: Windows, thread: int) -> dict[int, Intervals]:
    rows = windows.of(thread)
    names, first = np.unique(windows.name[rows], return_index=True)
    edges = [*first.tolist(), rows.stop - rows.start]
    start, end = windows.start[rows], windows.end[rows]
    return {
        name: union(start[low:high], end[low:high])
        for name, low, high in zip(names.tolist(), edges[:-1], edges[1:], strict=True)
    }
