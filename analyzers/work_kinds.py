"""Kinds of work over devices: GEMMs by the precision they multiply in, the rest by what kernels' names say."""

from collections.abc import Mapping, Sequence

import msgspec

from .breakdown import DeviceTime, NameTime
from .precision import is_gemm, precision_of


class GemmTime(msgspec.Struct, frozen=True, kw_only=True):
    """The GEMM kernels of one precision; durations are summed."""

    precision: str | None
    """Such as `fp8`, `bf16`; None where the name does not say."""
    count: int
    total_ns: int
    share_pct: float
    """Of the time of all GEMM kernels."""


class KindShare(msgspec.Struct, frozen=True, kw_only=True):
    """All work of one kind, GEMMs by precision; durations are summed, so that what overlaps counts each in the time."""

    kind: str
    """As in `kinds`, or `gemm bf16` and the like."""
    count: int
    total_ns: int
    share_pct: float
    """Of the devices' spans, for how long any of it ran: at most 100, whatever overlaps."""


def work_kind(name: str, kind: str) -> str:
    """The kind of work called `name`, with the precision where it is a GEMM's."""
    return _gemm(precision_of(name)) if is_gemm(kind) else kind


def _gemm(precision: str | None) -> str:
    return f"gemm {precision or 'of unknown precision'}"


def gemm_times(kernels: Sequence[NameTime]) -> list[GemmTime]:
    """The GEMMs among kernels by precision, largest first."""
    counts: dict[str | None, int] = {}
    totals: dict[str | None, int] = {}
    for row in kernels:
        if is_gemm(row.kind):
            precision = precision_of(row.name)
            counts[precision] = counts.get(precision, 0) + row.count
            totals[precision] = totals.get(precision, 0) + row.total_ns
    whole = sum(totals.values())
    found = [
        GemmTime(
            precision=precision,
            count=counts[precision],
            total_ns=total,
            share_pct=100 * total / whole if whole else 0.0,
        )
        for precision, total in totals.items()
    ]
    return sorted(found, key=lambda row: (-row.total_ns, row.precision or "~"))


def fp8_share(gemms: Sequence[GemmTime]) -> float | None:
    """FP8's share of GEMM time in %; None where no GEMM ran."""
    whole = sum(row.total_ns for row in gemms)
    return 100 * sum(row.total_ns for row in gemms if row.precision == "fp8") / whole if whole else None


def kind_shares(devices: Sequence[DeviceTime], covered: Sequence[Mapping[str, int]]) -> list[KindShare]:
    """What devices did, by kind, largest first; `covered` says for each how many ns of its span each kind covers."""
    span_ns = sum(device.span_ns for device in devices)
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    for device in devices:
        rows = [(row.kind, row.count, row.total_ns) for row in device.kinds if not is_gemm(row.kind)]
        rows += [(_gemm(row.precision), row.count, row.total_ns) for row in gemm_times(device.kernels)]
        for kind, count, total in rows:
            counts[kind] = counts.get(kind, 0) + count
            totals[kind] = totals.get(kind, 0) + total
    found = [
        KindShare(
            kind=kind,
            count=counts[kind],
            total_ns=total,
            share_pct=100 * sum(one.get(kind, 0) for one in covered) / span_ns if span_ns else 0.0,
        )
        for kind, total in totals.items()
    ]
    return sorted(found, key=lambda row: (-row.total_ns, row.kind))
