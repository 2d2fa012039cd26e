"""How much of a device's peak its matrix multiplications reached, on one rank, from shapes and kernel times.

    achieved FLOP/s = FLOPs / time of the operator's kernels (on a CPU: of the operator on the host)
    MFU             = Σ FLOPs of a dtype / peak of that dtype / span of the device
    HFU             = the same with forward passes that were computed again

GEMMs have 2 · m · k · n FLOPs, fused attention what `attention` says. FP32 GEMMs have no peak here, since a trace does
not tell TF32 from it: their FLOPs add nothing to the MFU, and their share is told. Convolutions are not counted, and a
trace in which they matter has no MFU. A group is memory-bound where its FLOPs a byte (operands read once, product
written once) lie below the ridge, peak FLOP/s / peak bandwidth.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np

from .attention import ATTENTION, attention_flops
from .gemms import Gemm, recomputed
from .op_calls import DTYPE_BYTES, Call
from .op_kernels import Launched
from .peaks import Peak, bandwidth_of, peak_of

Bound = Literal["compute", "memory"]


MATTERING_CONVOLUTIONS = 0.01
"""Share of the kernels' time from which on convolutions count."""


class DtypeRate(msgspec.Struct, frozen=True, kw_only=True):
    """All multiplications of one kind and dtype."""

    kind: Literal["gemm", "attention"]
    dtype: str
    emulated: bool
    count: int
    flops: int
    time_ns: int | None
    flops_per_s: float | None
    peak_flops_per_s: float | None
    peak_pct: float | None


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """All multiplications of the same sizes, dtype and role."""

    operator: str
    role: str
    dtype: str
    sizes: str
    """Batch × m × k × n; of attention, batch × heads × queries × keys × head_dim."""
    count: int
    flops: int
    bytes: int
    flops_per_byte: float
    ridge: float | None
    """FLOPs a byte from which on the peak rate bounds; None: the GPU, or the dtype's peak, is not known."""
    bound: Bound | None
    time_ns: int | None
    attainable_pct: float | None
    """Of the rate that the roofline allows at this many FLOPs a byte."""


class Efficiency(msgspec.Struct, frozen=True, kw_only=True):
    """One rank."""

    rank: int
    device: str | None
    """The GPU's name."""
    clock: Literal["device", "host"]
    span_ns: int | None
    """Of the device, or None without one."""
    rates: list[DtypeRate]
    """Most FLOPs first."""
    mfu_pct: float | None
    hfu_pct: float | None
    mfu_why: str | None
    """Why it is None."""
    multiplying_pct: float | None
    """Share of the counted multiplications in the time of all kernels; None without a device."""
    uncounted_flops_pct: float
    """Share of FLOPs in a dtype without a peak: they add nothing to MFU and HFU."""
    roofline: list[Roofline]
    """Longest time first."""


@dataclass(frozen=True, kw_only=True)
class _Work:
    """One multiplication, or fused attention."""

    kind: Literal["gemm", "attention"]
    operator: str
    role: str
    dtype: str
    sizes: str
    emulated: bool
    again: bool
    flops: int
    bytes: int
    time_ns: int | None


def efficiency(
    rank: int, calls: Sequence[Call], gemms: Sequence[Gemm], launched: Launched, device: str | None
) -> Efficiency:
    """Of one rank; `device` is what the driver calls its GPU, None where the trace does not say or there is none."""
    work = [*_gemms(gemms, launched), *_attention(calls, launched)]
    kernels = launched.work
    span = int(kernels.end.max() - kernels.start.min()) if len(kernels) else None
    peak = peak_of(device) if device else None
    flops = sum(one.flops for one in work)
    uncounted = sum(one.flops for one in work if _peak(peak, one.dtype) is None)
    emulated = any(one.emulated for one in work)
    kernels_ns = int(kernels.duration.sum())
    convolving = np.array([label.kind == "convolution" for label in kernels.labels], dtype=bool)[kernels.label]
    convolves = int(kernels.duration[convolving].sum()) > MATTERING_CONVOLUTIONS * kernels_ns
    why = _why_not(work, device, peak, span, emulated=emulated)
    if why is None and convolves:
        why = "the trace has convolutions, whose FLOPs are not counted"
    least = [0.0, 0.0]
    for one in work:
        rate = _peak(peak, one.dtype)
        if rate is not None:
            least[0] += 0.0 if one.again else one.flops / rate
            least[1] += one.flops / rate
    mfu, hfu = (None, None) if why or span is None else (100 * seconds * 1e9 / span for seconds in least)
    return Efficiency(
        rank=rank,
        device=device,
        clock="device" if len(kernels) else "host",
        span_ns=span,
        rates=_rates(work, peak),
        mfu_pct=mfu,
        hfu_pct=hfu,
        mfu_why=why,
        multiplying_pct=100 * sum(one.time_ns or 0 for one in work) / kernels_ns if kernels_ns else None,
        uncounted_flops_pct=100 * uncounted / flops if flops else 0.0,
        roofline=_roofline(work, peak, bandwidth_of(device) if device else None),
    )


