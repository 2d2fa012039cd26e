"""What an export says beyond the official reports: where each device's time went, and why.

The definitions are those of Kineto traces (`breakdown`); sums are integers and add up to the span. An export may hold
several processes, as one of torchrun does; devices are told apart, and so are processes.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from ..breakdown import DeviceTime, NameTime, coverage, device_time, name_times
from ..findings import Finding
from ..gaps import Idle
from ..launches import LaunchCost
from ..projection import Projection
from ..steps import StepSummary, StepTime, step_summaries
from ..work_kinds import GemmTime, KindShare, fp8_share, gemm_times, kind_shares
from .columns import Rejected, read_activities
from .export import Export
from .host import Host, read_host
from .read import device_names
from .remarks import remarks
from .transfers import Transfer, transfers


class KernelTime(NameTime, frozen=True, kw_only=True):
    """All kernels of one name, over all devices of an export."""

    share_pct: float
    """Of the devices' spans."""
    per_step_ns: float | None
    """What steps launched of it, over their number; None without steps."""


class NsysDevice(DeviceTime, frozen=True, kw_only=True):
    """One device of an export."""

    idle: Idle
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
    kernels: list[KernelTime]
    """Over all devices, largest total first."""
    transfers: list[Transfer] | None
    """None where no table of copies or sets was recorded."""
    launches: list[LaunchCost] | None
    """None where no API calls were recorded."""
    steps: list[StepTime] | None
    """By process, device and time; None where no range is a step."""
    step_summary: list[StepSummary]
    projection: Projection | None
    """GPU time of NVTX ranges; None without ranges, or without API calls."""


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
    host = read_host(export, work, rejected)
    names = device_names(export)
    devices: list[NsysDevice] = []
    steps: list[StepTime] = []
    for device in np.unique(work.device).tolist():
        on_it = work.device == device
        mine = work.where(on_it)
        cover = coverage(mine)
        devices.append(_device(device_time(mine, device, names.get(device), cover), host.idle(on_it, cover)))
        steps += host.step_times(device, on_it, cover)
    steps.sort(key=lambda row: (row.process, row.device, row.number))
    has_transfers = any(export.table(f"CUPTI_ACTIVITY_KIND_{name}") for name in ("MEMCPY", "MEMSET"))
    found = NsysRank(
        rank=rank,
        source=str(export.path),
        format=export.format,
        devices=devices,
        kinds=kind_shares(devices),
        kernels=_kernels(host, sum(device.span_ns for device in devices)),
        transfers=transfers(export) if has_transfers else None,
        launches=host.launches(),
        steps=steps if host.steps else None,
        step_summary=step_summaries(steps),
        projection=host.projection(),
    )
    return found, [*rejected.findings(export.path.name), *remarks(export, work)]


def _device(time: DeviceTime, idle: Idle) -> NsysDevice:
    gemms = gemm_times(time.kernels)
    known = {name: getattr(time, name) for name in time.__struct_fields__}
    return NsysDevice(**known, idle=idle, gemms=gemms, fp8_gemm_pct=fp8_share(gemms))


def _kernels(host: Host, span_ns: int) -> list[KernelTime]:
    work = host.work
    is_kernel = work.is_kernel
    keys = [(entry.name, entry.kind) for entry in work.labels]
    in_step = is_kernel & (host.step >= 0)
    stepped = np.bincount(work.label[in_step], weights=work.duration[in_step], minlength=len(keys))
    per_step = {key: float(total) / host.steps for key, total in zip(keys, stepped, strict=True)} if host.steps else {}
    return [
        KernelTime(
            **{name: getattr(row, name) for name in row.__struct_fields__},
            share_pct=100 * row.total_ns / span_ns if span_ns else 0.0,
            per_step_ns=per_step.get((row.name, row.kind)),
        )
        for row in name_times(work.label[is_kernel], work.duration[is_kernel], keys)
    ]
