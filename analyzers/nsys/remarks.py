"""What an export says in sentences: what stands out, with the evidence; what is not in it, and how to capture it."""

import re
from typing import Any

import numpy as np

from ...record.units import show_bytes, show_count, show_ns, show_pct
from ..activities import NONE, Activities
from ..answer import DeviceAnswer
from ..doubts import LAUNCHES_KERNELS, overruns, unrecorded
from ..findings import Finding
from ..host import Host
from ..skew import Skew
from .export import Export
from .result import NsysRank
from .transfers import PAGEABLE, PINNED, Transfer


def remarks(export: Export, host: Host, rank: NsysRank) -> list[Finding]:
    """The findings of one export, what costs most first."""
    return [*_costs(rank), *_pageable(rank), *_doubts(host, rank), *_absent(export, host.work), *_environment(export)]


def _costs(rank: NsysRank) -> list[Finding]:
    """For each device the largest part of its span that is no computing, and what it is made of."""
    found = []
    for device in rank.devices:
        parts = {"idle": device.idle_ns, "communication": device.comm_exposed_ns, "copies": device.memory_ns}
        what = max(parts, key=lambda name: parts[name])
        time_ns = parts[what]
        if not time_ns:
            continue
        share = 100 * time_ns / device.span_ns
        of = f"GPU {device.device}{_of_rank(rank)}: {show_ns(time_ns)} of {show_ns(device.span_ns)} ({show_pct(share)})"
        evidence = {"rank": rank.rank, "device": device.device, "time_ns": time_ns, "span_ns": device.span_ns}
        text, more = {"idle": _idle, "communication": _communication, "copies": _copies}[what](rank, device)
        code = {"idle": "idle", "communication": "exposed-communication", "copies": "exposed-copies"}[what]
        found.append(Finding(code=code, severity="info", text=f"{of} {text}", evidence=evidence | more))
    return found


def _idle(_: NsysRank, device: DeviceAnswer) -> tuple[str, dict[str, Any]]:
    idle = device.idle
    text = (
        f"went by idle, more than by communication or copies alone; for {show_ns(idle.before_launch_ns)} of it the next"
    )
    text += " work had not been launched"
    if idle.causes:
        cause = idle.causes[0]
        doing = " in ".join(filter(None, (cause.call, f"range {cause.range}" if cause.range else None)))
        where = f"in {doing}" if doing else "in no API call and no range"
        text += (
            f". The largest part, {show_ns(cause.total_ns)} in {show_count(cause.count)} gaps, came while its "
            f"launching thread was {where} (longest {show_ns(cause.longest_ns)})"
        )
    return text + ".", {"before_launch_ns": idle.before_launch_ns, "after_launch_ns": idle.after_launch_ns}


def _communication(rank: NsysRank, device: DeviceAnswer) -> tuple[str, dict[str, Any]]:
    hidden = device.comm_overlapped_ns
    names = ", ".join(f"{row.collective} {show_ns(row.total_ns)}" for row in rank.collectives[:2])
    text = (
        f"went by communication that no computing hid; {show_ns(hidden)} of it was hidden. Most time over all: {names}."
    )
    return text, {"hidden_ns": hidden, "collectives": {row.collective: row.total_ns for row in rank.collectives}}


def _copies(rank: NsysRank, _: DeviceAnswer) -> tuple[str, dict[str, Any]]:
    rows = rank.transfers or []
    if not rows:
        return "went by copies and sets alone.", {}
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
        calls = host.calls
        launching = np.array([bool(re.search(LAUNCHES_KERNELS, name)) for name in calls.names], dtype=bool)
        is_launch = launching[calls.name] & (calls.correlation != NONE)
        used = np.zeros(len(calls), dtype=bool)
        used[host.call[host.call != NONE]] = True
        found.append(unrecorded(rank.rank, int(is_launch.sum()), int((is_launch & ~used).sum())))
    return [finding for finding in found if finding]


def straggler(compared: Skew | None) -> list[Finding]:
    """Who the others wait for, where clocks could be aligned; and how uneven steps are."""
    if compared is None or not compared.communicates:
        return []
    if not compared.collectives:
        text = (
            "The ranks' clocks could not be aligned: no collective can be found on all of them (sends and receives do "
            "not count). Who comes last is not measured; put each step in an NVTX range called step."
        )
        return [Finding(code="not-aligned", severity="info", text=text)]
    last = max(compared.workers, key=lambda row: row.last_in or 0)
    waited = sum(row.waited_ns or 0 for row in compared.workers)
    text = (
        f"Rank {last.rank} (process {last.process}, GPU {last.device}) was the last to enter {last.last_in} of "
        f"{compared.collectives} collectives; together the ranks waited {show_ns(waited)} in them for the last one."
    )
    spread = max(row.spread_ns or 0.0 for row in compared.workers)
    evidence = {"last_in": last.last_in, "collectives": compared.collectives, "waited_ns": waited, "spread_ns": spread}
    return [Finding(code="last-to-collectives", severity="info", text=text, evidence=evidence)]


def _of_rank(rank: NsysRank) -> str:
    return f" of rank {rank.rank}" if rank.rank else ""


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


def _environment(export: Export) -> list[Finding]:
    if not export.carries_environment:
        return []
    text = (
        f"{export.path.name} carries the environment variables of the profiled program, tokens perhaps among them: "
        f"send on what stepscope scrub {export.path.name} writes, and profile with --discard-environment=true."
    )
    return [Finding(code="carries-environment", severity="warning", text=text)]
