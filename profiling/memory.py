"""What one step's memory is made of: counted by tensors on CPUs, by the allocator's blocks on CUDA.

`before(n)` and `after(n)` stand around each optimizer step; the step that was asked for is followed, and takes longer.
On CUDA it also leaves `memory.rank<R>.pickle` with the allocator's history of the step (for pytorch.org/memory_viz), as
does a step that runs out of memory from then on.
"""

import pickle
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..record.jsonl import JsonlWriter
from ..record.memory import MemoryDetail
from ..record.run import RunDir
from .cuda_memory import peak_in
from .guard import Part
from .storages import Ledger

_MOST_EVENTS = 200_000
"""Allocations and frees that CUDA's history holds, the latest of them."""


class MemoryWatch:
    """Follows the memory of one step on one rank. A failure ends it, never the training."""

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, run: RunDir, rank: int, *, step: int
    ) -> None:
        """`step` is the one to follow."""
        self._model, self._optimizer, self._run, self._rank, self._step = model, optimizer, run, rank, step
        self._part = Part("the account of memory")
        self._ledger: Ledger | None = None
        self._handles: list[Any] = []

    def before(self, step: int) -> bool:
        """Step `step` is about to begin. Answers whether it is followed: such a step is not timed."""
        if step != self._step:
            return False
        with self._part.guarded():
            if torch.cuda.is_available():
                torch.cuda.memory._record_memory_history(max_entries=_MOST_EVENTS)
                torch._C._cuda_attach_out_of_memory_observer(  # type: ignore[attr-defined]
                    lambda *_: self._out_of_memory()
                )
            self._follow()
        return True

    def after(self, step: int) -> None:
        """Step `step` has ended."""
        if step != self._step:
            return
        for handle in self._handles:
            handle.remove()
        with self._part.guarded():
            if self._ledger:
                self._ledger.__exit__(None, None, None)
                if self._part.works:
                    self._write(self._ledger)
        self._ledger = None

    def _follow(self) -> None:
        ledger = Ledger(self._part)
        ledger.note([*self._model.parameters()], "parameters")
        ledger.note([*self._model.buffers()], "rest")
        ledger.note([parameter.grad for parameter in self._model.parameters()], "gradients")
        ledger.note(_state(self._optimizer), "optimizer")

        def gathered(module: nn.Module, _: Any) -> None:
            ledger.note([*module.parameters(recurse=False)], "parameters")

        def reduced(*_: Any) -> None:
            ledger.note([parameter.grad for parameter in self._model.parameters()], "gradients")

        self._handles = [module.register_forward_pre_hook(gathered) for module in self._model.modules()]
        self._handles.append(self._optimizer.register_step_pre_hook(reduced))
        ledger.__enter__()
        self._ledger = ledger

    def _write(self, ledger: Ledger) -> None:
        ledger.note(_state(self._optimizer), "optimizer")
        peak_bytes, held = ledger.peak_bytes, ledger.at_peak()
        if torch.cuda.is_available():
            snapshot = self._snapshot()
            torch.cuda.memory._record_memory_history(enabled=None)
            device = torch.cuda.current_device()
            peak_bytes, held = peak_in(snapshot, device, ledger.placed, end_ns=time.time_ns())
        detail = {f"{kind}_bytes": size for kind, size in held.items()}
        with JsonlWriter(self._path) as file:
            file.write(MemoryDetail(step=self._step, rank=self._rank, peak_bytes=peak_bytes, **detail))

    @property
    def _path(self) -> Path:
        return self._run.memory_detail_path(self._rank)

    def _out_of_memory(self) -> None:
        with self._part.guarded():
            self._snapshot()

    def _snapshot(self) -> dict[str, Any]:
        """Take the allocator's snapshot and leave it in the run's folder."""
        snapshot: dict[str, Any] = torch.cuda.memory._snapshot()
        with self._run.memory_path(self._rank).open("wb") as file:
            pickle.dump(snapshot, file)
        return snapshot


def _state(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [list(state.values()) for state in optimizer.state.values()]
