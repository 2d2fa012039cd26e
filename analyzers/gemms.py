"""Every matrix multiplication of a trace: its sizes, the precision of both operands, what it was for, and its time.

A GEMM is the innermost operator that multiplies, so that wrappers count once. Its operands' precision is that of its
arguments or, where FP8 is emulated, that of the FP8 tensors which torchao turned back into high precision just before.

The role follows from the forward GEMM [m, k] · [k, n] that autograd's sequence number leads to: grad_input is
[m, n] · [n, k], grad_weight [n, m] · [m, k] or its transpose, m padded or not. Without the number (compiled functions
have one for many layers) the sizes of all forward GEMMs are tried. Where both fit, the role is `backward`: cannot tell;
torchao's own function computes grad_input first.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec.structs import replace

from .op_calls import DTYPE_BYTES, FLOAT8, FLOAT8_CAST, FORWARD, SUBCLASS, Call

Role = Literal["forward", "recomputed forward", "grad_input", "grad_weight", "backward"]
Granularity = Literal["tensorwise", "axiswise", "block32"]

Sizes = tuple[int, int, int]
"""m, k, n."""
_TORCHAO_FUNCTION = "matmul_with_hp_or_float8_argsBackward"
_PADDED_TO = 16


UNTOLD = "not told"
"""The dtype of an operand that may have been FP8: emulated in compiled code, it is FP32 when it is multiplied."""


class Operand(msgspec.Struct, frozen=True, kw_only=True):
    """What one operand of a GEMM was. None: the trace does not tell."""

    dtype: str
    granularity: Granularity | None = None
    """What one scale belongs to, of FP8 operands."""
    power_of_2: bool | None = None
    """Whether its scale was rounded to a power of two."""

    @property
    def is_float8(self) -> bool:
        """Whether it has eight bits."""
        return self.dtype in FLOAT8

    def __str__(self) -> str:
        """Such as `e4m3 tensorwise`."""
        return (
            f"{self.dtype} {self.granularity or 'of a granularity that cannot be told'}"
            if self.is_float8
            else self.dtype
        )


class Gemm(msgspec.Struct, frozen=True, kw_only=True):
    """One call: `batch` times [m, k] · [k, n]."""

    rank: int
    call: Call
    batch: int
    sizes: Sizes
    a: Operand
    b: Operand
    emulated: bool
    """Whether its FP8 operands were multiplied in high precision."""
    padded: bool | None
    """Whether FP8 operands went through padding; None where it cannot be told."""
    role: Role
    """`backward`: which of the two gradients cannot be told."""
    forward: "Gemm | None" = None
    """Of a backward GEMM, the forward one of the same layer, where autograd's sequence number tells."""
    layer: str | None = None
    device_ns: int | None = None
    """Sum of the kernels that it launched; None where there are none."""
    kernels: tuple[str, ...] = ()

    @property
    def host_ns(self) -> int:
        """Of the operator on the host, with what it called."""
        return self.call.end - self.call.start

    @property
    def flops(self) -> int:
        """2 · batch · m · k · n."""
        m, k, n = self.sizes
        return 2 * self.batch * m * k * n

    @property
    def bytes(self) -> int:
        """Both operands read once and the product written once, in 16 bits where the operands have no more."""
        m, k, n = self.sizes
        wide = [DTYPE_BYTES.get(operand.dtype, 2) for operand in (self.a, self.b)]
        return self.batch * (m * k * wide[0] + k * n * wide[1] + m * n * max(2, *wide))

    @property
    def is_float8(self) -> bool:
        """Whether both operands are FP8."""
        return self.a.is_float8 and self.b.is_float8

    @property
    def dtype(self) -> str:
        """What it counts as: `fp8`, or the dtype of its operands, such as `bf16`."""
        return (
            "fp8"
            if self.is_float8
            else self.a.dtype
            if self.a.dtype == self.b.dtype
            else f"{self.a.dtype}·{self.b.dtype}"
        )


def gemms_of(rank: int, calls: Sequence[Call]) -> list[Gemm]:
    """The GEMMs of one rank whose shapes were recorded, in the order of `calls`."""
    operands = _operands(calls)
    found: list[Gemm] = []
    for call in calls:
        if not call.is_innermost_gemm:
            continue
        shaped = _sizes(call)
        if shaped is None:
            continue
        a, b, emulated, padded = operands[id(call)]
        found.append(
            Gemm(
                rank=rank, call=call, batch=shaped[0], sizes=shaped[1], a=a, b=b, emulated=emulated, padded=padded,
                role=_direction(call),
            )
        )  # fmt: skip
    return _with_roles(found)


