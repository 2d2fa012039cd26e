"""The default view of `stepscope trace`: one screen of the most telling, the whole of each part behind `--view`."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from ..record.units import NOT_MEASURED, show_bytes, show_count, show_ns, show_pct
from .rank_text import kinds, place, steps
from .recipe_proof import proof_line
from .tables import Table, limited, print_all, print_text
from .trace_views import VIEWS, ViewName, cut
from .trace_work import CAUSES, places

if TYPE_CHECKING:
    from ..analyzers.answer import DeviceAnswer
    from ..analyzers.critical_path import CriticalPath
    from ..analyzers.memory_curve import MemoryCurve
    from ..analyzers.trace_result import TraceRank, TraceReport

LONG, SHORT = 6, 3
"""Rows of the long and the short tables where nobody asked for a number."""


def show(report: "TraceReport", console: Console, top: int | None) -> None:
    """Print the report; `top` rows of each table (0: all), or as many as fit a screen."""
    print_all(_parts(report, top), console)
    for finding in report.findings:
        print_text(f"{finding.severity}: {finding.text}", console)


def _parts(report: "TraceReport", top: int | None) -> Iterator[Table | str]:
    """What is shown: tables without their notes, and lines of text. Of several ranks the first is looked into."""
    if any(True for _ in places(report)):
        yield _plain(cut(VIEWS["devices"].build(report), limited(top, 16)))
    if report.skew:
        yield _plain(cut(VIEWS["ranks"].build(report), limited(top, 16)))
    for rank in report.ranks[: None if top == 0 else 1]:
        alone = _of_one(report, rank)
        yield "\n".join(_lines(rank))
        if rank.devices:
            yield _table(alone, "kernels", limited(top, LONG))
        elif rank.ranges:
            yield _table(alone, "ranges", limited(top, SHORT))
        if rank.operators:
            yield _table(alone, "operators", limited(top, SHORT if rank.devices else LONG))
        for build in (VIEWS["modules"].build, VIEWS["collectives"].build):
            table = build(alone)
            if table.rows:
                yield _plain(cut(table, limited(top, SHORT)), rank)
    if report.precision and (line := proof_line(report.precision)):
        yield line


def _of_one(report: "TraceReport", rank: "TraceRank") -> "TraceReport":
    """The report of one of its ranks."""
    from msgspec.structs import replace as replaced

    return replaced(report, ranks=[rank])


def _table(report: "TraceReport", name: ViewName, rows: int | None) -> Table:
    """A view of a report of one rank."""
    return _plain(cut(VIEWS[name].build(report), rows), report.ranks[0])


def _plain(table: Table, rank: "TraceRank | None" = None) -> Table:
    """Without its note, and of one rank without the rank's column."""
    if rank is None:
        return replace(table, note=None)
    head, mark, rest = table.title.partition(": the first")
    title, colon, tail = head.partition(";")
    return replace(table.without("rank"), title=f"{title}{place(rank)}{colon}{tail}{mark}{rest}", note=None)


def _lines(rank: "TraceRank") -> Iterator[str]:
    if rank.step_summary:
        yield from (f"Steps{place(rank)}: {steps(row)}" for row in rank.step_summary)
    else:
        yield f"Steps{place(rank)}: {NOT_MEASURED}; {VIEWS['steps'].absent}"
    for device in rank.devices:
        yield _idle(device)
    if rank.phases:
        yield _phases(rank)
    if rank.kinds:
        yield f"Kinds of work, of the span: {kinds(rank)}"
    if rank.fsdp:
        yield _fsdp(rank)
    if rank.launches:
        yield _launches(rank)
    if rank.critical_paths:
        yield _path(rank.critical_paths)
    if rank.memory:
        yield _memory(rank.memory)


def _idle(device: "DeviceAnswer") -> str:
    idle = device.idle
    told = (f"{heading} {show_ns(getattr(idle, name))}" for name, heading in CAUSES if getattr(idle, name))
    graph = f"; {show_ns(idle.in_graph_ns)} of it inside graphs" if idle.in_graph_ns else ""
    return f"Idle of GPU {device.device}, {show_ns(idle.idle_ns)}: {', '.join(told) or 'none'}{graph}"


def _phases(rank: "TraceRank") -> str:
    on_devices = any(row.device_ns is not None for row in rank.phases)
    told = [
        f"{row.phase} {show_ns(row.device_ns if on_devices else row.host_ns)}"
        for row in rank.phases
        if (row.device_ns if on_devices else row.host_ns)
    ]
    return f"Phases, {'on devices' if on_devices else 'on the host'}: {', '.join(told) or NOT_MEASURED}"


def _fsdp(rank: "TraceRank") -> str:
    """Sums over layers; which layer waits most."""
    told = []
    for phase in dict.fromkeys(row.phase for row in rank.fsdp):
        rows = [row for row in rank.fsdp if row.phase == phase]
        known = [row for row in rows if row.comm_ns is not None]
        text = f"{phase} {show_count(sum(row.count for row in rows))}"
        if known:
            whole, exposed = (sum(getattr(row, part) for row in known) for part in ("comm_ns", "exposed_ns"))
            worst = max(known, key=lambda row: row.exposed_ns or 0)
            text += f" in {show_ns(whole)}, {show_ns(exposed)} exposed"
            text += f" (most: {worst.layer} {show_ns(worst.exposed_ns)})" if exposed else ""
        told.append(text)
    return f"FSDP: {'; '.join(told)}"


def _launches(rank: "TraceRank") -> str:
    row = (rank.launches or [])[0]
    text = f"Launches: {show_count(sum(one.count for one in rank.launches or []))}, most time in {row.call} "
    text += f"({show_ns(row.median_ns)} each, median)"
    for queue in rank.queues:
        text += (
            f"; GPU {queue.device} starts work {show_ns(queue.latency_median_ns)} after its launch (median), with "
            f"{queue.mean:.1f} waiting on average, {show_count(queue.most)} at most, none {show_pct(queue.empty_pct)} "
            "of the time"
        )
    return text


def _path(paths: "list[CriticalPath]") -> str:
    whole = sum(row.span_ns for row in paths) or 1
    parts = {
        "compute": sum(row.compute_ns for row in paths),
        "communication": sum(row.communication_ns for row in paths),
        "copies": sum(row.memory_ns for row in paths),
        "launches": sum(row.launch_ns for row in paths),
        "waiting": sum(row.waiting_ns for row in paths),
        "host": sum(row.host_ns for row in paths),
        "synchronisation": sum(row.synchronisation_ns for row in paths),
    }
    told = (f"{name} {show_pct(100 * part / whole)}" for name, part in parts.items() if part)
    return f"Critical path of steps: {', '.join(told)}"


def _memory(curves: "list[MemoryCurve]") -> str:
    told = []
    for row in curves:
        where = f"GPU {row.device}" if row.device >= 0 else "host"
        added = ", ".join(f"{phase} {show_bytes(size)}" for phase, size in row.by_phase.items())
        first = f"{show_bytes(row.first_bytes)} at first" + (f", {added}" if added else "")
        told.append(f"{where} {show_bytes(row.peak_bytes)} at the peak ({first})")
    return f"Memory allocated: {'; '.join(told)}"
