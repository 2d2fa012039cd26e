"""What an export says beyond the official reports: where each device's time went, and why.

The definitions are those of Kineto traces (`breakdown`); sums are integers and add up to the span. An export may hold
several processes, as one of torchrun does; devices are told apart, and so are processes.
"""

from collections.abc import Iterable
from pathlib import Path

from ..answer import device_answers, kernel_times, workers
from ..collectives import collective_names, collective_times
from ..findings import Finding
from ..host import Host
from ..remarks import last_to_collectives
from ..skew import Worker, skew
from ..steps import step_summaries
from ..work_kinds import fp8_share, kind_shares
from .columns import Rejected, read_activities
from .counters import message_sizes, metric_summaries
from .export import Export
from .host import read_host
from .locate import ranks_of
from .remarks import remarks
from .result import DevicesTotal, NsysRank, NsysReport
from .transfers import transfers


def answers(paths: Iterable[Path]) -> NsysReport:
    """The report of exports, one a rank. TraceError where a file is none."""
    ranks: list[NsysRank] = []
    compared: list[Worker] = []
    findings: list[Finding] = []
    for number, path in ranked(list(paths)):
        with Export(path) as export:
            rejected = Rejected()
            work = read_activities(export, rejected)
            host = read_host(export, work, rejected)
            ranks.append(_rank(number, export, host))
            compared += workers(number, host, collective_names(host.work), ranks[-1].devices, ranks[-1].steps or [])
            findings += [*rejected.findings(path.name), *remarks(export, host, ranks[-1])]
    apart = skew(compared)
    return NsysReport(ranks=ranks, total=_total(ranks), skew=apart, findings=[*findings, *last_to_collectives(apart)])


def ranked(paths: list[Path]) -> list[tuple[int, Path]]:
    """Each file with its rank: the number in its name (`run.rank3.sqlite`) where each has its own, else counted."""
    return sorted(zip(ranks_of([path.name for path in paths]), paths, strict=True))


def _rank(rank: int, export: Export, host: Host) -> NsysRank:
    devices, steps, _, parts = device_answers(host, export.gpu_names())
    has_transfers = any(export.table(f"CUPTI_ACTIVITY_KIND_{name}") for name in ("MEMCPY", "MEMSET"))
    return NsysRank(
        rank=rank,
        source=str(export.path),
        format=export.format,
        devices=devices,
        kinds=kind_shares(devices, [part.kinds for part in parts]),
        kernels=kernel_times(host, devices, parts),
        transfers=transfers(export) if has_transfers else None,
        collectives=collective_times(host.work, collective_names(host.work), message_sizes(export)),
        launches=host.launches(),
        steps=steps if host.steps else None,
        step_summary=step_summaries(steps),
        projection=host.projection(),
        operators=[],
        ranges=host.range_times(),
        metrics=metric_summaries(export),
    )


def _total(ranks: list[NsysRank]) -> DevicesTotal | None:
    devices = [device for rank in ranks for device in rank.devices]
    parts = [name for name in DevicesTotal.__struct_fields__ if name.endswith("_ns")]
    sums = {part: sum(getattr(device, part) for device in devices) for part in parts}
    fp8_pct = fp8_share([gemm for device in devices for gemm in device.gemms])
    return DevicesTotal(devices=len(devices), fp8_gemm_pct=fp8_pct, **sums) if devices else None
