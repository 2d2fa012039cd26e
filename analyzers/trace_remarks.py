"""What traces of torch.profiler say in sentences, what costs most first; and what is not in them."""

import re
from collections.abc import Sequence
from pathlib import Path

from ..record.units import show_ns, show_pct
from .answer import DeviceAnswer
from .doubts import doubts
from .findings import Finding
from .remarks import costs, last_to_collectives
from .skew import Skew
from .timeline import Timeline
from .trace_result import TraceRank
from .trace_stragglers import Straggler

_MUCH = 0.05
"""Share of a device's span from which on a remark is worth its line."""


def remarks(
    timeline: Timeline, ranks: Sequence[TraceRank], compared: Skew | None, late: Straggler | None
) -> list[Finding]:
    """The findings of traces."""
    found: list[Finding] = []
    for rank in ranks:
        found += costs(rank)
        for device in rank.devices:
            found += [*_causes(rank.rank, device), *_graphs(rank.rank, device)]
        found += _blocked(rank)
    if late:
        found.append(_late(late))
    elif compared and not compared.collectives:
        found += last_to_collectives(compared)
    return [*found, *doubts(timeline), *_absent(ranks), *_nameless(timeline), *_unequal(timeline, ranks)]


def _causes(rank: int, device: DeviceAnswer) -> list[Finding]:
    """The greatest of the causes of idle time before launches that is more than the host being busy."""
    idle = device.idle
    ways = {
        "waited for data (more workers, prefetching, or packed data)": idle.data_ns,
        "had waited for the device (.item(), .cpu(), synchronize): nothing was queued": idle.synchronisation_ns,
        "communicated or waited for it": idle.communication_ns,
    }
    what = max(ways, key=lambda way: ways[way])
    time_ns = ways[what]
    if time_ns <= _MUCH * device.span_ns:
        return []
    text = (
        f"GPU {device.device} of rank {rank} stood idle for {show_ns(time_ns)} ({_share(time_ns, device)}) since the "
    )
    evidence = {"rank": rank, "device": device.device, "time_ns": time_ns, "span_ns": device.span_ns}
    return [Finding(code="idle-cause", severity="info", text=f"{text}host {what}.", evidence=evidence)]


def _graphs(rank: int, device: DeviceAnswer) -> list[Finding]:
    inside = device.idle.in_graph_ns
    if inside <= _MUCH * device.span_ns:
        return []
    text = (
        f"GPU {device.device} of rank {rank}: {show_ns(inside)} of idle time ({_share(inside, device)}) lies between "
        "kernels of one graph launch. Tracing kernels of graphs singly puts gaps there that a run without the profiler "
        "does not have: do not count it as idle before you have timed a step without the profiler."
    )
    evidence = {"rank": rank, "device": device.device, "in_graph_ns": inside, "span_ns": device.span_ns}
    return [Finding(code="idle-inside-graphs", severity="warning", text=text, evidence=evidence)]


def _blocked(rank: TraceRank) -> list[Finding]:
    """FSDP's layer with most exposed communication, where that is much."""
    whole = sum(device.span_ns for device in rank.devices)
    rows = [row for row in rank.fsdp if row.exposed_ns is not None]
    exposed = sum(row.exposed_ns or 0 for row in rows)
    if not whole or exposed <= _MUCH * whole:
        return []
    worst = max(rows, key=lambda row: row.exposed_ns or 0)
    text = (
        f"Rank {rank.rank}: {show_ns(exposed)} of FSDP's collectives were hidden by no compute, most of it in the "
        f"{worst.phase} of {worst.layer} ({show_ns(worst.exposed_ns)} of {show_ns(worst.comm_ns)})."
    )
    evidence = {"rank": rank.rank, "exposed_ns": exposed, "layer": worst.layer, "phase": worst.phase}
    return [Finding(code="fsdp-exposed", severity="info", text=text, evidence=evidence)]


