"""torch.profiler traces (Kineto's Chrome JSON) as a Timeline.

Times become int64 ns. Kineto writes µs with three decimals; whole and fraction are taken apart before they are scaled,
so that no digit is lost. What cannot be an interval (no end, an end before its start, time 0) is counted, told in a
finding, and left out.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...record.errors import TraceError, UserError
from ..findings import Finding
from ..timeline import SCHEMAS, Source, Timeline, merge
from .categories import CATEGORIES, ON_DEVICE, STEP_PREFIX
from .stream import Args, Document, Event, blocks

_RANK_IN_NAME = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
_EPOCH_US = 1e14
"""Above this a µs time can only be a Unix time (1973 on); below, it is a clock of the machine's own."""


def read_traces(paths: Iterable[Path], progress: Callable[[Path], None] = lambda _: None) -> Timeline:
    """Several traces, one a rank, as one timeline. `progress` is told of each before it is read.

    UserError where two files say that they are the same rank's, unless they follow one another as windows of a run.
    """
    parts: dict[int, list[Timeline]] = {}
    for path in paths:
        progress(path)
        part = read_trace(path)
        parts.setdefault(part.sources[0].rank, []).append(part)
    for rank, of_rank in parts.items():
        if len(of_rank) > 1:
            files = ", ".join(source.path for part in of_rank for source in part.sources)
            raise UserError(f"rank {rank} has {len(of_rank)} traces ({files}); look at one of them at a time")
    return merge([of_rank[0] for _, of_rank in sorted(parts.items())])


def read_trace(path: Path) -> Timeline:
    """One trace, plain or gzipped. TraceError where it is none; what a cut file holds up to the cut is kept."""
    document, rows = Document(), _Rows()
    for events in blocks(path, document):
        rows.add(events)
    if not rows.seen:
        raise TraceError(path, "has no events: the profiler recorded nothing")
    rank = _rank(path, document.facts)
    source = Source(
        rank=rank,
        path=str(path),
        format="kineto",
        origin_ns=_origin(document.facts, rows),
        device_names=_device_names(document.facts),
        world_size=_integer(_distributed(document.facts).get("world_size")),
    )
    return Timeline(sources=(source,), findings=tuple(_findings(path, document, rows)), **rows.tables(rank))


