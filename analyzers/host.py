"""The host's side of device work: which call launched what, in which range and step; what the host did meanwhile."""

import re
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np

from .activities import NONE, Activities, Ints, Mask
from .breakdown import Coverage, NameTime, name_times
from .calls import Calls, launched_by
from .gaps import Gaps, Idle, Waits, gaps, idle
from .intervals import EMPTY, Intervals, covered_before, covers, length, together, union, without
from .launches import LaunchCost, launch_costs
from .nesting import MODULE, OPERATOR, PUSH_POP, HostRanges, Nest, innermost, main_threads, nearest, nest
from .projection import Begun, Launched, Projection, owners, project
from .steps import StepTime, step_at, step_times, steps_of

DATA = (
    r"^enumerate\(DataLoader\)|(?i:^(?:## ?)?(?:get|load|fetch|next|wait[_ ]for(?:[_ ]training)?)?[_ ]?(?:data|batch)"
    r"(?:[_ ]?(?:load(?:ing|er)?|wait|fetch|next))?(?: ?##)?$)"
)
"""Names of ranges in which a loop waits for its data: PyTorch's own, and those that people give."""
COMMUNICATION = (
    r"^(?:nccl|gloo|ucc|mpi|xccl|hccl):|^c10d::|^_c10d_functional::|^record_param_comms$|^nccl[A-Z]|wait_tensor"
)
"""Names of ranges and operators in which the host communicates or waits for it."""
SYNCHRONISING = (
    r"Synchronize|^(?:cuda|cu|hip)Memcpy(?:ToSymbol|FromSymbol|2D|3D|WithStream|DtoH|HtoD|DtoD)?"
    r"(?:_v\d+)?(?:_pt[ds][sz])?$"
)
"""Names of API calls that return when the device is done."""
COPYING = r"Memcpy"


