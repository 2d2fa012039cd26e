"""torch.profiler over chosen steps: wait, warm up, record, and write one trace per window and rank.

A trace is exported as plain JSON on the training thread (the profiler's own work), compressed on another, and appears
under its name only when whole. Steps are numbered from 1, in the trace (`ProfilerStep#7`) as in the step files.
"""

import logging
import shutil
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from torch.profiler import ProfilerAction, profile, supported_activities

from ..record.run import RunDir
from ..record.units import show_bytes
from .guard import Part
from .schedule import Schedule
from .trace_file import pack

_log = logging.getLogger("stepscope.profiling")

LONGEST_UNTRIED = 8
"""Steps of the longest window that is recorded in one go before it is known how many bytes a step takes."""

FREE_SHARE = 0.5
"""The share of the free disk that the next window may take, uncompressed."""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What torch.profiler records beside names and times."""

    shapes: bool = True
    memory: bool = True
    stacks: bool = False
    modules: bool = False


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
        recorded: Recorded | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        """The first step to come is the one after `after`.

        A window that would bring this rank's traces over `limit_bytes` (compressed), or fill half of the free disk,
        is cut, judged by the bytes a step took in the windows before it. Where a long window is the first, its first
        step is written as a trace of its own, and the rest is judged by that.
        """
        self._run, self._rank, self._schedule = run, rank, schedule.probing(LONGEST_UNTRIED)
        self._recorded = recorded or Recorded()
        self._limit_bytes = limit_bytes
        self._part = Part("torch.profiler")
        self._writing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stepscope-trace")
        self._step = after + 1
        self._first = after + 1
        """The step that opened the latest window."""
        self._plain_bytes = self._packed_bytes = self._steps_written = 0
        self._judged: int | None = None
        self._profiler: profile | None = None

    @property
    def recording(self) -> bool:
        """Whether the profiler is on during the coming step, warm-up included: such a step is not a timed one."""
        return self._part.works and self._schedule.action(self._step) != "NONE"

    def step(self, number: int) -> None:
        """Step `number` has ended."""
        self._step = number + 1
        if self._profiler and self._part.works:
            with self._guarded():
                self._cut_to_fit(self._schedule.prepares(self._step))
                self._profiler.step()  # a window that has ended is exported in here
                if self._schedule.opens(self._step):  # at once after another: it could not be judged before
                    self._cut_to_fit(self._step, least=2)
        if self._schedule.opens(self._step):
            self._first = self._step

    def __enter__(self) -> Self:
        """Start with the step after `after`."""
        with self._guarded():
            profiler = profile(
                activities=supported_activities(),
                schedule=lambda step: ProfilerAction[self._schedule.action(step)],
                on_trace_ready=self._export,
                record_shapes=self._recorded.shapes,
                profile_memory=self._recorded.memory,
                with_stack=self._recorded.stacks,
                with_modules=self._recorded.modules,
            )
            profiler.step_num = self._step
            first: Any = ProfilerAction[self._schedule.action(self._step)]
            profiler.current_action = first  # which it has looked up for a step 0
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

    def _cut_to_fit(self, first: int | None, *, least: int = 0) -> None:
        """Judge the span that begins at `first`, once: before its warm-up, or on opening, when 2 are the `least`."""
        if first is None or first == self._judged or not self._steps_written:
            return
        self._judged = first
        self._writing.submit(lambda: None).result()  # until the traces before it have their compressed size
        asked = self._schedule.steps_of(first)
        free = FREE_SHARE * shutil.disk_usage(self._run.path).free
        fits = int(free / (self._plain_bytes / self._steps_written))
        if self._limit_bytes is not None and self._packed_bytes:
            left = self._limit_bytes - self._packed_bytes
            fits = min(fits, int(left / (self._packed_bytes / self._steps_written)))
        fits = max(least, fits)
        if fits < asked:
            self._schedule = self._schedule.cut(first, fits)
            _log.warning(
                "the window at step %d records %d of %d steps: a step takes %s, and the limit or the disk has no room",
                first,
                fits,
                asked,
                show_bytes(self._plain_bytes / self._steps_written),
            )

    def _export(self, profiler: profile) -> None:
        trace = self._run.trace_path(self._rank, self._first)
        plain = trace.with_name(f".{trace.name.removesuffix('.gz')}.part")
        profiler.export_chrome_trace(str(plain))
        if not plain.is_file():  # the profiler's writer fails without a word, and leaves what it has
            plain.with_name(f"{plain.name}.tmp").unlink(missing_ok=True)
            raise OSError(f"{trace.name} could not be written; is the disk full, or the folder gone?")
        self._plain_bytes += plain.stat().st_size
        self._steps_written += max(1, self._step - self._first)
        self._writing.submit(self._pack, plain, trace)

    def _pack(self, plain: Path, trace: Path) -> None:
        with self._part.guarded():
            pack(plain, trace)
            self._packed_bytes += trace.stat().st_size
