"""`steps.rank<R>.jsonl`: one line per optimizer step and rank.

Durations are host wall time around work that has finished (the step ends with the loss read back), in ns. Losses are
means over the unmasked tokens of **all** ranks; token counts are of this rank.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from .jsonl import read_jsonl

Mark = Literal["first", "profiled", "compiling", "numerics", "memory", "eval", "checkpoint"]
"""Why a step is left out of throughput statistics; an unmarked step is a timed one."""


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One optimizer step as one rank saw it. None = not measured."""

    step: int
    """Counted from 1."""
    rank: int
    start_ns: int
    """Unix time at the start of the step, ns."""
    duration_ns: int
    """From the request for data to the optimizer's end; eval, checkpoint and profiler work is not in it."""
    data_ns: int | None = None
    forward_ns: int | None = None
    backward_ns: int | None = None
    optimizer_ns: int | None = None
    eval_ns: int | None = None
    checkpoint_ns: int | None = None
    profiler_ns: int | None = None
    loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    tokens: int | None = None
    """Unmasked tokens (those that count in the loss) of this rank."""
    positions: int | None = None
    """All positions of this rank, padding and masked ones included."""
    memory_allocated_bytes: int | None = None
    """Peak of the CUDA allocator within the step."""
    memory_reserved_bytes: int | None = None
    rss_bytes: int | None = None
    """Resident memory of the process at the end of the step."""
    eval_loss: float | None = None
    eval_perplexity: float | None = None
    eval_accuracy: float | None = None
    marks: tuple[Mark, ...] = ()


def read_steps(path: Path) -> list[Step]:
    """All whole lines of a step file, in file order."""
    return list(read_jsonl(path, Step))


def timed(steps: Iterable[Step]) -> list[Step]:
    """The steps that throughput may be computed from: those without a mark."""
    return [step for step in steps if not step.marks]
