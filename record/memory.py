"""`memory.rank<R>.jsonl`: what a rank's tensors held at the peak of one step, by what they are."""

from pathlib import Path

import msgspec

from .jsonl import read_jsonl


class MemoryDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes at the peak of one step, whose parts sum to it: of storages on CPUs, of the allocator's blocks on CUDA."""

    step: int
    rank: int
    peak_bytes: int
    """Of all that was there before the step or came within it; on CPUs, as far as operators and FSDP make it."""
    parameters_bytes: int
    """Shards, and weights gathered in high precision; of a wrapped weight what is in it."""
    gradients_bytes: int
    """What the optimizer is given; gradients not yet reduced over ranks count as the rest."""
    optimizer_bytes: int
    """The optimizer's state."""
    fp8_bytes: int
    """Tensors of an FP8 dtype, weights gathered in FP8 included."""
    activations_bytes: int
    """What autograd keeps for the backward pass; what a recomputed forward makes counts as the rest."""
    rest_bytes: int


def read_memory(path: Path) -> list[MemoryDetail]:
    """All whole lines of a memory file, in file order."""
    return list(read_jsonl(path, MemoryDetail))
