"""torch.profiler over chosen steps: wait, warm up, record, and write one trace per window and rank.

A trace is exported as plain JSON on the training thread (the profiler's own work), compressed on another, and appears
under its name only when whole. Steps are numbered from 1, in the trace (`ProfilerStep#7`) as in the step files.
"""

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from torch.profiler import ProfilerAction, profile, supported_activities

from ..record.run import RunDir
from .guard import Part
from .trace_file import pack


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """`repeat` windows, each of `wait` steps without the profiler, `warmup` steps unrecorded, `active` recorded."""

    wait: int
    warmup: int
    active: int
    repeat: int = 1

    def action(self, step: int) -> ProfilerAction:
        """What the profiler does during step `step`, counted from 1."""
        cycle, at = divmod(max(step, 1) - 1, self.wait + self.warmup + self.active)
        if cycle >= self.repeat or at < self.wait:
            return ProfilerAction.NONE
        if at < self.wait + self.warmup:
            return ProfilerAction.WARMUP
        last = at == self.wait + self.warmup + self.active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    def opens(self, step: int) -> bool:
        """Whether `step` is the first recorded one of a window."""
        cycle, at = divmod(step - 1, self.wait + self.warmup + self.active)
        return cycle < self.repeat and at == self.wait + self.warmup


class TorchWindow:
    """torch.profiler on one rank. `step(n)` is due after every step n; leaving the context ends an open window.

    An open window is written with the steps it has. A failure of the profiler ends the capture, never the training.
    """

    def __init__(
        self,
        run: RunDir,
        rank: int,
        schedule: Schedule,
        *,
        after: int = 0,
        shapes: bool = True,
        memory: bool = True,
        stacks: bool = False,
    ) -> None:
        """The schedule begins after step `after`; the rest are record_shapes, profile_memory and with_stack."""
        self._run, self._rank, self._schedule = run, rank, schedule
        self._shapes, self._memory, self._stacks = shapes, memory, stacks
        self._part = Part("torch.profiler")
        self._writing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stepscope-trace")
        self._after = after
        self._step = after + 1
        self._first = after + 1
        """The step that opened the latest window."""
        self._profiler: profile | None = None

    @property
    def recording(self) -> bool:
        """Whether the profiler is on during the coming step, warm-up included: such a step is not a timed one."""
        return self._part.works and self._action(self._step) != ProfilerAction.NONE

    def step(self, number: int) -> None:
        """Step `number` has ended."""
        self._step = number + 1
        if self._profiler and self._part.works:
            with self._guarded():
                self._profiler.step()  # a window that has ended is exported in here
        if self._schedule.opens(self._step - self._after):
            self._first = self._step

    def __enter__(self) -> Self:
        """Start with the step after `after`."""
        with self._guarded():
            profiler = profile(
                activities=supported_activities(),
                schedule=self._action,
                on_trace_ready=self._export,
                record_shapes=self._shapes,
                profile_memory=self._memory,
                with_stack=self._stacks,
            )
            profiler.step_num = self._step
            profiler.start()
            self._profiler = profiler
        return self

    def __exit__(self, *_: object) -> None:
        """Write the window that is open, if one is, and wait until every trace is on disk."""
        if self._profiler and self._part.works:
            with self._guarded():
                self._profiler.stop()
        self._writing.shutdown()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        with self._part.guarded(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*Profiler clears events at the end of each cycle")
            yield

    def _action(self, step: int) -> ProfilerAction:
        return self._schedule.action(step - self._after)

    def _export(self, profiler: profile) -> None:
        trace = self._run.trace_path(self._rank, self._first)
        plain = trace.with_name(f".{trace.name.removesuffix('.gz')}.part")
        profiler.export_chrome_trace(str(plain))
        if not plain.is_file():  # the profiler's writer fails without a word, and leaves what it has
            plain.with_name(f"{plain.name}.tmp").unlink(missing_ok=True)
            raise OSError(f"{trace.name} could not be written; is the disk full, or the folder gone?")
        self._writing.submit(self._pack, plain, trace)

    def _pack(self, plain: Path, trace: Path) -> None:
        with self._part.guarded():
            pack(plain, trace)
