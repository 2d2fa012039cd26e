"""The part of a pass under Nsight Systems that is recorded, opened and closed from inside the training process."""

from typing import Self

import torch

from .guard import Part
from .schedule import Span

VARIABLE = "STEPSCOPE_NSYS_WINDOW"
"""Tells workers that nsys watches them, and the steps to record: `9:11`."""


class NsysWindow:
    """cudaProfilerStart before the first step of a span and -Stop after its last; a no-op without CUDA.

    nsys needs `-c cudaProfilerApi` to heed them. `step(n)` is due after every step n, as for `TorchWindow`.
    """

    def __init__(self, span: Span, *, cuda: bool) -> None:
        """`span` is recorded; `cuda` says whether there is a device to start it on."""
        self._first, self._last = span
        self._part = Part("the window of nsys")
        self._cuda = cuda
        self._step = 1
        self._open = False

    @property
    def recording(self) -> bool:
        """Whether the coming step is recorded."""
        return self._first <= self._step <= self._last

    def step(self, number: int) -> None:
        """Step `number` has ended."""
        self._step = number + 1
        self._switch()

    def __enter__(self) -> Self:
        """Start with step 1."""
        self._switch()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the window if training ended in it."""
        self._step = self._last + 1
        self._switch()

    def _switch(self) -> None:
        if self.recording == self._open:
            return
        self._open = self.recording
        if self._cuda and self._part.works:
            with self._part.guarded():
                torch.cuda.synchronize()  # what was launched before the window is not in it, what was in it is
                if self._open:
                    torch.cuda.profiler.start()
                else:
                    torch.cuda.profiler.stop()
