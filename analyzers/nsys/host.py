"""The host's side of an export: which call launched what, in which range and step, and what the host did meanwhile."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..activities import NONE, Activities, Ints, Mask
from ..breakdown import Coverage, NameTime, name_times
from ..gaps import Idle, gaps, idle
from ..launches import LaunchCost, launch_costs
from ..nesting import Nest, innermost, main_threads, nest
from ..projection import Launched, Projection, project
from ..steps import StepTime, step_at, step_times, steps_of
from .calls import Calls, launched_by, read_calls
from .columns import Rejected
from .export import Export
from .nvtx import Nvtx, read_nvtx


@dataclass(frozen=True)
class Host:
    """Calls and ranges beside the device work that they launched."""

    work: Activities
    calls: Calls | None
    nvtx: Nvtx | None

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
    def nested(self) -> Nest | None:
        """How push/pop ranges lie within one another."""
        return None if self.nvtx is None else nest(self.nvtx.push_pop)

    @cached_property
    def step_rows(self) -> dict[int, Ints]:
        """Process → the rows of its steps, for those that have some."""
        if self.nvtx is None:
            return {}
        processes = np.unique(self.nvtx.push_pop.thread >> 24).tolist()
        found = {process: steps_of(self.nvtx.push_pop, process) for process in processes}
        return {process: rows for process, rows in found.items() if len(rows)}

    @cached_property
    def step(self) -> Ints:
        """For each activity the number, within its process, of the step that launched it; `NONE` outside of steps."""
        found = np.full(len(self.work), NONE, dtype=np.int64)
        for process, rows in self.step_rows.items():
            assert self.nvtx is not None
            mine = np.flatnonzero((self.launched.thread != NONE) & (self.launched.thread >> 24 == process))
            found[mine] = step_at(self.nvtx.push_pop, rows, self.launched.time[mine])
        return found

    @property
    def steps(self) -> int:
        """Steps of all processes."""
        return sum(len(rows) for rows in self.step_rows.values())

    def ranges(self) -> list[NameTime]:
        """Host times of ranges, largest total first."""
        found = []
        if self.nvtx is not None:
            for style, ranges in (("pushpop", self.nvtx.push_pop), ("startend", self.nvtx.start_end)):
                found += name_times(ranges.name, ranges.end - ranges.start, [(name, style) for name in ranges.names])
        return sorted(found, key=lambda row: (-row.total_ns, row.name, row.kind))

    def projection(self) -> Projection | None:
        """GPU time by range; None without ranges or without calls."""
        if self.nvtx is None or self.nested is None or self.calls is None:
            return None
        return project(self.launched, self.nvtx.push_pop, self.nvtx.start_end, self.nested)

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
            assert self.nvtx is not None
            mine = on_device & (self.launched.thread >> 24 == process) & (self.launched.thread != NONE)
            start, end = self.work.start[mine], self.work.end[mine]
            found += step_times(self.nvtx.push_pop, rows, device, cover, self.step[mine], start, end)
        return found

    def idle(self, on_device: Mask, cover: Coverage) -> Idle:
        """Why a device stood idle."""
        rows = np.flatnonzero(on_device)
        launched = np.where(self.call[rows] != NONE, self.launched.time[rows], NONE)
        found = gaps(cover.busy, self.work.start[rows], launched)
        thread = self.launched.thread[rows][found.next]
        call = None if self.calls is None else _open_calls(self.calls, thread, found.middle)
        names = (list(self.calls.names) if self.calls else [], list(self.nvtx.push_pop.names) if self.nvtx else [])
        return idle(found, launched[found.next], call, self._open_ranges(thread, found.middle), names)

    def _open_ranges(self, thread: Ints, times: Ints) -> Ints:
        """The name's code of the innermost range at each time: on the thread, else on its process's main thread."""
        found = np.full(len(times), NONE, dtype=np.int64)
        if self.nvtx is None or self.nested is None:
            return found
        ranges = self.nvtx.push_pop
        main = main_threads(ranges)
        for one in np.unique(thread[thread != NONE]).tolist():
            mine = np.flatnonzero(thread == one)
            rows = innermost(ranges, self.nested.parent, one, times[mine])
            if one >> 24 in main:
                rows = np.where(rows >= 0, rows, innermost(ranges, self.nested.parent, main[one >> 24], times[mine]))
            found[mine] = np.where(rows >= 0, ranges.name[rows], NONE) if len(ranges) else NONE
        return found


def read_host(export: Export, work: Activities, rejected: Rejected) -> Host:
    """The host's side of the device work `work`."""
    return Host(work, read_calls(export, rejected), read_nvtx(export, rejected))


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