class _Rows:
    """Columns of the six tables, filled block by block."""

    def __init__(self) -> None:
        self.seen = 0
        self.known = 0
        self.left_out: Counter[str] = Counter()
        self.first_us = float("inf")
        self._parts: dict[str, list[dict[str, list[Any]]]] = {name: [] for name in SCHEMAS}

    def add(self, events: list[Event]) -> None:
        """Sort a block's events into the tables."""
        self.seen += len(events)
        known = [event for event in events if event.cat in CATEGORIES]
        self.known += len(known)
        timed = [event for event in known if event.ph == "X"]
        starts, ends = self._times(timed)
        columns: dict[str, dict[str, list[Any]]] = {
            name: {field.name: [] for field in schema} for name, schema in SCHEMAS.items()
        }
        for event, start, end in zip(timed, starts.tolist(), ends.tolist(), strict=True):
            if self._is_interval(event, start, end):
                _sort_in(columns, event, start, end)
        instants = [event for event in known if event.ph in ("i", "I") and CATEGORIES[event.cat] == "memory"]
        for event, time in zip(instants, _nanoseconds([event.ts for event in instants]).tolist(), strict=True):
            _add_memory(columns["memory"], event, time)
        for name, part in columns.items():
            self._parts[name].append(part)

    def tables(self, rank: int) -> dict[str, pa.Table]:
        """The tables of this rank."""
        found = {}
        for name, schema in SCHEMAS.items():
            batches = [
                pa.table([pa.array(part[field.name], _plain(field.type)) for field in schema], names=schema.names)
                for part in self._parts[name]
                if part["rank"]
            ]
            table = pa.concat_tables(batches) if batches else schema.empty_table()
            table = table.cast(schema) if batches else table
            found[name] = table.set_column(0, schema.field("rank"), pa.array([rank] * len(table), pa.int32()))
        return found

    def _times(self, events: list[Event]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        starts = _nanoseconds([event.ts for event in events])
        durations = _nanoseconds([event.dur for event in events])
        if len(starts):
            known = starts[starts > 0]
            self.first_us = min(self.first_us, float(known.min()) / 1e3 if len(known) else self.first_us)
        missing = (starts == _NO_TIME) | (durations == _NO_TIME)
        return starts, np.where(missing, _NO_TIME, starts + np.where(missing, 0, durations))

    def _is_interval(self, event: Event, start: int, end: int) -> bool:
        if end == _NO_TIME:
            self.left_out["unfinished"] += 1
        elif end < start:
            self.left_out["negative"] += 1
        elif start == 0 and CATEGORIES[event.cat] in ON_DEVICE:
            self.left_out["without a time"] += 1
        else:
            return True
        return False


_NO_TIME = -(1 << 62)


def _nanoseconds(times_us: list[Any]) -> npt.NDArray[np.int64]:
    """µs as numbers or text to whole ns; what is no number becomes `_NO_TIME`."""
    if all(type(value) is float for value in times_us):
        exact = np.array(times_us, dtype=np.float64)
        if not np.isfinite(exact).all():
            return np.array([_one(value) for value in times_us], dtype=np.int64)
        whole = np.floor(exact)
        return whole.astype(np.int64) * 1000 + np.rint((exact - whole) * 1000).astype(np.int64)
    return np.array([_one(value) for value in times_us], dtype=np.int64)


def _one(value: Any) -> int:
    if isinstance(value, bool) or value is None:
        return _NO_TIME
    if isinstance(value, int):
        return value * 1000 if abs(value) < 1 << 53 else _NO_TIME
    try:
        number = float(value)
    except (TypeError, ValueError):
        return _NO_TIME
    if not np.isfinite(number) or abs(number) >= 1 << 53:
        return _NO_TIME
    whole = int(np.floor(number))
    return whole * 1000 + round((number - whole) * 1000)


def _sort_in(columns: dict[str, dict[str, list[Any]]], event: Event, start: int, end: int) -> None:
    meaning = CATEGORIES[event.cat]
    args = event.args or _NO_ARGS
    name = event.name if isinstance(event.name, str) else str(event.name)
    if meaning in ON_DEVICE:
        row: dict[str, Any] = {
            "device": _small(args.device, event.pid),
            "stream": _identity(event.tid if args.stream is None else args.stream),
            "kind": meaning,
            "correlation": _integer(args.correlation),
            "process": None,
            "graph": _integer(args.graph_id) or None,
            "bytes": _integer(args.bytes),
        }
        table = columns["activities"]
    else:
        row = {"process": _identity(event.pid), "thread": _identity(event.tid)}
        if meaning == "launch":
            row["correlation"] = _integer(args.correlation)
            table = columns["launches"]
        elif meaning == "range" or name.startswith(STEP_PREFIX):
            row["style"] = "step" if name.startswith(STEP_PREFIX) else "annotation"
            table = columns["ranges"]
        else:
            shapes = args.old_shapes if args.shapes is None else args.shapes
            row["shapes"], row["dtypes"] = _as_text(shapes), _as_text(args.dtypes)
            row["sequence"] = _integer(args.sequence)
            row["external"] = _integer(args.old_external_id if args.external_id is None else args.external_id)
            table = columns["ops"]
    row |= {"rank": 0, "start": start, "end": end, "name": name}
    for key, column in table.items():
        column.append(row[key])


def _add_memory(table: dict[str, list[Any]], event: Event, time: int) -> None:
    args = event.args or _NO_ARGS
    delta = _integer(args.memory_bytes)
    if time == _NO_TIME or delta is None:
        return
    on_host = _integer(args.memory_device_type) == 0
    table["rank"].append(0)
    table["device"].append(-1 if on_host else _small(args.memory_device, 0))
    table["time"].append(time)
    table["delta_bytes"].append(delta)
    table["allocated_bytes"].append(_integer(args.memory_allocated))
    table["reserved_bytes"].append(_integer(args.memory_reserved))


_NO_ARGS = Args()


def _integer(value: Any) -> int | None:
    """An int64, from a number or digits; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, str) and value.strip().lstrip("-").isdigit():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else None


def _identity(value: Any) -> int:
    """A process, thread or stream as a number: itself, or for names a checksum that stays the same."""
    number = _integer(value)
    return zlib.crc32(str(value).encode()) if number is None else number


def _small(value: Any, otherwise: Any) -> int:
    for candidate in (value, otherwise):
        number = _integer(candidate)
        if number is not None and 0 <= number < 1 << 31:
            return number
    return 0


def _as_text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind


def _distributed(facts: dict[str, Any]) -> dict[str, Any]:
    found = facts.get("distributedInfo")
    return found if isinstance(found, dict) else {}


def _rank(path: Path, facts: dict[str, Any]) -> int:
    """What the trace says of its rank, else its file's name, else 0."""
    told = _integer(_distributed(facts).get("rank"))
    if told is not None and 0 <= told < 1 << 31:
        return told
    named = _RANK_IN_NAME.search(path.name)
    return int(named[1]) if named else 0


def _device_names(facts: dict[str, Any]) -> dict[int, str]:
    properties = facts.get("deviceProperties")
    found: dict[int, str] = {}
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry["name"]:
            number = _integer(entry.get("id"))
            if number is not None:
                found[number] = entry["name"]
    return found


def _origin(facts: dict[str, Any], rows: _Rows) -> int | None:
    base = _integer(facts.get("baseTimeNanoseconds"))
    if base:
        return base
    return 0 if _EPOCH_US < rows.first_us < float("inf") else None


def _findings(path: Path, document: Document, rows: _Rows) -> list[Finding]:
    found = []
    if not rows.known:
        text = (
            f"None of the {rows.seen} events of {path.name} is of a kind that torch.profiler writes: the file is a "
            "trace, but of something else."
        )
        found.append(Finding(code="nothing-known", severity="warning", text=text))
    if document.truncated:
        text = f"{path.name} ends in the middle of its events, as after a crash or a full disk: the rest is lost."
        found.append(Finding(code="truncated", severity="warning", text=text))
    if document.mended:
        text = f"{path.name} is not quite JSON (stray bytes or escapes in names); it was mended while reading."
        found.append(Finding(code="mended", severity="info", text=text, evidence={"blocks": document.mended}))
    if rows.left_out:
        total = sum(rows.left_out.values())
        told = ", ".join(f"{count} {what}" for what, count in sorted(rows.left_out.items()))
        text = f"{total} events of {path.name} are no intervals ({told}) and count in no sum."
        found.append(Finding(code="impossible-times", severity="warning", text=text, evidence=dict(rows.left_out)))
    return found
