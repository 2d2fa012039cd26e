"""What an export says beyond the official reports: where each device's time went, and why.

The definitions are those of Kineto traces (`breakdown`); sums are integers and add up to the span. An export may hold
several processes, as one of torchrun does; devices are told apart, and so are processes.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..activities import distinct
from ..breakdown import DeviceTime, coverage, device_time, name_times
from ..collectives import collective_times
from ..findings import Finding
from ..gaps import Idle
from ..host import Host
from ..skew import Place, Worker, communication_of, skew
from ..steps import StepTime, step_summaries
from ..work_kinds import fp8_share, gemm_times, kind_shares
from .columns import Rejected, read_activities
from .counters import message_sizes, metric_summaries
from .export import Export
from .host import read_host
from .read import device_names
from .remarks import remarks, straggler
from .result import KernelTime, NsysDevice, NsysRank, NsysReport
from .transfers import transfers


def answers(paths: Iterable[Path]) -> NsysReport:
    """The report of exports, one a rank. TraceError where a file is none."""
    ranks: list[NsysRank] = []
    workers: list[Worker] = []
    findings: list[Finding] = []
    for number, path in ranked(list(paths)):
        with Export(path) as export:
            rejected = Rejected()
            work = read_activities(export, rejected)
            host = read_host(export, work, rejected)
            ranks.append(_rank(number, export, host))
            workers += _workers(ranks[-1], host)
            findings += [*rejected.findings(path.name), *remarks(export, host, ranks[-1])]
    compared = skew(workers)
    return NsysReport(ranks=ranks, skew=compared, findings=[*findings, *straggler(compared)])


def ranked(paths: list[Path]) -> list[tuple[int, Path]]:
    """Each file with its rank: the number in its name (`run.rank3.sqlite`) where each has its own, else counted."""
    named = [_RANK.search(path.name) for path in paths]
    numbers = [int(found[1]) for found in named if found]
    if len(set(numbers)) == len(paths):
        return sorted(zip(numbers, paths, strict=True))
    return list(enumerate(paths))


_RANK = re.compile(r"rank[-_.]?(\d{1,9})", re.IGNORECASE)


def _rank(rank: int, export: Export, host: Host) -> NsysRank:
    work, names = host.work, device_names(export)
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
    return NsysRank(
        rank=rank,
        source=str(export.path),
        format=export.format,
        devices=devices,
        kinds=kind_shares(devices),
        kernels=_kernels(host, sum(device.span_ns for device in devices)),
        transfers=transfers(export) if has_transfers else None,
        collectives=collective_times(work, message_sizes(export)),
        launches=host.launches(),
        steps=steps if host.steps else None,
        step_summary=step_summaries(steps),
        projection=host.projection(),
        operators=[],
        ranges=host.range_times(),
        metrics=metric_summaries(export),
    )


def _workers(rank: NsysRank, host: Host) -> list[Worker]:
    """Each process on each device whose kernels it launched."""
    found = []
    is_kernel = host.work.is_kernel
    for device in rank.devices:
        on_it = (host.work.device == device.device) & is_kernel
        for process in distinct(host.work.process[on_it]).tolist():
            mine = on_it & (host.work.process == process)
            communication = communication_of(host.work, mine, host.step)
            found.append(
                Worker(
                    place=Place(rank.rank, process, device.device),
                    steps=[s for s in rank.steps or [] if (s.process, s.device) == (process, device.device)],
                    comm_exposed_ns=device.comm_exposed_ns,
                    span_ns=device.span_ns,
                    communication=communication,
                    counts=Counter(name for _, name, _ in communication),
                    communicates=bool((mine & host.work.is_communication).any()),
                )
            )
    return found


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
