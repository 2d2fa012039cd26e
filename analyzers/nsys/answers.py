"""What an export says beyond the official reports: where each device's time went, and why.

The definitions are those of Kineto traces (`breakdown`); sums are integers and add up to the span. An export may hold
several processes, as one of torchrun does; devices are told apart, and so are processes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from ...record.units import show_count
from ..activities import Activities
from ..breakdown import DeviceTime, NameTime, device_time, name_times
from ..findings import Finding
from ..precision import is_gemm, precision_of
from .columns import Rejected, read_activities
from .export import Export
from .read import device_names
from .transfers import Transfer, transfers


class GemmTime(msgspec.Struct, frozen=True, kw_only=True):
    """The GEMM kernels of one precision; durations are summed."""

    precision: str | None
    """Such as `fp8`, `bf16`; None where the name does not say."""
    count: int
    total_ns: int
    share_pct: float
    """Of the time of all GEMM kernels."""


class KindShare(msgspec.Struct, frozen=True, kw_only=True):
    """All work of one kind, GEMMs by precision; durations are summed, so that what overlaps counts each."""

    kind: str
    """As in `kinds`, or `gemm bf16` and the like."""
    count: int
    total_ns: int
    share_pct: float
    """Of the devices' spans."""


class NsysDevice(DeviceTime, frozen=True, kw_only=True):
    """One device of an export."""

    gemms: list[GemmTime]
    """Largest first."""
    fp8_gemm_pct: float | None
    """FP8's share of GEMM time; None where no GEMM ran."""


class NsysRank(msgspec.Struct, frozen=True, kw_only=True):
    """One export."""

    rank: int
    source: str
    format: str
    devices: list[NsysDevice]
    kinds: list[KindShare]
    """Over all devices, largest first."""
    kernels: list[NameTime]
    """Over all devices, largest total first."""
    transfers: list[Transfer] | None
    """None where no table of copies or sets was recorded."""


class NsysReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `analyze-nsys` shows and prints as JSON."""

    schema: Literal["stepscope.timeline/1"] = "stepscope.timeline/1"
    ranks: list[NsysRank]
    findings: list[Finding]


def answers(paths: Iterable[Path]) -> NsysReport:
    """The report of exports, one a rank. TraceError where a file is none."""
    ranks: list[NsysRank] = []
    findings: list[Finding] = []
    for rank, path in enumerate(paths):
        with Export(path) as export:
            found, said = _rank(rank, export)
        ranks.append(found)
        findings += said
    return NsysReport(ranks=ranks, findings=findings)


def _rank(rank: int, export: Export) -> tuple[NsysRank, list[Finding]]:
    rejected = Rejected()
    work = read_activities(export, rejected)
    names = device_names(export)
    devices = [_device(work.where(work.device == device), device, names) for device in np.unique(work.device).tolist()]
    has_transfers = any(export.table(f"CUPTI_ACTIVITY_KIND_{name}") for name in ("MEMCPY", "MEMSET"))
    found = NsysRank(
        rank=rank,
        source=str(export.path),
        format=export.format,
        devices=devices,
        kinds=_kinds(devices),
        kernels=_kernels(work),
        transfers=transfers(export) if has_transfers else None,
    )
    return found, [*rejected.findings(export.path.name), *_absent(export, work), *_environment(export)]


def _device(work: Activities, device: int, names: dict[int, str]) -> NsysDevice:
    time = device_time(work, device, names.get(device))
    gemms = _gemms(time.kernels)
    whole = sum(row.total_ns for row in gemms)
    fp8_ns = sum(row.total_ns for row in gemms if row.precision == "fp8")
    return NsysDevice(
        **{name: getattr(time, name) for name in time.__struct_fields__},
        gemms=gemms,
        fp8_gemm_pct=100 * fp8_ns / whole if whole else None,
    )


def _kinds(devices: list[NsysDevice]) -> list[KindShare]:
    span_ns = sum(device.span_ns for device in devices)
    counts: dict[str, int] = {}
    totals: dict[str, int] = {}
    for device in devices:
        rows = [(row.kind, row.count, row.total_ns) for row in device.kinds if not is_gemm(row.kind)]
        rows += [(f"gemm {row.precision or 'of unknown precision'}", row.count, row.total_ns) for row in device.gemms]
        for kind, count, total in rows:
            counts[kind] = counts.get(kind, 0) + count
            totals[kind] = totals.get(kind, 0) + total
    found = [
        KindShare(kind=kind, count=counts[kind], total_ns=total, share_pct=100 * total / span_ns if span_ns else 0.0)
        for kind, total in totals.items()
    ]
    return sorted(found, key=lambda row: (-row.total_ns, row.kind))


def _kernels(work: Activities) -> list[NameTime]:
    kernels = work.where(work.is_kernel)
    return name_times(kernels.label, kernels.duration, [(entry.name, entry.kind) for entry in work.labels])


def _gemms(kernels: list[NameTime]) -> list[GemmTime]:
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


def _absent(export: Export, work: Activities) -> list[Finding]:
    found = []
    if not len(work):
        text = (
            f"{export.path.name} has no kernels, copies or sets: device time is not measured. Profile with -t cuda "
            "(on WSL, with a driver that supports it)."
        )
        found.append(Finding(code="no-device-activity", severity="info", text=text))
    whole = [entry for entry in work.labels if entry.what == "graph"]
    if whole:
        launches = int(np.isin(work.label, [work.labels.index(entry) for entry in whole]).sum())
        text = (
            f"{show_count(launches)} launches of {len(whole)} CUDA graphs were recorded whole, each charged once; the "
            "kernels in them have no rows. Profile with --cuda-graph-trace=node to see them (it costs more)."
        )
        evidence = {"graphs": len(whole), "launches": launches}
        found.append(Finding(code="graphs-recorded-whole", severity="info", text=text, evidence=evidence))
    return found


def _environment(export: Export) -> list[Finding]:
    if not export.carries_environment:
        return []
    text = (
        f"{export.path.name} carries the environment variables of the profiled program, tokens perhaps among them: "
        f"send on what stepscope scrub {export.path.name} writes, and profile with --discard-environment=true."
    )
    return [Finding(code="carries-environment", severity="warning", text=text)]
