"""GPU time of named ranges through launches: not what ran while a range was open, but what was launched in it.

A piece of device work belongs to the innermost range that is open, on the thread that launches it, when the launch call
begins (exclusive time), and to all around that one (inclusive time). Where the launching thread has no open range, as
autograd's may not, the process's main thread decides by time; that part is told. Work that another thread launches
while a range of the main thread is open (`backward` is one that waits for autograd) counts in that range's inclusive
time, by time too. Durations are summed, so that work which overlaps counts each.

Operators and modules are what their thread did: nothing is theirs by time.

PyTorch's ranges carry autograd's number: a backward function's `seq = N` is that of the forward operator that made it.
So each range also has the GPU time of the backward of what it did forward.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from .activities import NONE, Ints
from .nesting import ANNOTATION, MODULE, OPERATOR, PUSH_POP, STEP, Nest, Ranges, innermost, main_threads, nearest
from .windows import LaunchTimes, launch_times, twice, windows_of


class RangeTime(msgspec.Struct, frozen=True, kw_only=True):
    """All ranges of one name."""

    name: str
    style: str
    """`pushpop`, `annotation`, `step`, `module`, `operator`; or `startend` for ranges that belong to no thread."""
    count: int
    host_ns: int
    """On the host, summed; within another of its name it counts in that one alone."""
    inclusive_ns: int
    """GPU time of what was launched in it."""
    exclusive_ns: int | None
    """Without what ranges of its style within it launched (push/pop ranges, annotations and steps are one style here);
    None for start/end ranges, which do not nest."""
    by_time_ns: int
    """The part of `inclusive_ns` that another thread launched while the range was open, told by time alone."""
    backward_ns: int | None
    """GPU time of the backward functions of what was done in it; None where no range carries autograd's number."""


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """GPU time by range. `gpu_ns = attributed_ns + outside_ns + unlaunched_ns`."""

    gpu_ns: int
    """Durations of all device work, summed."""
    attributed_ns: int
    by_time_ns: int
    """The part of `attributed_ns` whose range was told by time alone."""
    outside_ns: int
    """Launched while no range was open."""
    unlaunched_ns: int
    """Whose launch call was not recorded."""
    ranges: list[RangeTime]
    """Largest inclusive time first, then by name."""


@dataclass(frozen=True, kw_only=True)
class Launched:
    """Device work with when and by whom it was launched, one row each."""

    duration: Ints
    thread: Ints
    """As in `Ranges.thread`; `NONE` where the launch was not recorded."""
    time: Ints
    """When the launch call began; anything where there is none."""


@dataclass(frozen=True, kw_only=True)
class Begun(Launched):
    """Device work with the operator that the source names for it: its thread, when it began, and when it ended."""

    until: Ints


@dataclass(frozen=True, kw_only=True)
class Owners:
    """For each piece of work the row of its range, on the launching thread and on the process's main thread."""

    direct: Ints
    by_time: Ints
    """Of work that other threads than the main one launched; `NONE` for the rest."""

    @property
    def owner(self) -> Ints:
        """Who has it exclusively."""
        return np.where(self.direct >= 0, self.direct, self.by_time)


def owners(launched: Launched, ranges: Ranges, nested: Nest) -> Owners:
    """Which range each piece of work belongs to."""
    direct = np.full(len(launched.time), NONE, dtype=np.int64)
    by_time = direct.copy()
    for thread in ranges.threads:
        mine = np.flatnonzero(launched.thread == thread)
        direct[mine] = innermost(ranges, nested.parent, thread, launched.time[mine])
    for process, thread in main_threads(ranges).items():
        others = np.flatnonzero((launched.thread >> 24 == process) & (launched.thread != thread))
        by_time[others] = innermost(ranges, nested.parent, thread, launched.time[others])
    return Owners(direct=direct, by_time=by_time)


def project(launched: Launched, ranges: Ranges, start_end: Ranges, nested: Nest) -> Projection:
    """The GPU time of every range by name; `nested` is how `ranges` lie within one another."""
    owned = owners(launched, ranges, nested)
    owner = owned.owner
    weigh = launched.duration
    known = launched.thread != NONE
    exclusive = _sums(ranges.name.astype(np.int64), _exclusive(owned, weigh, ranges, nested), len(ranges.names))
    by_name = _by_name(launched, ranges, nested, exclusive)
    return Projection(
        gpu_ns=int(weigh.sum()),
        attributed_ns=int(weigh[owner >= 0].sum()),
        by_time_ns=int(weigh[(owned.direct < 0) & (owned.by_time >= 0)].sum()),
        outside_ns=int(weigh[known & (owner < 0)].sum()),
        unlaunched_ns=int(weigh[~known].sum()),
        ranges=sorted(
            [*by_name, *_start_end(start_end, launched)],
            key=lambda row: (-row.inclusive_ns, -row.host_ns, row.name),
        ),
    )


def _exclusive(owned: Owners, weigh: Ints, ranges: Ranges, nested: Nest) -> Ints:
    """Each range's own time, with ranges of other styles within it."""
    if not ranges.styles:
        return _sums(owned.owner, weigh, len(ranges))
    found = np.zeros(len(ranges), dtype=np.int64)
    for styles in ((OPERATOR,), (MODULE,), (PUSH_POP, ANNOTATION, STEP)):
        mine = ranges.has_style(*styles)
        if mine.any():
            rows = nearest(nested.parent, mine)
            owner = owned.owner if ANNOTATION in styles else owned.direct
            found += _sums(np.where(owner >= 0, rows[owner], NONE), weigh, len(ranges))
    return found


