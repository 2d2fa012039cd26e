"""Where a step's time goes: each phase is timed and shown to the profilers as a range of the same name.

On a GPU a phase is the time between two CUDA events on its stream, in which the device may also have waited; on a CPU
it is host time. The phases need not sum to the step: agreeing on the loss over ranks lies outside them.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol

import torch

from ..profiling.ranges import region


class Phases(Protocol):
    """Something that is told of a step's phases."""

    def phase(self, name: str, /) -> AbstractContextManager[None]:
        """What happens inside is part of `name`."""


class NoClock:
    """Times nothing and names no range: the step alone, for measuring what the clock costs."""

    def phase(self, _: str, /) -> AbstractContextManager[None]:
        """Does nothing."""
        return nullcontext()


class StepClock:
    """The times of one step. `durations_ns` is to be read after the device has finished the step."""

    def __init__(self, device: torch.device) -> None:
        """Starts the step's time."""
        self._on_gpu = device.type == "cuda"
        self._spans_ns: dict[str, int] = defaultdict(int)
        self._events: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self.start_ns = time.time_ns()
        self._start = time.perf_counter_ns()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what happens inside as part of `name`; the same name may come again."""
        with region(name):
            if self._on_gpu:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                yield
                end.record()
                self._events.append((name, begin, end))
            else:
                begin_ns = time.perf_counter_ns()
                yield
                self._spans_ns[name] += time.perf_counter_ns() - begin_ns

    def elapsed_ns(self) -> int:
        """Host time since the step began."""
        return time.perf_counter_ns() - self._start

    def durations_ns(self) -> dict[str, int]:
        """Phase → time, summed over its occurrences."""
        for name, begin, end in self._events:
            self._spans_ns[name] += round(begin.elapsed_time(end) * 1e6)
        self._events.clear()
        return dict(self._spans_ns)