def _sizes(call: Call) -> tuple[int, Sizes] | None:
    """Batch and sizes of a GEMM, from its two matrices."""
    first = 1 if "add" in call.name else 0  # addmm has the bias first
    a, b = call.shape(first), call.shape(first + 1)
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return None
    if call.name == "mkldnn::_linear_pointwise":  # x [..., k], weight [n, k]
        rows = 1
        for size in a[:-1]:
            rows *= size
        return 1, (rows, a[-1], b[0])
    return (a[0] if len(a) == 3 else 1), (a[-2], a[-1], b[-1])


def _direction(call: Call) -> Role:
    for outer in call.around():
        if outer.is_backward:
            return "backward"
        if outer.name in FORWARD or _is_function(outer):
            return "recomputed forward" if recomputed(outer) else "forward"
    return "forward"


def recomputed(call: Call) -> bool:
    """Whether a call of a forward pass lies in a backward function, as activation checkpointing makes it."""
    return any(outer.is_backward for outer in call.around())


def _is_function(call: Call) -> bool:
    """Whether it is a forward function of somebody's own, which only these and torch's own `aten::` names tell."""
    return "::" not in call.name and call.name not in (SUBCLASS, FLOAT8_CAST) and not call.is_gemm


def _with_roles(gemms: Sequence[Gemm]) -> list[Gemm]:
    """The same GEMMs, those of backward functions told apart as far as possible."""
    by_sequence: dict[int, Gemm] = {}
    for gemm in gemms:
        if gemm.role == "forward":
            for call in (gemm.call, *gemm.call.around()):
                if call.sequence is not None and not call.is_backward:
                    by_sequence.setdefault(call.sequence, gemm)
    anywhere = {gemm.sizes for gemm in gemms if gemm.role == "forward"}
    turn: dict[int, int] = defaultdict(int)
    told: list[Gemm] = []
    for gemm in gemms:
        if gemm.role != "backward":
            told.append(gemm)
            continue
        node = next(outer for outer in gemm.call.around() if outer.is_backward)
        forward = None if node.sequence is None else by_sequence.get(node.sequence)
        fits = _fitting(gemm.sizes, [forward.sizes] if forward else anywhere)
        if len(fits) != 1 and node.name == _TORCHAO_FUNCTION and forward:
            fits = {"grad_input"} if turn[id(node)] == 0 else {"grad_weight"}
        turn[id(node)] += 1
        told.append(replace(gemm, role=fits.pop() if len(fits) == 1 else "backward", forward=forward))
    return told


def _fitting(sizes: Sizes, forward: Iterable[Sizes]) -> set[Role]:
    fits: set[Role] = set()
    for m, k, n in forward:
        padded = -m % _PADDED_TO + m
        if sizes in ((m, n, k), (padded, n, k)):
            fits.add("grad_input")
        if sizes in {(n, m, k), (n, padded, k), (k, m, n), (k, padded, n)}:
            fits.add("grad_weight")
    return fits


def _operands(calls: Sequence[Call]) -> dict[int, tuple[Operand, Operand, bool, bool | None]]:
    """For each GEMM its operands, whether they were emulated, and whether they were padded."""
    found = {}
    before: dict[tuple[int, int], list[_Cast]] = defaultdict(list)
    rounded: dict[tuple[int, int], bool] = defaultdict(bool)
    for call in calls:
        if call.name == "aten::exp2":
            rounded[call.thread] = True
        elif call.name == FLOAT8_CAST:
            before[call.thread].append(_Cast.of(call, power_of_2=rounded.pop(call.thread, False)))
        elif call.is_innermost_gemm:
            scope = function_around(call)
            casts = [
                cast
                for cast in before.pop(call.thread, [])
                if function_around(cast.call) is scope and scope is not None
            ]
            found[id(call)] = _read(call, casts)
    return found


def function_around(call: Call) -> Call | None:
    """The function, forward or backward, that it lies in."""
    return next((outer for outer in call.around() if outer.is_backward or _is_function(outer)), None)


