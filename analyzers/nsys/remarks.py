"""What an export says in sentences: what stands out, with the evidence; what is not in it, and how to capture it."""

import re
from typing import Any

import numpy as np

from ...record.units import show_bytes, show_count, show_ns
from ..activities import NONE, Activities
from ..calls import Calls
from ..doubts import LAUNCHES_GRAPHS, LAUNCHES_KERNELS, overruns, unrecorded, unrecorded_graphs
from ..findings import Finding
from ..host import Host
from ..remarks import copies_alone, costs
from .export import Export
from .result import NsysRank
from .transfers import PAGEABLE, PINNED, Transfer


def remarks(export: Export, host: Host, rank: NsysRank) -> list[Finding]:
    """The findings of one export, what costs most first."""
    doubts = [*_doubts(host, rank), *_newer(export)]
    return [*costs(rank, _copies), *_pageable(rank), *doubts, *_absent(export, host.work), *_environment(export)]


def _copies(rank: NsysRank) -> tuple[str, dict[str, Any]]:
    rows = rank.transfers or []
    if not rows:
        return copies_alone(rank)
    row = rows[0]
    memory = " → ".join(filter(None, (row.source, row.destination)))
    text = f"went by copies and sets alone; the largest part {row.direction}{f' ({memory})' if memory else ''}, "
    text += f"{show_bytes(row.bytes)} in {show_ns(row.total_ns)}."
    return text, {"direction": row.direction, "bytes": row.bytes, "total_ns": row.total_ns}


def _pageable(rank: NsysRank) -> list[Finding]:
    """Copies between pageable host memory and a device, where most of the time of host copies is theirs.

    Each goes through a pinned buffer of the driver's, and its call waits.
    """
    host = [row for row in rank.transfers or [] if _touches_host(row)]
    rows = [row for row in host if PAGEABLE in (row.source, row.destination)]
    time_ns, size = sum(row.total_ns for row in rows), sum(row.bytes for row in rows)
    exposed_ns = sum(device.memory_ns for device in rank.devices)
    if not exposed_ns or 2 * time_ns <= sum(row.total_ns for row in host):
        return []
    text = (
        f"{show_count(sum(row.count for row in rows))} copies, {show_bytes(size)}, between pageable host memory "
        f"and a GPU took {show_ns(time_ns)} ({show_bytes(size * 1e9 / time_ns)}/s), most of host copies' time; "
        f"{show_ns(exposed_ns)} of copies and sets were hidden by nothing. From pinned memory (pin_memory=True, "
        "non_blocking=True) they are faster and can run beside kernels."
    )
    evidence = {"rank": rank.rank, "bytes": size, "total_ns": time_ns, "exposed_ns": exposed_ns}
    return [Finding(code="pageable-copies", severity="info", text=text, evidence=evidence)]


def _touches_host(row: Transfer) -> bool:
    return any(end in (PAGEABLE, PINNED) for end in (row.source, row.destination))


def _doubts(host: Host, rank: NsysRank) -> list[Finding]:
    """What cannot be quite true: late stamps, and launches whose kernels are missing."""
    if not len(host.work):
        return []
    found = [overruns(rank.rank, host.work)]
    if host.calls is not None and (host.work.correlation != NONE).any():
        found.append(unrecorded(rank.rank, *_lost(host, host.calls, LAUNCHES_KERNELS)))
        found.append(unrecorded_graphs(rank.rank, *_lost(host, host.calls, LAUNCHES_GRAPHS)))
    return [finding for finding in found if finding]


def _lost(host: Host, calls: Calls, which: str) -> tuple[int, int]:
    """How many calls match the pattern `which`, and how many of them have no work."""
    launching = np.array([bool(re.search(which, name)) for name in calls.names], dtype=bool)
    is_launch = launching[calls.name] & (calls.correlation != NONE)
    used = np.zeros(len(calls), dtype=bool)
    used[host.call[host.call != NONE]] = True
    return int(is_launch.sum()), int((is_launch & ~used).sum())


def _absent(export: Export, work: Activities) -> list[Finding]:
    found = []
    if not len(work):
        text = (
            f"{export.path.name} has no kernels, copies or sets: device time is not measured. Profile with -t cuda "
            "(on WSL, with a driver that supports it)."
        )
        found.append(Finding(code="no-device-activity", severity="info", text=text))
    of_label = np.bincount(work.label, minlength=len(work.labels)).tolist()
    whole = [rows for rows, entry in zip(of_label, work.labels, strict=True) if rows and entry.what == "graph"]
    if whole:
        launches = sum(whole)
        text = (
            f"{show_count(launches)} launches of {len(whole)} CUDA graphs were recorded whole, each charged once; the "
            "kernels in them have no rows. Profile with --cuda-graph-trace=node to see them (it costs more)."
        )
        evidence = {"graphs": len(whole), "launches": launches}
        found.append(Finding(code="graphs-recorded-whole", severity="info", text=text, evidence=evidence))
    return found


def _newer(export: Export) -> list[Finding]:
    evidence = {"schema": export.schema_version}
    return (
        [Finding(code="newer-schema", severity="warning", text=export.doubt, evidence=evidence)] if export.doubt else []
    )


def _environment(export: Export) -> list[Finding]:
    if not export.carries_environment:
        return []
    text = (
        f"{export.path.name} carries the environment variables of the profiled program, tokens perhaps among them: "
        f"send on what stepscope scrub {export.path.name} writes, and profile with --discard-environment=true."
    )
    return [Finding(code="carries-environment", severity="warning", text=text)]
