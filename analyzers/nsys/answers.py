"""What an export says beyond the official reports: where each device's time went, and why.

The definitions are those of Kineto traces (`breakdown`); sums are integers and add up to the span. An export may hold
several processes, as one of torchrun does; devices are told apart, and so are processes.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from ..answer import device_answers, kernel_times, workers
from ..collectives import collective_names, collective_times
from ..findings import Finding
from ..host import Host
from ..remarks import last_to_collectives
from ..skew import Worker, skew
from ..steps import step_summaries
from ..work_kinds import kind_shares
from .columns import Rejected, read_activities
from .counters import message_sizes, metric_summaries
from .export import Export
from .host import read_host
from .read import device_names
from .remarks import remarks
from .result import NsysRank, NsysReport
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
    return NsysReport(ranks=ranks, skew=apart, findings=[*findings, *last_to_collectives(apart)])


def ranked(paths: list[Path]) -> list[tuple[int, Path]]:
    """Each file with its rank: the number in its name (`run.rank3.sqlite`) where each has its own, else counted."""
    named = [_RANK.search(path.name) for path in paths]
    numbers = [int(found[1]) for found in named if found]
    if len(set(numbers)) == len(paths):
        return sorted(zip(numbers, paths, strict=True))
    return list(enumerate(paths))


_RANK = re.compile(r"rank[-_.]?(\d{1,9})", re.IGNORECASE)


def _rank(rank: int, export: Export, host: Host) -> NsysRank:
    devices, steps, _ = device_answers(host, device_names(export))
    has_transfers = any(export.table(f"CUPTI_ACTIVITY_KIND_{name}") for name in ("MEMCPY", "MEMSET"))
    return NsysRank(
        rank=rank,
        source=str(export.path),
        format=export.format,
        devices=devices,
        kinds=kind_shares(devices),
        kernels=kernel_times(host, sum(device.span_ns for device in devices)),
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
