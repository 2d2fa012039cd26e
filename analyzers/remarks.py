"""What any rank's figures say in sentences: what costs a device most, and who comes last to collectives."""

from collections.abc import Callable
from typing import Any, TypeVar

from ..record.units import show_count, show_ns, show_pct
from .answer import DeviceAnswer, RankAnswer
from .findings import Finding
from .skew import Skew

Rank = TypeVar("Rank", bound=RankAnswer)
Told = tuple[str, dict[str, Any]]
"""The end of a sentence, and the evidence for it."""


def copies_alone(_: RankAnswer) -> Told:
    """Of copies of which nothing more is known."""
    return "went by copies and sets alone.", {}


def costs(rank: Rank, copies: Callable[[Rank], Told] = copies_alone) -> list[Finding]:
    """For each device the largest part of its span that is no computing, and what it is made of.

    `copies` says what the copies of a rank were made of.
    """
    found = []
    for device in rank.devices:
        parts = {"idle": device.idle_ns, "communication": device.comm_exposed_ns, "copies": device.memory_ns}
        what = max(parts, key=lambda name: parts[name])
        time_ns = parts[what]
        if not time_ns:
            continue
        share = 100 * time_ns / device.span_ns
        where = f"{place(device.device)}{_of_rank(rank)}"
        of = f"{where}: {show_ns(time_ns)} of {show_ns(device.span_ns)} ({show_pct(share)})"
        evidence = {"rank": rank.rank, "device": device.device, "time_ns": time_ns, "span_ns": device.span_ns}
        if what == "copies":
            text, more = copies(rank)
        else:
            text, more = _idle(device) if what == "idle" else _communication(rank, device)
        code = {"idle": "idle", "communication": "exposed-communication", "copies": "exposed-copies"}[what]
        found.append(Finding(code=code, severity="info", text=f"{of} {text}", evidence=evidence | more))
    return found


def _idle(device: DeviceAnswer) -> Told:
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


def _communication(rank: RankAnswer, device: DeviceAnswer) -> Told:
    hidden = device.comm_overlapped_ns
    names = ", ".join(f"{row.collective} {show_ns(row.total_ns)}" for row in rank.collectives[:2])
    text = (
        f"went by communication that no computing hid; {show_ns(hidden)} of it was hidden. Most time over all: {names}."
    )
    return text, {"hidden_ns": hidden, "collectives": {row.collective: row.total_ns for row in rank.collectives}}


def last_to_collectives(compared: Skew | None) -> list[Finding]:
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
        f"Rank {last.rank} (process {last.process}, {place(last.device)}) was the last to enter {last.last_in} of "
        f"{compared.collectives} collectives; together the ranks waited {show_ns(waited)} in them for the last one."
    )
    spread = max(row.spread_ns or 0.0 for row in compared.workers)
    evidence = {"last_in": last.last_in, "collectives": compared.collectives, "waited_ns": waited, "spread_ns": spread}
    return [Finding(code="last-to-collectives", severity="info", text=text, evidence=evidence)]


def _of_rank(rank: RankAnswer) -> str:
    return f" of rank {rank.rank}" if rank.rank else ""


def place(device: int) -> str:
    """What a device is called."""
    return f"GPU {device}" if device >= 0 else "CPU"
