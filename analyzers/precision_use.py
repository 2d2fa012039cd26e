"""What ran in which precision on one rank, what FP8 cost beside its GEMMs, and what those gained.

The FP8 tax is the time of everything that only FP8 needs: on a device the kernels launched in the functions of FP8
layers beside their GEMMs, those of casts for all-gathers, and Inductor's kernels that cast and scale; without a device
the same operators' time on the host. What the GEMMs gained is an estimate: the time that the same FLOPs would take at
the rate of this trace's own bf16 GEMMs, less the time that they took.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from .gathers import Gather
from .gemms import Gemm, function_around
from .op_calls import FLOAT8_CAST, Call
from .op_kernels import Launched

LEAST_BF16_FLOPS = 0.02
"""bf16 GEMMs with less than this share of the FP8 ones' FLOPs set no rate to compare with."""


class GemmUse(msgspec.Struct, frozen=True, kw_only=True):
    """All GEMMs of one role and precision."""

    role: str
    dtype: str
    emulated: bool
    count: int
    flops: int
    time_ns: int | None
    """Of their kernels, or of the operators on the host where there is no device."""
    operators: list[str]
    kernels: list[str]


class GatherUse(msgspec.Struct, frozen=True, kw_only=True):
    """All all-gathers of parameters of one dtype."""

    dtype: str
    count: int
    bytes: int
    casts: int


class LayerUse(msgspec.Struct, frozen=True, kw_only=True):
    """One layer's GEMMs."""

    layer: str
    gemms: int
    fp8_gemms: int
    gemm_ns: int | None
    tax_ns: int
    gained_ns: int | None
    """None: not measured; `gained_why` of the whole says why."""


