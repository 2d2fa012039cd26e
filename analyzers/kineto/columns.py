"""Events of a trace as the rows of the tables, block by block into Arrow.

What cannot be an interval is counted by reason and left out: no end, an end before the start, no time (on a device
also time 0, which stands for a record that was lost), and a length of a day or more, which only a lost stamp gives.
"""

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..timeline import SCHEMAS
from .categories import COMMUNICATION_PREFIXES, ON_DEVICE, STEP_PREFIX, Meaning, meaning_of, style_of
from .events import Args, Event
from .times import BEYOND, NO_TIME, nanoseconds

LONGEST_NS = 24 * 3600 * 10**9

_Table = dict[str, Iterable[Any]]
_Times = npt.NDArray[np.int64]
_NO_ARGS = Args()


class Columns:
    """The tables, filled block by block."""

    def __init__(self) -> None:
        """Empty tables."""
        self.seen = 0
        self.known = 0
        self.left_out: Counter[str] = Counter()
        self.first_ns: int | None = None
        self._parts: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}
        self._begun: dict[tuple[Any, Any], list[Event]] = {}

    def add(self, events: list[Event]) -> None:
        """Sort a block's events into the tables."""
        self.seen += len(events)
        whole: list[tuple[Meaning, Event]] = []
        memory: list[Event] = []
        for event in events:
            if event.ph == "B":
                self._begun.setdefault((event.pid, event.tid), []).append(event)
                continue
            if event.ph == "E":
                event = self._completed(event)
            elif event.ph == "C":
                self.known += 1
                self._counters(event)
                continue
            meaning = meaning_of(event)
            if meaning is None:
                continue
            self.known += 1
            if event.ph == "X":
                whole.append((meaning, event))
            elif meaning == "memory" and event.ph in ("i", "I"):
                memory.append(event)
        self._intervals(whole)
        self._memory(memory)

    def tables(self, rank: int) -> dict[str, pa.Table]:
        """The tables of this rank; what has begun and never ended is counted."""
        open_ends = sum(meaning_of(event) is not None for stack in self._begun.values() for event in stack)
        if open_ends:
            self.left_out["unfinished"] += open_ends
            self._begun.clear()
        found = {}
        for name, schema in SCHEMAS.items():
            parts = self._parts[name]
            table = pa.concat_tables(parts).unify_dictionaries() if parts else schema.empty_table()
            found[name] = table.set_column(0, schema.field("rank"), pa.array(np.full(len(table), rank, np.int32)))
        return found

    def _completed(self, end: Event) -> Event:
        """The event that `end` (ph E) closes, from its begin to here: the last one begun on this thread."""
        stack = self._begun.get((end.pid, end.tid))
        if not stack:
            return Event()
        begin = stack.pop()
        start_ns, end_ns = nanoseconds([begin.ts, end.ts]).tolist()
        timed = abs(start_ns) < BEYOND and abs(end_ns) < BEYOND
        begin.ph, begin.dur = "X", f"{end_ns - start_ns}e-3" if timed else None
        return begin

    def _intervals(self, whole: list[tuple[Meaning, Event]]) -> None:
        starts = nanoseconds([event.ts for _, event in whole])
        durations = nanoseconds([event.dur for _, event in whole])
        on_device = np.array([meaning in ON_DEVICE for meaning, _ in whole], dtype=bool)
        spoilt = np.zeros(len(whole), dtype=bool)
        for reason, found in (
            ("without a time", (np.abs(starts) >= BEYOND) | (starts == NO_TIME) | (on_device & (starts == 0))),
            ("unfinished", durations == NO_TIME),
            ("negative", durations < 0),
            ("longer than a day", durations >= LONGEST_NS),
        ):
            self.left_out[reason] += int((found & ~spoilt).sum())
            spoilt |= found
        self.left_out += Counter()  # drops reasons that nothing has
        ends = np.where(spoilt, 0, starts) + np.where(spoilt, 0, durations)
        self._note_first(starts[~spoilt])
        rows: dict[str, list[int]] = {"activities": [], "launches": [], "ranges": [], "ops": []}
        for row in np.flatnonzero(~spoilt).tolist():
            rows[_table_of(*whole[row])].append(row)
        for name, chosen in rows.items():
            events = [whole[row][1] for row in chosen]
            made = _MAKERS[name](events, [whole[row][0] for row in chosen])
            self._put(name, len(chosen), made | {"start": starts[chosen], "end": ends[chosen]})
            said = [at for at, event in enumerate(events) if _communicates(event)]
            times = {"start": starts[chosen][said], "end": ends[chosen][said]}
            self._put("collectives", len(said), _said_of_collectives(name, [events[at] for at in said]) | times)

    def _note_first(self, starts: _Times) -> None:
        known = starts[starts > 0]
        if len(known):
            first = int(known.min())
            self.first_ns = first if self.first_ns is None else min(first, self.first_ns)

    def _memory(self, events: list[Event]) -> None:
        times = nanoseconds([event.ts for event in events]).tolist()
        kept = [
            (event.args or _NO_ARGS, time)
            for event, time in zip(events, times, strict=True)
            if abs(time) < BEYOND and integer((event.args or _NO_ARGS).memory_bytes) is not None
        ]
        columns: _Table = {
            "device": [-1 if integer(a.memory_device_type) == 0 else _small(a.memory_device, 0) for a, _ in kept],
            "time": [time for _, time in kept],
            "delta_bytes": [integer(a.memory_bytes) for a, _ in kept],
            "allocated_bytes": [integer(a.memory_allocated) for a, _ in kept],
            "reserved_bytes": [integer(a.memory_reserved) for a, _ in kept],
        }
        self._put("memory", len(kept), columns)

    def _counters(self, event: Event) -> None:
        """One row for each series of a counter event (ph C) whose value is a number."""
        [time] = nanoseconds([event.ts]).tolist()
        if abs(time) >= BEYOND or not event.args or not event.args.series:
            return
        single = len(event.args.series) == 1
        series = {
            _name(event) if single else f"{_name(event)}: {name}": float(value)
            for name, value in event.args.series.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
        }
        rows = len(series)
        columns: _Table = {"device": [None] * rows, "time": [time] * rows, "name": series, "value": series.values()}
        self._put("counters", rows, columns)

    def _put(self, name: str, count: int, columns: _Table) -> None:
        if not count:
            return
        schema = SCHEMAS[name]
        columns["rank"] = np.zeros(count, np.int32)
        self._parts[name].append(pa.table([_array(columns[field.name], field.type) for field in schema], schema=schema))