def _late(late: Straggler) -> Finding:
    text = (
        f"Rank {late.rank} was the last to enter {late.last_in} of {late.collectives} collectives; together the ranks "
        f"waited {show_ns(late.waited_ns)} in them for the last one."
    )
    if late.cause is not None:
        text += f" What it has more of than the others: {late.cause}, {show_ns(late.cause_ns)} against"
        text += f" {show_ns(late.others_ns)} (their median)."
    evidence = {
        "rank": late.rank, "last_in": late.last_in, "collectives": late.collectives, "waited_ns": late.waited_ns,
        "cause": late.cause, "cause_ns": late.cause_ns, "others_ns": late.others_ns,
    }  # fmt: skip
    return Finding(code="straggler", severity="info", text=text, evidence=evidence)


def _absent(ranks: Sequence[TraceRank]) -> list[Finding]:
    """What is not measured, and how to have it."""
    bare = [rank.rank for rank in ranks if not rank.devices]
    found = []
    if bare:
        which = "The trace has" if len(ranks) == 1 else f"Ranks {_listed(bare)} have"
        text = (
            f"{which} no device activities: device time is not measured, and operators stand in for kernels. Where the "
            "job ran on a GPU, profile with its activity type (ProfilerActivity.CUDA)."
        )
        found.append(Finding(code="no-device-activity", severity="info", text=text, evidence={"ranks": bare}))
    unlaunched = [rank.rank for rank in ranks if rank.devices and rank.launches is None]
    if unlaunched:
        text = (
            f"Rank {_listed(unlaunched)}: no launches were recorded, so that neither idle time nor operators can be "
            "explained; profile with ProfilerActivity.CPU too."
        )
        found.append(Finding(code="no-launches", severity="info", text=text, evidence={"ranks": unlaunched}))
    return found


def _nameless(timeline: Timeline) -> list[Finding]:
    """Traces that say neither inside nor by their names which rank they are of."""
    found = []
    for source in timeline.sources:
        name = Path(source.path).name
        if source.world_size is None and source.rank == 0 and not re.search(r"rank[-_]?\d", name, re.IGNORECASE):
            text = (
                f"{name} does not say which rank of how many it is (no distributedInfo, as of a run of one process): "
                "it is taken for rank 0."
            )
            found.append(Finding(code="rank-not-told", severity="info", text=text, evidence={"file": name}))
    return found


def _unequal(timeline: Timeline, ranks: Sequence[TraceRank]) -> list[Finding]:
    """Ranks that are missing, or of which something else was recorded than of the others."""
    found = []
    sizes = sorted({rank.world_size for rank in ranks if rank.world_size is not None})
    there = {source.rank for source in timeline.sources}
    if len(sizes) > 1:
        text = f"The traces are of jobs of {_listed(sizes)} ranks: they are not of one run."
        found.append(Finding(code="ranks-of-several-jobs", severity="warning", text=text, evidence={"sizes": sizes}))
    elif sizes and len(there) > 1 and (missing := sorted(set(range(sizes[0])) - there)):
        text = f"Ranks {_listed(missing[:8])}{' …' if len(missing) > 8 else ''} of {sizes[0]} have no trace here."
        text += " Who comes last is told among the others alone."
        found.append(Finding(code="ranks-missing", severity="warning", text=text, evidence={"missing": missing}))
    steps = {rank.rank: len({row.number for row in rank.steps or []}) for rank in ranks}
    if len(set(steps.values())) > 1:
        told = ", ".join(f"rank {rank} has {count}" for rank, count in sorted(steps.items())[:8])
        text = f"The ranks' traces hold different numbers of steps ({told}): only those that all have are compared."
        found.append(Finding(code="ranks-unequal", severity="warning", text=text, evidence={"steps": steps}))
    return found


def _share(time_ns: int, device: DeviceAnswer) -> str:
    return show_pct(100 * time_ns / device.span_ns)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
