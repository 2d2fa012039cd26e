"""The part of a pass under Nsight Systems that is recorded, opened and closed from inside the training process."""

from contextlib import ExitStack
from typing import Self

import torch

from .guard import Part
from .ranges import fsdp_phases
from .schedule import Span

VARIABLE = "STEPSCOPE_NSYS_WINDOW"
"""Tells workers that nsys watches them, and the steps to record: `9:11`."""


class NsysWindow:
    """cudaProfilerStart before the first step of a span and -Stop after its last; a no-op without CUDA.

    nsys needs `-c cudaProfilerApi` to heed them. `step(n)` is due after every step n, as for `TorchWindow`.
    """

    def __init__(self, span: Span, *, cuda: bool, operators: bool = False) -> None:
        """`span` is recorded; `cuda` says whether there is a device to start it on.

        With `operators`, each of PyTorch's operators is an NVTX range within the span, with autograd's sequence number
        (`aten::mm, seq = 7`), by which a backward kernel can be told from the forward operator that caused it.
        """
        self._first, self._last = span
        self._part = Part("the window of nsys")
        self._cuda = cuda
        self._operators = torch.autograd.profiler.emit_nvtx(enabled=operators)
        self._phases = ExitStack()
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
        """Start with step 1. FSDP2's phases are ranges from here on."""
        with self._part.guarded():
            self._phases.enter_context(fsdp_phases())
        self._switch()
        return self

    def __exit__(self, *_: object) -> None:
        """Close the window if training ended in it."""
        self._step = self._last + 1
        self._switch()
        self._phases.close()

    def _switch(self) -> None:
        if self.recording == self._open:
            return
        self._open = self.recording
        if self._cuda and self._part.works:
            with self._part.guarded():
                torch.cuda.synchronize()  # what was launched before the window is not in it, what was in it is
                if self._open:
                    torch.cuda.profiler.start()
                    self._operators.__enter__()
                else:
                    self._operators.__exit__(None, None, None)
                    torch.cuda.profiler.stop()
