"""The all-gathers that FSDP sends parameters in: their dtype and bytes, and the casts to FP8 before them.

Weights in FP8 beside norms in bf16 travel in one buffer of bytes (`uint8`): that it holds FP8 shows in torchao's casts
just before. A cast with its own search for the largest value (`aten::max`) has a scale computed then and there; without
one the scales were computed before.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from .gemms import granularity_of
from .op_calls import DTYPE_BYTES, FLOAT8, FLOAT8_CAST, Call

_COPY_IN = "fsdp::all_gather_copy_in"
_BASE = "c10d::_allgather_base_"


class Gather(msgspec.Struct, frozen=True, kw_only=True):
    """One all-gather of parameters."""

    rank: int
    dtype: str
    """Of the buffer; `fp8 among bytes` where a buffer of bytes holds FP8 weights."""
    bytes: int
    """Of the gathered buffer, all ranks' parts together."""
    casts: int
    """Tensors cast to FP8 for it."""
    cast_elements: int
    granularities: list[str]
    amaxes: int
    """Largest values searched for between those casts."""
    host_ns: int

    @property
    def has_float8(self) -> bool:
        """Whether weights travel in FP8."""
        return self.dtype in FLOAT8 or self.dtype == "fp8 among bytes"


def gathers_of(rank: int, calls: Sequence[Call]) -> list[Gather]:
    """The all-gathers of parameters of one rank; without FSDP2's own operator all gathers into one tensor."""
    own = any(call.name == _COPY_IN for call in calls)
    casts: dict[tuple[int, int], list[Call]] = defaultdict(list)
    amaxes: dict[tuple[int, int], int] = defaultdict(int)
    found = []
    for call in calls:
        if call.is_gemm:
            casts.pop(call.thread, None)
            amaxes.pop(call.thread, None)
        elif call.name == FLOAT8_CAST:
            casts[call.thread].append(call)
        elif call.name in ("aten::max", "aten::amax"):
            amaxes[call.thread] += 1
        elif call.name == (_COPY_IN if own else _BASE):
            before, searched = casts.pop(call.thread, []), amaxes.pop(call.thread, 0)
            gather = _gather(rank, call, at=1 if own else 0, casts=before, amaxes=searched)
            if gather is not None:
                found.append(gather)
    return found


def _gather(rank: int, call: Call, *, at: int, casts: list[Call], amaxes: int) -> Gather | None:
    shape, dtype = call.shape(at), call.dtype(at)
    if shape is None:
        return None
    elements = 1
    for size in shape:
        elements *= size
    cast = [one.shape(0) or () for one in casts]
    return Gather(
        rank=rank,
        dtype="fp8 among bytes" if dtype == "uint8" and casts else dtype,
        bytes=elements * DTYPE_BYTES.get(dtype, 1),
        casts=len(casts),
        cast_elements=sum(_elements(one) for one in cast),
        granularities=sorted({granularity_of(one.shape(1)) or "untold" for one in casts}),
        amaxes=amaxes if casts else 0,
        host_ns=call.end - call.start,
    )


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