def _array(values: Iterable[Any], kind: pa.DataType) -> pa.Array:
    rows = values if isinstance(values, np.ndarray) else list(values)
    if pa.types.is_dictionary(kind):
        return pa.array(rows, pa.string()).dictionary_encode()
    return pa.array(rows, kind)


def _table_of(meaning: Meaning, event: Event) -> str:
    if meaning in ON_DEVICE:
        return "activities"
    if meaning == "launch":
        return "launches"
    return "ranges" if meaning == "range" or _name(event).startswith(STEP_PREFIX) else "ops"


def _activities(events: list[Event], meanings: Sequence[Meaning]) -> _Table:
    args = [event.args or _NO_ARGS for event in events]
    return {
        "device": [_small(a.device, event.pid) for a, event in zip(args, events, strict=True)],
        "stream": [
            _identity(event.tid if a.stream is None else a.stream) for a, event in zip(args, events, strict=True)
        ],
        "kind": [
            "graph" if _own(event, "kind") == "graph" else meaning
            for event, meaning in zip(events, meanings, strict=True)
        ],
        "name": map(_name, events),
        "correlation": [integer(a.correlation) for a in args],
        "process": [integer(_own(event, "process")) for event in events],
        "graph": [integer(a.graph_id) or None for a in args],
        "bytes": [integer(a.bytes) for a in args],
        "external": [integer(a.old_external_id if a.external_id is None else a.external_id) for a in args],
    }


def _launches(events: list[Event], _: Sequence[Meaning]) -> _Table:
    return _host(events) | {"correlation": [integer((event.args or _NO_ARGS).correlation) for event in events]}


def _ranges(events: list[Event], _: Sequence[Meaning]) -> _Table:
    return _host(events) | {"style": [_own_style(event) or style_of(_name(event)) for event in events]}