@dataclass(frozen=True)
class _Cast:
    """A cast to FP8 by torchao."""

    call: Call
    elements: int
    granularity: Granularity | None
    power_of_2: bool

    @classmethod
    def of(cls, call: Call, *, power_of_2: bool) -> "_Cast":
        return cls(call, _product(call.shape(0)), granularity_of(call.shape(1)), power_of_2)


def _read(call: Call, casts: list[_Cast]) -> tuple[Operand, Operand, bool, bool | None]:
    first = 1 if "add" in call.name else 0
    inside = next((outer for outer in call.around() if outer.name == SUBCLASS), None)
    if inside is not None and inside.parent is not None and not inside.parent.is_gemm:
        inside = None
    a, b = Operand(dtype=call.dtype(first)), Operand(dtype=call.dtype(first + 1))
    emulated, padded = False, None
    if call.name.startswith("aten::_scaled_mm"):
        a, b = (replace(one, granularity=_of_scale(call, at)) for at, one in ((2, a), (3, b)))
    elif inside is not None and (turned_back := _turned_back(inside, call)):
        a, b, emulated = *turned_back, True
    if a.is_float8 and b.is_float8 and inside is not None:
        padded = any(inner.name == "aten::pad" and inner.dtype(0) in FLOAT8 for inner in inside.children)
    sizes = _sizes(call)
    if casts and sizes:
        a, b = _with_casts(a, b, casts, sizes[1])
    if call.name.startswith("aten::_scaled_mm"):
        a, b = _beside(a, b, call, 2), _beside(b, a, call, 3)
    return a, b, emulated, padded


def _of_scale(call: Call, at: int) -> Granularity | None:
    """Of `_scaled_mm`'s scale. A single one in a backward pass may stand for many that are applied afterwards."""
    if call.dtype(at) == "e8m0":
        return "block32"
    told = granularity_of(call.shape(at))
    return None if told == "tensorwise" and _direction(call) == "backward" else told


def _beside(one: Operand, other: Operand, call: Call, at: int) -> Operand:
    """An operand with a single scale, beside one known to have one: rows are scaled later of both or of neither."""
    if one.granularity is None and other.granularity == "tensorwise":
        return replace(one, granularity=granularity_of(call.shape(at)))
    return one


def granularity_of(scale: tuple[int, ...] | None) -> Granularity | None:
    """What one scale belongs to, by the shape of all scales of a tensor."""
    if scale is None:
        return None
    return "tensorwise" if _product(scale) == 1 and len(scale) < 2 else "axiswise"


def _turned_back(inside: Call, call: Call) -> tuple[Operand, Operand] | None:
    """Both operands of an emulated GEMM: the last two FP8 tensors that were turned back, and the scales applied."""
    found: list[Operand] = []
    for inner in inside.children:
        if inner.start >= call.start:
            break
        if inner.name == "aten::to" and inner.dtype(0) in FLOAT8:
            found.append(Operand(dtype=inner.dtype(0)))
        elif found and inner.name == "aten::div":
            found[-1] = replace(found[-1], granularity=granularity_of(inner.shape(1)))
        elif found and inner.name == "aten::view" and inner.dtype(0) == "e8m0":
            found[-1] = replace(found[-1], granularity="block32", power_of_2=True)
    return (found[-2], found[-1]) if len(found) >= 2 else None


def _with_casts(a: Operand, b: Operand, casts: list[_Cast], sizes: Sizes) -> tuple[Operand, Operand]:
    """The operands with what the casts just before say of them: a cast knows more of the scale than the GEMM does."""
    m, k, n = sizes
    pairs: list[tuple[Operand, _Cast | None]] = [(a, None), (b, None)]
    if len(casts) >= 2:
        pairs = [(a, casts[-2]), (b, casts[-1])]
    elif a.is_float8 and (casts[0].elements == m * k or casts[0].elements != k * n):
        pairs[0] = a, casts[0]
    else:
        pairs[1] = b, casts[0]
    a, b = (
        one if cast is None or not one.is_float8
        else replace(one, granularity=cast.granularity or one.granularity, power_of_2=cast.power_of_2)
        for one, cast in pairs
    )  # fmt: skip
    return a, b


def _product(shape: tuple[int, ...] | None) -> int:
    product = 1
    for size in shape or ():
        product *= size
    return product