def _why_not(
    work: Sequence[_Work], device: str | None, peak: Peak | None, span: int | None, *, emulated: bool
) -> str | None:
    if not work:
        return "the trace has no GEMM with its shapes"
    if not span:
        return "there is no device time"
    if emulated:
        return "FP8 was emulated"
    if device is None:
        return "the trace does not name the GPU"
    return f"no peak is known of {device}" if peak is None else None


def _peak(peak: Peak | None, dtype: str) -> float | None:
    """The peak rate of a dtype; FP16 has that of bf16 on every GPU of the table."""
    if peak is None:
        return None
    return {"fp8": peak.float8_flops, "bf16": peak.bf16_flops, "fp16": peak.bf16_flops}.get(dtype)


def _gemms(gemms: Sequence[Gemm], launched: Launched) -> list[_Work]:
    on_device = len(launched.work) > 0
    return [
        _Work(
            kind="gemm",
            operator=gemm.call.name,
            role=gemm.role,
            dtype=gemm.dtype,
            sizes=" × ".join(map(str, ([gemm.batch] if gemm.batch > 1 else []) + list(gemm.sizes))),
            emulated=gemm.emulated,
            again=gemm.role == "recomputed forward",
            flops=gemm.flops,
            bytes=gemm.bytes,
            time_ns=gemm.device_ns if on_device else gemm.host_ns,
        )
        for gemm in gemms
    ]


def _attention(calls: Sequence[Call], launched: Launched) -> list[_Work]:
    on_device = len(launched.work) > 0
    found = []
    attention = [
        call for call in calls if call.name in ATTENTION and not any(inner.name in ATTENTION for inner in call.within())
    ]
    for call, time_ns in zip(attention, launched.time_ns(launched.by(attention)), strict=True):
        at = ATTENTION[call.name].query
        query, key = call.shape(at), call.shape(at + 1)
        flops = attention_flops(call.name, query, key)
        if flops is None or query is None or key is None:
            continue
        dtype = call.dtype(at)
        backward = at == 1
        batch, heads, queries, head_dim = query
        # Queries and the result, keys and values; backwards also their gradients and the result's.
        elements = 2 * batch * head_dim * (heads * queries + key[1] * key[2]) * (2 if backward else 1)
        found.append(
            _Work(
                kind="attention",
                operator=call.name,
                role="backward" if backward else "recomputed forward" if recomputed(call) else "forward",
                dtype=dtype,
                sizes=" × ".join(map(str, (batch, heads, queries, key[2], head_dim))),
                emulated=False,
                again=not backward and recomputed(call),
                flops=flops,
                bytes=elements * DTYPE_BYTES.get(dtype, 2),
                time_ns=time_ns if on_device else call.end - call.start,
            )
        )
    return found


def _rates(work: Sequence[_Work], peak: Peak | None) -> list[DtypeRate]:
    groups: dict[tuple[Literal["gemm", "attention"], str, bool], list[_Work]] = defaultdict(list)
    for one in work:
        groups[one.kind, one.dtype, one.emulated].append(one)
    found = []
    for (kind, dtype, emulated), group in groups.items():
        rate, top = _rate(group), None if emulated else _peak(peak, dtype)
        found.append(
            DtypeRate(
                kind=kind,
                dtype=dtype,
                emulated=emulated,
                count=len(group),
                flops=sum(one.flops for one in group),
                time_ns=_time(group),
                flops_per_s=rate,
                peak_flops_per_s=top,
                peak_pct=100 * rate / top if rate is not None and top else None,
            )
        )
    return sorted(found, key=lambda row: (-row.flops, row.kind, row.dtype))


def _time(group: Sequence[_Work]) -> int | None:
    """Of those that have one; None where none has."""
    known = [one.time_ns for one in group if one.time_ns is not None]
    return sum(known) if known else None


def _rate(group: Sequence[_Work]) -> float | None:
    """FLOP/s over those whose time is known."""
    time = _time(group)
    return sum(one.flops for one in group if one.time_ns is not None) * 1e9 / time if time else None


def _roofline(work: Sequence[_Work], peak: Peak | None, bandwidth: float | None) -> list[Roofline]:
    groups: dict[tuple[str, str, str, str], list[_Work]] = defaultdict(list)
    for one in work:
        groups[one.operator, one.role, one.dtype, one.sizes].append(one)
    found = []
    for (operator, role, dtype, sizes), group in groups.items():
        one = group[0]
        per_byte = one.flops / one.bytes if one.bytes else 0.0
        top = None if one.emulated else _peak(peak, dtype)
        ridge = top / bandwidth if top and bandwidth else None
        bound: Bound | None = None if ridge is None else "compute" if per_byte >= ridge else "memory"
        rate = _rate(group)
        attainable = min(top, per_byte * bandwidth) if top and bandwidth else None
        found.append(
            Roofline(
                operator=operator,
                role=role,
                dtype=dtype,
                sizes=sizes,
                count=len(group),
                flops=sum(each.flops for each in group),
                bytes=sum(each.bytes for each in group),
                flops_per_byte=per_byte,
                ridge=ridge,
                bound=bound,
                time_ns=_time(group),
                attainable_pct=100 * rate / attainable if rate is not None and attainable else None,
            )
        )
    return sorted(found, key=lambda row: (-(row.time_ns or 0), -row.flops, row.operator, row.sizes))
