"""FP8 statistics of a training loop: `before(n)` and `after(n)` around each optimizer step, on every rank.

    numerics = Numerics(model, path, every=50, rank=rank)
    for step in range(1, steps + 1):
        numerics.before(step)
        ...                         # forward, backward, update
        numerics.after(step)

Only steps that are due have hooks in the model; they change no value. The first rank looks at its own input and
grad_output, which each rank scales by itself, so that nothing need be sent. It looks at whole weights, as they are
gathered; where they are gathered in FP8, ranks count their shards together (`sharded_weights`). Of several
micro-batches the first counts, and a forward pass that is recomputed does not count again.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from ..record.jsonl import JsonlWriter
from ..record.numerics import Operand, OperandStatistics
from .float8_casts import Casts, float8_layers
from .guard import Part
from .sharded_weights import ShardedWeights
from .tally import Counted, Rounded, statistics_of, tally

_OPERANDS: tuple[Operand, ...] = get_args(Operand)
_log = logging.getLogger("stepscope.profiling")


class Numerics:
    """Statistics of every float8 linear layer in every `every`-th step, as lines of a file.

    A failure ends the statistics, never the training.
    """

    def __init__(
        self,
        model: nn.Module,
        path: Path,
        *,
        every: int,
        rank: int = 0,
        left_out: Callable[[int], bool] = lambda step: False,
    ) -> None:
        """Create it before the first step. `left_out` says of a step that it takes no statistics; the next may.

        All ranks must agree on it, as on `every`.
        """
        self._path, self._every, self._rank, self._left_out = path, every, rank, left_out
        self._part = Part("the FP8 statistics")
        self._layers: list[tuple[str, nn.Linear, Casts]] = []
        with self._part.guarded():
            self._layers = list(float8_layers(model))
        self._sharded = ShardedWeights(model, self._part)
        self._handles: list[Any] = []
        self._found: dict[tuple[str, Operand], Counted] = {}
        self._seen: set[tuple[str, Operand]] = set()
        if not self._layers and self._part.works and rank == 0:
            _log.warning("no layer computes in FP8, so there are no FP8 statistics")

    def due(self, step: int) -> bool:
        """Whether statistics are taken in `step`: every N-th, or the first after it that is not left out."""
        if not self._layers or self._left_out(step):
            return False
        while step % self._every and step > 1 and self._left_out(step - 1):
            step -= 1
        return step % self._every == 0

    def before(self, step: int) -> bool:
        """Step `step` is about to begin. Answers whether it takes statistics on this rank: such a step is not timed."""
        if not self.due(step):
            return False
        together = self._sharded.works
        if together:
            for name, counted in self._sharded.counted().items():
                self._found[name, "weight"] = counted
        if self._rank == 0 and self._part.works:
            with self._part.guarded():
                self._hook()
            return True
        return together

    def after(self, step: int) -> None:
        """Step `step` has ended: write what was found, leave the model as it was."""
        hooked = bool(self._handles)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        if hooked and self._part.works:
            with self._part.guarded():
                self._write(step)
        self._found.clear()
        self._seen.clear()

    def _hook(self) -> None:
        for name, module, casts in self._layers:
            self._handles.append(module.register_forward_pre_hook(self._before_forward(name, casts)))
            self._handles.append(module.register_forward_hook(self._after_forward(name, casts)))

    def _before_forward(self, name: str, casts: Casts) -> Callable[..., None]:
        def look(module: Any, arguments: tuple[torch.Tensor, ...]) -> None:
            self._count(name, "input", lambda: casts.input(arguments[0].detach()))
            self._count(name, "weight", lambda: casts.weight(module.weight))

        return look

    def _after_forward(self, name: str, casts: Casts) -> Callable[..., None]:
        def look(_: Any, __: Any, output: torch.Tensor) -> None:
            if output.requires_grad:
                output.register_hook(
                    lambda gradient: self._count(name, "grad_output", lambda: casts.grad_output(gradient))
                )

        return look

    def _count(self, name: str, operand: Operand, cast: Callable[[], Rounded | None]) -> None:
        """Count an operand the first time that it comes by in a step."""
        if (name, operand) in self._seen or not self._part.works:
            return
        self._seen.add((name, operand))
        with self._part.guarded(), torch.no_grad():
            if rounded := cast():
                dtype = str(rounded.data.dtype).removeprefix("torch.")
                self._found[name, operand] = Counted(tally(rounded), dtype, rounded.granularity)

    def _write(self, step: int) -> None:
        """One wait for the device, then one line for each operand."""
        if not self._seen:
            raise RuntimeError("no FP8 layer ran in the step as Python; does torch.compile run the model?")
        order = {name: index for index, (name, _, _) in enumerate(self._layers)}
        found = sorted(self._found.items(), key=lambda item: (order[item[0][0]], _OPERANDS.index(item[0][1])))
        tallies = [counted.tally for _, counted in found]
        numbers = torch.stack([torch.cat(one) for one in tallies]).tolist()
        with JsonlWriter(self._path) as file:
            for ((layer, operand), counted), row in zip(found, numbers, strict=True):
                cut = len(counted.tally.sums)
                file.write(
                    OperandStatistics(
                        step=step,
                        layer=layer,
                        operand=operand,
                        dtype=counted.dtype,
                        granularity=counted.granularity,
                        **statistics_of(row[:cut], row[cut:]),
                    )
                )