class TaxPart(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels, or operators, that only FP8 needs."""

    name: str
    count: int
    total_ns: int


class PrecisionUse(msgspec.Struct, frozen=True, kw_only=True):
    """One rank."""

    rank: int
    clock: Literal["device", "host"]
    """What times are of: kernels, or operators on the host."""
    emulated: bool
    gemms: list[GemmUse]
    fp8_time_pct: float | None
    """Share of FP8 in the time of all GEMMs."""
    fp8_flops_pct: float | None
    gathers: list[GatherUse]
    tax_ns: int | None
    """None where no GEMM runs in FP8."""
    tax: list[TaxPart]
    """Largest first."""
    gained_ns: int | None
    gained_why: str | None
    layers: list[LayerUse]
    """In order of execution; those that cannot be told apart are left out."""


def precision_use(
    rank: int, calls: Sequence[Call], gemms: Sequence[Gemm], gathers: Sequence[Gather], launched: Launched
) -> PrecisionUse:
    """Of one rank, from its calls, the GEMMs among them (with device times where there are any), and its kernels."""
    on_device = len(launched.work) > 0
    times = {id(gemm): _time(gemm, on_device=on_device) for gemm in gemms}
    tax, per_layer = _device_tax(calls, gemms, launched) if on_device else _host_tax(calls, gemms)
    emulated = any(gemm.emulated for gemm in gemms)
    has_float8 = any(gemm.is_float8 for gemm in gemms)
    rate, why = _bf16_rate(gemms, times, emulated=emulated, on_device=on_device)
    gains = {
        id(gemm): round(gemm.flops / rate) - time
        for gemm in gemms
        if rate and gemm.is_float8 and (time := times[id(gemm)]) is not None
    }
    timed = [(gemm, time) for gemm in gemms if (time := times[id(gemm)]) is not None]
    return PrecisionUse(
        rank=rank,
        clock="device" if on_device else "host",
        emulated=emulated,
        gemms=_by_role(gemms, times),
        fp8_time_pct=_share(sum(time for gemm, time in timed if gemm.is_float8), sum(time for _, time in timed)),
        fp8_flops_pct=_share(
            sum(gemm.flops for gemm in gemms if gemm.is_float8), sum(gemm.flops for gemm in gemms)
        ),
        gathers=_by_dtype(gathers),
        tax_ns=sum(part.total_ns for part in tax) if has_float8 else None,
        tax=tax if has_float8 else [],
        gained_ns=sum(gains.values()) if gains else None,
        gained_why=why,
        layers=_by_layer(gemms, times, per_layer, gains),
    )  # fmt: skip


def _time(gemm: Gemm, *, on_device: bool) -> int | None:
    return gemm.device_ns if on_device else gemm.host_ns


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _by_role(gemms: Sequence[Gemm], times: dict[int, int | None]) -> list[GemmUse]:
    groups: dict[tuple[str, str, bool], list[Gemm]] = defaultdict(list)
    for gemm in gemms:
        groups[gemm.role, gemm.dtype, gemm.emulated].append(gemm)
    used = [
        GemmUse(
            role=role,
            dtype=dtype,
            emulated=emulated,
            count=len(group),
            flops=sum(gemm.flops for gemm in group),
            time_ns=_sum([times[id(gemm)] for gemm in group]),
            operators=sorted({gemm.call.name for gemm in group}),
            kernels=sorted({kernel for gemm in group for kernel in gemm.kernels}),
        )
        for (role, dtype, emulated), group in groups.items()
    ]
    return sorted(used, key=lambda use: (-use.flops, use.role, use.dtype))


def _by_dtype(gathers: Sequence[Gather]) -> list[GatherUse]:
    groups: dict[str, list[Gather]] = defaultdict(list)
    for gather in gathers:
        groups[gather.dtype].append(gather)
    return [
        GatherUse(
            dtype=dtype,
            count=len(group),
            bytes=sum(gather.bytes for gather in group),
            casts=sum(gather.casts for gather in group),
        )
        for dtype, group in sorted(groups.items())
    ]


def _by_layer(
    gemms: Sequence[Gemm], times: dict[int, int | None], tax: dict[str, int], gains: dict[int, int]
) -> list[LayerUse]:
    layers: dict[str, list[Gemm]] = defaultdict(list)
    for gemm in gemms:
        if gemm.layer is not None:
            layers[gemm.layer].append(gemm)
    return [
        LayerUse(
            layer=layer,
            gemms=len(group),
            fp8_gemms=sum(gemm.is_float8 for gemm in group),
            gemm_ns=_sum([times[id(gemm)] for gemm in group]),
            tax_ns=tax.get(layer, 0),
            gained_ns=_sum([gains.get(id(gemm)) for gemm in group]),
        )
        for layer, group in layers.items()
    ]


def _bf16_rate(
    gemms: Sequence[Gemm], times: dict[int, int | None], *, emulated: bool, on_device: bool
) -> tuple[float | None, str | None]:
    """FLOPs a nanosecond of the bf16 GEMMs; else why there is nothing to hold the FP8 ones against."""
    float8 = sum(gemm.flops for gemm in gemms if gemm.is_float8)
    if not float8:
        return None, "no GEMM ran in FP8"
    if emulated:
        return None, "FP8 was emulated"
    if not on_device:
        return None, "there is no device time"
    timed = [(gemm.flops, time) for gemm in gemms if gemm.dtype == "bf16" and (time := times[id(gemm)])]
    flops = sum(flops for flops, _ in timed)
    if flops < LEAST_BF16_FLOPS * float8:
        return None, "too few GEMMs ran in bf16 to set a rate; compare with a run in bf16"
    return flops / sum(time for _, time in timed), None


def _float8_functions(gemms: Sequence[Gemm]) -> dict[int, tuple[Call, list[Gemm]]]:
    """The functions, forward and backward, with an FP8 GEMM in them: each with all its GEMMs."""
    functions: dict[int, tuple[Call, list[Gemm]]] = {}
    for gemm in gemms:
        around = function_around(gemm.call)
        if around is not None and "Compiled" not in around.name:
            functions.setdefault(id(around), (around, []))[1].append(gemm)
    return {key: pair for key, pair in functions.items() if any(gemm.is_float8 for gemm in pair[1])}


def _gather_casts(calls: Sequence[Call]) -> list[Call]:
    return [call for call in calls if call.name == FLOAT8_CAST and function_around(call) is None]


def _device_tax(
    calls: Sequence[Call], gemms: Sequence[Gemm], launched: Launched
) -> tuple[list[TaxPart], dict[str, int]]:
    """The kernels, and per layer their time."""
    work = launched.work
    taxed = np.array([label.kind == "fp8 cast and scale" for label in work.labels], dtype=bool)[work.label]
    multiplies = launched.rows(launched.by([gemm.call for gemm in gemms]))
    per_layer: dict[str, int] = defaultdict(int)
    functions = list(_float8_functions(gemms).values())
    launches = launched.by([around for around, _ in functions])
    taxed |= launched.rows(launches)
    for (_, inside), time_ns in zip(functions, launched.time_ns(launches, of=~multiplies), strict=True):
        if inside[0].layer is not None:
            per_layer[inside[0].layer] += time_ns or 0
    taxed |= launched.rows(launched.by(_gather_casts(calls)))
    taxed &= ~multiplies
    totals: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for label, duration in zip(work.label[taxed].tolist(), work.duration[taxed].tolist(), strict=True):
        totals[label][0] += 1
        totals[label][1] += duration
    parts = [
        TaxPart(name=work.labels[label].name, count=count, total_ns=total) for label, (count, total) in totals.items()
    ]
    return sorted(parts, key=lambda part: (-part.total_ns, part.name)), per_layer


def _host_tax(calls: Sequence[Call], gemms: Sequence[Gemm]) -> tuple[list[TaxPart], dict[str, int]]:
    """Operators on the host: the functions of FP8 layers without their GEMMs, and casts for all-gathers."""
    per_layer: dict[str, int] = defaultdict(int)
    casts = [call for call in calls if call.name == FLOAT8_CAST]
    cast_ns = sum(call.end - call.start for call in casts)
    functions_ns = 0
    for around, inside in _float8_functions(gemms).values():
        outer = {id(call): call for gemm in inside for call in [_outermost_gemm(gemm.call)]}
        beside = around.end - around.start - sum(call.end - call.start for call in outer.values())
        functions_ns += beside
        if inside[0].layer is not None:
            per_layer[inside[0].layer] += beside
    for_gathers = sum(call.end - call.start for call in _gather_casts(calls))
    parts = [
        TaxPart(name=f"casts to FP8 ({FLOAT8_CAST})", count=len(casts), total_ns=cast_ns),
        TaxPart(
            name="largest values, scales and views around FP8 GEMMs",
            count=len(_float8_functions(gemms)),
            total_ns=functions_ns + for_gathers - cast_ns,
        ),
    ]
    return sorted(parts, key=lambda part: (-part.total_ns, part.name)), per_layer


def _outermost_gemm(call: Call) -> Call:
    """The call that a tensor subclass computes, of which this one is the innermost."""
    return next((outer for outer in reversed(list(call.around())) if outer.is_gemm), call)