@dataclass(frozen=True)
class Host:
    """Calls and ranges beside the device work that they launched."""

    work: Activities
    calls: Calls | None
    ranges: HostRanges | None
    begun: Begun | None = None
    """The operators that the source names for activities."""

    @cached_property
    def call(self) -> Ints:
        """For each activity the row of the call that launched it; `NONE` where it was not recorded."""
        if self.calls is None:
            return np.full(len(self.work), NONE, dtype=np.int64)
        return launched_by(self.work, self.calls)

    @cached_property
    def launched(self) -> Launched:
        """When and on which thread each activity was launched."""
        nothing = np.full(len(self.work), NONE, dtype=np.int64)
        if self.calls is None or not len(self.calls):
            return Launched(duration=self.work.duration, thread=nothing, time=nothing)
        known = self.call != NONE
        return Launched(
            duration=self.work.duration,
            thread=np.where(known, self.calls.thread[self.call], NONE),
            time=np.where(known, self.calls.start[self.call], NONE),
        )

    @cached_property
    def asked(self) -> Launched:
        """As `launched`; else when and where the operator began that the source names for the work.

        That is, where no call was recorded, or where its thread was in no range and that operator was open.
        """
        if self.begun is None:
            return self.launched
        mine, theirs = self.launched, self.begun
        instead = theirs.thread != NONE
        if self.ranges is not None and self.nested is not None:
            inside = owners(mine, self.ranges.push_pop, self.nested).direct != NONE
            was_open = (theirs.time <= mine.time) & (mine.time < theirs.until)
            instead &= (mine.thread == NONE) | (~inside & was_open)
        return Launched(
            duration=self.work.duration,
            thread=np.where(instead, theirs.thread, mine.thread),
            time=np.where(instead, theirs.time, mine.time),
        )

    @cached_property
    def nested(self) -> Nest | None:
        """How push/pop ranges lie within one another."""
        return None if self.ranges is None else nest(self.ranges.push_pop)

    @cached_property
    def step_rows(self) -> dict[int, Ints]:
        """Process → the rows of its steps, for those that have some."""
        if self.ranges is None:
            return {}
        processes = np.unique(self.ranges.push_pop.thread >> 24).tolist()
        found = {process: steps_of(self.ranges.push_pop, process) for process in processes}
        return {process: rows for process, rows in found.items() if len(rows)}

    @cached_property
    def step(self) -> Ints:
        """For each activity the number, within its process, of the step that launched it; `NONE` outside of steps."""
        found = np.full(len(self.work), NONE, dtype=np.int64)
        for process, rows in self.step_rows.items():
            assert self.ranges is not None
            mine = np.flatnonzero((self.asked.thread != NONE) & (self.asked.thread >> 24 == process))
            found[mine] = step_at(self.ranges.push_pop, rows, self.asked.time[mine])
        return found

    @property
    def steps(self) -> int:
        """Steps of all processes."""
        return sum(len(rows) for rows in self.step_rows.values())

    def range_times(self) -> list[NameTime]:
        """Host times of ranges, largest total first."""
        found = []
        if self.ranges is not None:
            for style, ranges in ((PUSH_POP, self.ranges.push_pop), ("startend", self.ranges.start_end)):
                named = ~ranges.has_style(OPERATOR)
                keys = [
                    (name, ranges.style(code) if ranges.styles else style) for code, name in enumerate(ranges.names)
                ]
                found += name_times(ranges.name[named], (ranges.end - ranges.start)[named], keys)
        return sorted(found, key=lambda row: (-row.total_ns, row.name, row.kind))

    def projection(self) -> Projection | None:
        """GPU time by range; None without ranges, or where nothing says what launched what."""
        if self.ranges is None or self.nested is None or (self.calls is None and self.begun is None):
            return None
        return project(self.asked, self.ranges.push_pop, self.ranges.start_end, self.nested)

    def launches(self) -> list[LaunchCost] | None:
        """What launching cost; None where no calls were recorded."""
        if self.calls is None:
            return None
        calls = self.calls
        return launch_costs(self.call, calls.name, calls.start, calls.end, calls.names, self.work.start)

    def step_times(self, device: int, on_device: Mask, cover: Coverage) -> list[StepTime]:
        """The steps of every process that has work on a device."""
        found = []
        for process, rows in self.step_rows.items():
            assert self.ranges is not None
            mine = on_device & (self.asked.thread >> 24 == process) & (self.asked.thread != NONE)
            start, end = self.work.start[mine], self.work.end[mine]
            found += step_times(self.ranges.push_pop, rows, device, cover, self.step[mine], start, end)
        return found

    def idle(self, on_device: Mask, cover: Coverage) -> Idle:
        """Why a device stood idle."""
        rows = np.flatnonzero(on_device)
        launched = np.where(self.call[rows] != NONE, self.launched.time[rows], NONE)
        found = gaps(cover.busy, self.work.start[rows], launched)
        thread = self.launched.thread[rows][found.next]
        call = None if self.calls is None else _open_calls(self.calls, thread, found.middle)
        names = (list(self.calls.names) if self.calls else [], list(self.ranges.push_pop.names) if self.ranges else [])
        within = self._open_ranges(thread, found.middle)
        waits = self._waits(found, thread, launched[found.next], self.call[rows], self.work.start[rows])
        told = idle(found, launched[found.next], call, within, names, waits)
        edges_ns = int(self.work.end[rows].max() - self.work.start[rows].min()) - length(cover.busy) - told.idle_ns
        return (
            told
            if not edges_ns
            else msgspec.structs.replace(  # work without length begins or ends the span
                told, idle_ns=told.idle_ns + edges_ns, unknown_ns=told.unknown_ns + edges_ns
            )
        )

    def _waits(self, found: Gaps, thread: Ints, launched: Ints, call: Ints, starts: Ints) -> Waits:
        """What the launching threads did in gaps before they launched; `call` and `starts` are of the device's work."""
        size = len(found.start)
        data, communication, synchronisation = (np.zeros(size, dtype=np.int64) for _ in range(3))
        until = np.clip(np.where(launched == NONE, found.start, launched), found.start, found.end)
        for one in np.unique(thread[thread != NONE]).tolist():
            mine = np.flatnonzero(thread == one)
            begin, end = found.start[mine], until[mine]
            loading = self._named(one, DATA)
            talking = without(self._named(one, COMMUNICATION), loading)
            waiting = without(self._waiting(one), together(loading, talking))
            data[mine], communication[mine], seen = (
                covered_before(part, end) - covered_before(part, begin) for part in (loading, talking, waiting)
            )
            ran_dry = covers(self._waiting(one), begin)
            rest = end - begin - data[mine] - communication[mine]
            synchronisation[mine] = np.where(ran_dry, rest, seen)
        first = np.full(1 + int(call.max(initial=0)), np.iinfo(np.int64).max, dtype=np.int64)
        known = call != NONE
        np.minimum.at(first, call[known], starts[known])
        of_next = call[found.next]
        inside = (of_next != NONE) & (first[np.maximum(of_next, 0)] < found.start)
        return Waits(
            data=data,
            communication=communication,
            synchronisation=synchronisation,
            in_graph=np.where(inside, found.end - until, 0),
        )

    def _named(self, thread: int, pattern: str) -> Intervals:
        """When a thread was in a range whose name matches."""
        if self.ranges is None or thread not in self.ranges.push_pop.threads:
            return EMPTY
        ranges, rows = self.ranges.push_pop, self.ranges.push_pop.threads[thread]
        mine = self._matching[pattern][rows]
        return union(ranges.start[rows][mine], ranges.end[rows][mine])

    @cached_property
    def _matching(self) -> dict[str, Mask]:
        assert self.ranges is not None
        return {pattern: self.ranges.push_pop.is_named(pattern) for pattern in (DATA, COMMUNICATION)}

    def _waiting(self, thread: int) -> Intervals:
        """When a thread was in a call that waits for a device."""
        if self.calls is None:
            return EMPTY
        rows = self.waiting_calls(thread)
        return union(self.calls.start[rows], self.calls.end[rows])

    def waiting_calls(self, thread: int) -> Ints:
        """Rows of a thread's calls that wait for a device."""
        assert self.calls is not None
        rows = np.flatnonzero(self.calls.thread == thread)
        return rows[self._waits_for_device[rows]]

    @cached_property
    def _waits_for_device(self) -> Mask:
        """Calls made for waiting, and copies that returned after they were done, as those of pageable memory do."""
        assert self.calls is not None
        names = self.calls.names
        made_for_it, copies = (
            np.array([bool(re.search(pattern, name)) for name in names], dtype=bool)
            for pattern in (SYNCHRONISING, COPYING)
        )
        if not len(names):
            return np.zeros(0, dtype=bool)
        done = np.full(len(self.calls), np.iinfo(np.int64).max, dtype=np.int64)
        copied = np.flatnonzero((self.call != NONE) & copies[self.calls.name][self.call])
        done[self.call[copied]] = self.work.end[copied]
        found: Mask = made_for_it[self.calls.name] | (copies[self.calls.name] & (done <= self.calls.end))
        return found

    def _open_ranges(self, thread: Ints, times: Ints) -> Ints:
        """The name's code of the innermost range at each time: on the thread, else on its process's main thread."""
        found = np.full(len(times), NONE, dtype=np.int64)
        if self.ranges is None or self.nested is None:
            return found
        ranges = self.ranges.push_pop
        main = main_threads(ranges)
        for one in np.unique(thread[thread != NONE]).tolist():
            mine = np.flatnonzero(thread == one)
            rows = self._told(innermost(ranges, self.nested.parent, one, times[mine]))
            if one >> 24 in main:
                by_main = self._told(innermost(ranges, self.nested.parent, main[one >> 24], times[mine]))
                rows = np.where(rows >= 0, rows, by_main)
            found[mine] = np.where(rows >= 0, ranges.name[rows], NONE) if len(ranges) else NONE
        return found

    def _told(self, rows: Ints) -> Ints:
        """Of the rows the innermost ranges that somebody named, not operators or modules."""
        return np.where(rows >= 0, self._by_name[rows], NONE) if len(self._by_name) else rows

    @cached_property
    def _by_name(self) -> Ints:
        assert self.ranges is not None
        assert self.nested is not None
        ranges = self.ranges.push_pop
        return nearest(self.nested.parent, ~ranges.has_style(OPERATOR, MODULE))


def _open_calls(calls: Calls, thread: Ints, times: Ints) -> Ints:
    """The name's code of the outermost call that a thread is in at each time; `NONE` in none."""
    found = np.full(len(times), NONE, dtype=np.int64)
    for one in np.unique(thread[thread != NONE]).tolist():
        of_thread = np.flatnonzero(calls.thread == one)
        of_thread = of_thread[np.argsort(calls.start[of_thread], kind="stable")]
        reach = np.maximum.accumulate(calls.end[of_thread])
        is_last = calls.end[of_thread] == reach
        furthest = np.maximum.accumulate(np.where(is_last, np.arange(len(of_thread)), 0))
        mine = np.flatnonzero(thread == one)
        at = np.searchsorted(calls.start[of_thread], times[mine], side="right") - 1
        inside = (at >= 0) & (reach[np.maximum(at, 0)] > times[mine])
        found[mine[inside]] = calls.name[of_thread[furthest[at[inside]]]]
    return found