def _ops(events: list[Event], _: Sequence[Meaning]) -> _Table:
    args = [event.args or _NO_ARGS for event in events]
    return _host(events) | {
        "shapes": [_as_text(a.old_shapes if a.shapes is None else a.shapes) for a in args],
        "dtypes": [_as_text(a.dtypes) for a in args],
        "sequence": [integer(a.sequence) for a in args],
        "external": [integer(a.old_external_id if a.external_id is None else a.external_id) for a in args],
    }


def _host(events: list[Event]) -> _Table:
    return {
        "process": [_identity(event.pid) for event in events],
        "thread": [_thread(event) for event in events],
        "name": map(_name, events),
    }


_MAKERS: dict[str, Callable[[list[Event], Sequence[Meaning]], _Table]] = {
    "activities": _activities,
    "launches": _launches,
    "ranges": _ranges,
    "ops": _ops,
}


def _said_of_collectives(table: str, events: list[Event]) -> _Table:
    """What events, rows of `table`, say of the collectives that they are."""
    args = [event.args or _NO_ARGS for event in events]
    sizes = [_elements(a) for a in args]
    nothing = [None] * len(events)
    place: _Table = {"device": nothing, "correlation": nothing, "process": nothing, "thread": nothing}
    if table == "activities":
        place["device"] = [_small(a.device, event.pid) for a, event in zip(args, events, strict=True)]
        place["correlation"] = [integer(a.correlation) for a in args]
    else:
        place |= {name: values for name, values in _host(events).items() if name != "name"}
    return place | {
        "name": [_name(event) for event in events],
        "collective": [
            str(_name(event) if a.collective is None else a.collective) for event, a in zip(events, args, strict=True)
        ],
        "group": [None if a.group is None else str(a.group) for a in args],
        "group_size": [integer(a.group_size) for a in args],
        "dtype": [dtype for dtype, _, _ in sizes],
        "in_elements": [given for _, given, _ in sizes],
        "out_elements": [taken for _, _, taken in sizes],
    }


def _communicates(event: Event) -> bool:
    if event.args is not None and event.args.collective is not None:
        return True
    return isinstance(event.name, str) and event.name.startswith(COMMUNICATION_PREFIXES)


def _elements(args: Args) -> tuple[str | None, int | None, int | None]:
    """A collective's type what one rank hands in and what it gets, in elements; else those of its inputs."""
    if args.in_elements is not None or args.out_elements is not None:
        return (
            None if args.element is None else str(args.element),
            integer(args.in_elements),
            integer(args.out_elements),
        )
    dtypes, shapes = args.dtypes, args.old_shapes if args.shapes is None else args.shapes
    if not (isinstance(dtypes, list) and dtypes and isinstance(shapes, list) and shapes):
        return None, None, None
    shape = shapes[0]
    if not isinstance(shape, list) or not all(isinstance(side, int) for side in shape):
        return None, None, None
    return str(dtypes[0]), math.prod(shape) if shape else None, None


def _own(event: Event, key: str) -> Any:
    """What a trace that we have written says beside what Kineto would; None in all others."""
    own = event.args.own if event.args is not None else None
    return own.get(key) if isinstance(own, dict) else None


def _kind(event: Event, meaning: Meaning) -> str:
    return "graph" if _own(event, "kind") == "graph" else meaning


def _own_style(event: Event) -> str | None:
    style = _own(event, "style")
    return style if style in ("pushpop", "startend", "annotation", "step", "module") else None


def _thread(event: Event) -> int:
    own = integer(_own(event, "thread"))
    return _identity(event.tid) if own is None else own


def integer(value: Any) -> int | None:
    """An int64, from a number or digits; None for anything else."""
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 63 else None
    if isinstance(value, str) and len(value) < 24 and value.strip().lstrip("-").isdecimal():
        return integer(int(value))
    if isinstance(value, float) and value.is_integer():
        return integer(int(value))
    return None


def _identity(value: Any) -> int:
    """A process, thread or stream as a number: itself, or for names a checksum that stays the same."""
    number = integer(value)
    return zlib.crc32(str(value).encode()) if number is None else number


def _small(value: Any, otherwise: Any) -> int:
    for candidate in (value, otherwise):
        number = integer(candidate)
        if number is not None and 0 <= number < 1 << 31:
            return number
    return 0


def _name(event: Event) -> str:
    return event.name if isinstance(event.name, str) else str(event.name)


def _as_text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
