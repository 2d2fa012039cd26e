"""torch.profiler traces (Kineto's Chrome JSON) as a Timeline.

One trace is one rank's. Its origin is `baseTimeNanoseconds`, or the Unix epoch where times are Unix times. What was
mended, cut off, unreadable or no interval is told in findings.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...record.errors import TraceError, UserError
from ..findings import Finding
from ..timeline import Source, Timeline, merge
from .columns import Columns
from .parallel import read_in_parallel
from .stream import Document, Progress, blocks
from .values import integer

_RANK_IN_NAME = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
_EPOCH_NS = 10**17
"""Above this a time can only be a Unix time (1973 on); below, it is a clock of the machine's own."""


def _silent(_path: Path, _read: int, _size: int) -> None:
    """Show no progress."""


def read_traces(paths: Iterable[Path], progress: Progress = _silent) -> Timeline:
    """Several traces, one a rank, as one timeline. UserError where two files are of the same rank."""
    parts: dict[int, list[Timeline]] = {}
    for path in paths:
        part = read_trace(path, progress)
        parts.setdefault(part.sources[0].rank, []).append(part)
    for rank, of_rank in parts.items():
        if len(of_rank) > 1:
            files = ", ".join(source.path for part in of_rank for source in part.sources)
            raise UserError(f"rank {rank} has {len(of_rank)} traces ({files}); look at one of them at a time")
    return merge([of_rank[0] for _, of_rank in sorted(parts.items())])


def read_trace(path: Path, progress: Progress = _silent) -> Timeline:
    """One trace, plain or gzipped. TraceError where it is none; what a cut file holds up to the cut is kept."""
    document, columns = read_in_parallel(path, progress) or _read_by_itself(path, progress)
    if not columns.seen:
        lost = document.unreadable
        raise TraceError(
            path,
            f"holds {lost} events, none of which reads as JSON; write it anew"
            if lost
            else "has no events: the profiler recorded nothing",
        )
    rank = _rank(path, document.facts)
    tables = columns.tables(rank)
    source = Source(
        rank=rank,
        path=str(path),
        format="kineto",
        origin_ns=_origin(document.facts, columns.first_ns),
        device_names=_device_names(document.facts),
        world_size=integer(_distributed(document.facts).get("world_size")),
    )
    return Timeline(sources=(source,), findings=tuple(_findings(path, document, columns)), **tables)


def _read_by_itself(path: Path, progress: Progress) -> tuple[Document, Columns]:
    document, columns = Document(), Columns()
    for events in blocks(path, document):
        columns.add(events)
        progress(path, document.bytes_read, document.bytes_all)
    return document, columns


def _distributed(facts: dict[str, Any]) -> dict[str, Any]:
    found = facts.get("distributedInfo")
    return found if isinstance(found, dict) else {}


def _rank(path: Path, facts: dict[str, Any]) -> int:
    """What the trace says of its rank, else its file's name, else 0."""
    told = integer(_distributed(facts).get("rank"))
    if told is not None and 0 <= told < 1 << 31:
        return told
    named = _RANK_IN_NAME.search(path.name)
    return int(named[1]) if named else 0


def _device_names(facts: dict[str, Any]) -> dict[int, str]:
    properties = facts.get("deviceProperties")
    found: dict[int, str] = {}
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry["name"]:
            number = integer(entry.get("id"))
            if number is not None:
                found[number] = entry["name"]
    return found


def _origin(facts: dict[str, Any], first_ns: int | None) -> int | None:
    base = integer(facts.get("baseTimeNanoseconds"))
    if base:
        return base
    return 0 if first_ns is not None and first_ns > _EPOCH_NS else None


def _findings(path: Path, document: Document, columns: Columns) -> list[Finding]:
    found = []
    if not columns.known:
        text = (
            f"None of the {columns.seen} events of {path.name} is of a kind that torch.profiler writes: the file is a "
            "trace, but of something else."
        )
        found.append(Finding(code="nothing-known", severity="warning", text=text))
    if document.truncated:
        text = f"{path.name} ends in the middle of its events, as after a crash or a full disk: the rest is lost."
        found.append(Finding(code="truncated", severity="warning", text=text))
    if document.unreadable:
        text = (
            f"{document.unreadable} events of {path.name} do not read as JSON and were left out; sums may lack their "
            "time."
        )
        found.append(
            Finding(code="unreadable", severity="warning", text=text, evidence={"events": document.unreadable})
        )
    if document.mended:
        text = f"{path.name} is not quite JSON (stray bytes or escapes in names); it was mended while reading."
        found.append(Finding(code="mended", severity="info", text=text, evidence={"blocks": document.mended}))
    if columns.left_out:
        total = sum(columns.left_out.values())
        told = ", ".join(f"{count} {what}" for what, count in sorted(columns.left_out.items()))
        text = f"{total} events of {path.name} are no intervals ({told}) and count in no sum."
        found.append(Finding(code="impossible-times", severity="warning", text=text, evidence=dict(columns.left_out)))
    return found