def _sums(rows: Ints, weights: Ints, count: int) -> Ints:
    has = rows >= 0
    return np.bincount(rows[has], weights=weights[has], minlength=count).astype(np.int64)  # exact below 2⁵³ ns


def _with_children(own: Ints, parent: Ints) -> Ints:
    """Each row's value and those of all within it."""
    total, above = own.tolist(), parent.tolist()
    for row in range(len(total) - 1, -1, -1):
        if above[row] >= 0:
            total[above[row]] += total[row]
    return np.array(total, dtype=np.int64)


def _backward(ranges: Ranges, nested: Nest, on_thread: dict[int, LaunchTimes]) -> Ints | None:
    """For each name the time of the backward functions of what lies in its ranges; None where nothing can be linked.

    The operator that makes a backward function is the last to begin of those with its number, since those that begin
    before it and make none see the same one. Functions within a backward function (recomputation) count with it.
    """
    links = forward_of(ranges, nested)
    if not links:
        return None
    inclusive = np.zeros(len(ranges), dtype=np.int64)
    for thread, times in on_thread.items():
        rows = ranges.threads[thread]
        inclusive[rows] = times.within(ranges.start[rows], ranges.end[rows])
    own = np.zeros(len(ranges), dtype=np.int64)
    for function, operator in links.items():
        own[operator] += inclusive[function]
    outermost = ~nested.repeats
    total = _with_children(own, nested.parent)[outermost]
    return _sums(ranges.name[outermost].astype(np.int64), total, len(ranges.names))


def forward_of(ranges: Ranges, nested: Nest) -> dict[int, int]:
    """Row of a backward function → row of the forward operator that made it."""
    numbered = np.flatnonzero((ranges.sequence != NONE) & ~nested.in_backward)
    in_time = numbered[np.argsort(ranges.start[numbered], kind="stable")].tolist()
    is_backward = ranges.is_backward
    last: dict[tuple[int, int], int] = {}
    links = {}
    for row in in_time:
        key = (int(ranges.thread[row]) >> 24, int(ranges.sequence[row]))
        if not is_backward[row]:
            last[key] = row
        elif key in last:
            links[row] = last[key]
    return links


def _by_name(launched: Launched, ranges: Ranges, nested: Nest, exclusive: Ints) -> list[RangeTime]:
    size = len(ranges.names)
    windows = windows_of(ranges)
    on_thread = {
        thread: launch_times(launched.time[mine], launched.duration[mine])
        for thread in ranges.threads
        if len(mine := np.flatnonzero(launched.thread == thread))
    }
    direct, by_time = np.zeros(len(windows.start), dtype=np.int64), np.zeros(len(windows.start), dtype=np.int64)
    for thread, times in on_thread.items():
        rows = windows.of(thread)
        direct[rows] = times.within(windows.start[rows], windows.end[rows])
    doubled = np.zeros(size, dtype=np.int64)
    for process, main in main_threads(ranges).items():
        others = np.flatnonzero((launched.thread >> 24 == process) & (launched.thread != main))
        rows = windows.of(main)
        times = launch_times(launched.time[others], launched.duration[others])
        by_time[rows] = times.within(windows.start[rows], windows.end[rows])
        of_process = {thread: times for thread, times in on_thread.items() if thread >> 24 == process}
        for name, time_ns in twice(windows, main, of_process).items():
            doubled[name] += time_ns
    timed = _sums(windows.name, by_time, size) - doubled
    timed[ranges.name[ranges.has_style(OPERATOR, MODULE)]] = 0
    inclusive = _sums(windows.name, direct, size) + timed
    counts = np.bincount(ranges.name, minlength=size).tolist()
    host = _sums(windows.name, windows.end - windows.start, size)
    later = _backward(ranges, nested, on_thread)
    return [
        RangeTime(
            name=name,
            style=ranges.style(code),
            count=counts[code],
            host_ns=int(host[code]),
            inclusive_ns=int(inclusive[code]),
            exclusive_ns=int(exclusive[code]),
            by_time_ns=int(timed[code]),
            backward_ns=None if later is None else int(later[code]),
        )
        for code, name in enumerate(ranges.names)
        if counts[code]
    ]


def _start_end(ranges: Ranges, launched: Launched) -> list[RangeTime]:
    """Start/end ranges have what their process, whatever its thread, launched while they were open: all by time."""
    inclusive = np.zeros(len(ranges), dtype=np.int64)
    process = ranges.thread >> 24
    for one in np.unique(process).tolist():
        rows = np.flatnonzero((launched.thread >> 24 == one) & (launched.thread != NONE))
        order = rows[np.argsort(launched.time[rows], kind="stable")]
        times = launched.time[order]
        before = np.concatenate(([0], np.cumsum(launched.duration[order])))
        mine = process == one
        first, last = (np.searchsorted(times, edge[mine]) for edge in (ranges.start, ranges.end))
        inclusive[mine] = before[last] - before[first]
    found = []
    for code, name in enumerate(ranges.names):
        mine = ranges.name == code
        if mine.any():
            time_ns = int(inclusive[mine].sum())
            found.append(
                RangeTime(
                    name=name,
                    style="startend",
                    count=int(mine.sum()),
                    host_ns=int((ranges.end - ranges.start)[mine].sum()),
                    inclusive_ns=time_ns,
                    exclusive_ns=None,
                    by_time_ns=time_ns,
                    backward_ns=None,
                )
            )
    return found
