"""Events of a trace as the rows of the tables, block by block into Arrow.

What cannot be an interval is counted by reason and left out: no end, an end before the start, no time (on a device
also time 0, which stands for a record that was lost), and a length of a day or more, which only a lost stamp gives.
"""

from collections import Counter
from collections.abc import Callable
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..timeline import SCHEMAS
from .categories import CATEGORIES, STEP_PREFIX, Meaning, meaning_of, style_of
from .events import NO_ARGS, Args, Event
from .said import communicating, said_of_collectives
from .times import BEYOND, NO_TIME, nanoseconds
from .values import devices, finite, identities, integer, integers, json_texts, links, names

LONGEST_NS = 24 * 3600 * 10**9

_Table = dict[str, Any]
_Times = npt.NDArray[np.int64]

_TABLE_OF: dict[Meaning | None, str] = {
    "kernel": "activities",
    "memcpy": "activities",
    "memset": "activities",
    "sync": "activities",
    "launch": "launches",
    "op": "ops",
    "range": "ranges",
}
_TABLE_OF_CATEGORY = {name: _TABLE_OF[meaning] for name, meaning in CATEGORIES.items() if meaning in _TABLE_OF}


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
        rows: dict[str, list[Event]] = {"activities": [], "launches": [], "ranges": [], "ops": []}
        put = {category: rows[table].append for category, table in _TABLE_OF_CATEGORY.items()}
        others: list[Event] = []
        for event in events:
            if event.ph == "X":
                append = put.get(event.cat)  # type: ignore[arg-type]
                if append is not None:
                    append(event)
                    continue
            elif event.ph in ("s", "f", "t"):  # arrows, a third of all
                continue
            others.append(event)
        self._others(others, rows)
        if any(event.name.startswith(STEP_PREFIX) for event in rows["ops"]):
            rows["ranges"] += [event for event in rows["ops"] if event.name.startswith(STEP_PREFIX)]
            rows["ops"] = [event for event in rows["ops"] if not event.name.startswith(STEP_PREFIX)]
        for table, chosen in rows.items():
            self.known += len(chosen)
            if chosen:
                self._intervals(table, chosen)
        self.left_out += Counter()  # drops reasons that nothing has

    def absorb(self, later: "Columns") -> None:
        """Take in the tables of a later part of the trace, in which nothing begins or ends that other parts hold."""
        self.seen += later.seen
        self.known += later.known
        self.left_out += later.left_out
        firsts = [first for first in (self.first_ns, later.first_ns) if first is not None]
        self.first_ns = min(firsts, default=None)
        for name, parts in later._parts.items():
            self._parts[name] += parts

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

    def _others(self, events: list[Event], rows: dict[str, list[Event]]) -> None:
        """What is no whole interval of a category's own: begins and ends, counters, allocations, Python frames."""
        memory: list[Event] = []
        for event in events:
            if event.ph == "B":
                self._begun.setdefault((event.pid, event.tid), []).append(event)
                continue
            if event.ph == "C":
                self.known += 1
                self._counters(event)
                continue
            whole = self._completed(event) if event.ph == "E" else event
            meaning = meaning_of(whole)
            if meaning in _TABLE_OF and whole.ph == "X":
                rows[_TABLE_OF[meaning]].append(whole)
            elif meaning is not None:
                self.known += 1
                if meaning == "memory" and event.ph in ("i", "I"):
                    memory.append(event)
        self._memory(memory)

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

    def _intervals(self, table: str, events: list[Event]) -> None:
        starts = nanoseconds([event.ts for event in events])
        durations = nanoseconds([event.dur for event in events])
        spoilt = self._spoilt(starts, durations, on_device=table == "activities")
        if spoilt.any():
            events = list(compress(events, (~spoilt).tolist()))
            starts, durations = starts[~spoilt], durations[~spoilt]
        if not events:
            return
        self._note_first(starts)
        made = _MAKERS[table](events, [event.args or NO_ARGS for event in events])
        made["name"] = names(event.name for event in events)
        made |= {"start": starts, "end": starts + durations}
        self._put(table, len(events), made)
        places = communicating(events, made["name"])
        if places:
            said = [events[at] for at in places]
            host = None if table == "activities" else {key: made[key][places] for key in ("process", "thread")}
            times = {"start": starts[places], "end": made["end"][places]}
            self._put("collectives", len(said), said_of_collectives(said, host) | times)

    def _spoilt(self, starts: _Times, durations: _Times, *, on_device: bool) -> npt.NDArray[np.bool_]:
        """Which are no intervals; counted by the first reason that each has."""
        spoilt = np.zeros(len(starts), dtype=bool)
        for reason, found in (
            ("without a time", (np.abs(starts) >= BEYOND) | (starts == NO_TIME) | (on_device & (starts == 0))),
            ("unfinished", durations == NO_TIME),
            ("negative", durations < 0),
            ("longer than a day", durations >= LONGEST_NS),
        ):
            self.left_out[reason] += int((found & ~spoilt).sum())
            spoilt |= found
        return spoilt

    def _note_first(self, starts: _Times) -> None:
        known = starts[starts > 0]
        if len(known):
            first = int(known.min())
            self.first_ns = first if self.first_ns is None else min(first, self.first_ns)

    def _memory(self, events: list[Event]) -> None:
        times = nanoseconds([event.ts for event in events]).tolist()
        kept = [
            (event.args or NO_ARGS, time)
            for event, time in zip(events, times, strict=True)
            if abs(time) < BEYOND and integer((event.args or NO_ARGS).memory_bytes) is not None
        ]
        on_host = np.array([integer(a.memory_device_type) == 0 for a, _ in kept], dtype=bool)
        columns: _Table = {
            "device": np.where(on_host, -1, devices([a.memory_device for a, _ in kept], [0] * len(kept))),
            "time": [time for _, time in kept],
            "delta_bytes": integers([a.memory_bytes for a, _ in kept]),
            "allocated_bytes": integers([a.memory_allocated for a, _ in kept]),
            "reserved_bytes": integers([a.memory_reserved for a, _ in kept]),
        }
        self._put("memory", len(kept), columns)

    def _counters(self, event: Event) -> None:
        """One row for each series of a counter event (ph C) whose value is a number."""
        [time] = nanoseconds([event.ts]).tolist()
        if abs(time) >= BEYOND or not event.args or not event.args.series:
            return
        single = len(event.args.series) == 1
        series = {
            event.name if single else f"{event.name}: {name}": number
            for name, value in event.args.series.items()
            if (number := finite(value)) is not None
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


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_dictionary(kind):
        return names(values)
    return pa.array(values if isinstance(values, np.ndarray) else list(values), kind)


def _activities(events: list[Event], args: list[Args]) -> _Table:
    streams = [a.stream for a in args]
    if None in streams:
        streams = [event.tid if stream is None else stream for stream, event in zip(streams, events, strict=True)]
    kinds: list[Any] = [meaning_of(event) for event in events]
    processes: list[Any] = [None] * len(events)
    for at, own in _own(args):
        kinds[at] = "graph" if own.get("kind") == "graph" else kinds[at]
        processes[at] = integer(own.get("process"))
    graphs = integers([a.graph_id for a in args])
    return {
        "device": devices([a.device for a in args], [event.pid for event in events]),
        "stream": identities(streams),
        "kind": kinds,
        "correlation": links([a.correlation for a in args]),
        "process": processes,
        "graph": pa.compute.if_else(pa.compute.equal(graphs, 0), None, graphs),
        "bytes": integers([a.bytes for a in args]),
        "external": _external(args),
    }


def _launches(events: list[Event], args: list[Args]) -> _Table:
    return _host(events, args) | {"correlation": links([a.correlation for a in args])}


def _ranges(events: list[Event], args: list[Args]) -> _Table:
    styles = [style_of(event.name) for event in events]
    for at, own in _own(args):
        if own.get("style") in ("pushpop", "startend", "annotation", "step", "module"):
            styles[at] = own["style"]
    return _host(events, args) | {"style": styles}


def _ops(events: list[Event], args: list[Args]) -> _Table:
    shapes = json_texts([a.shapes for a in args])
    if None in shapes:
        old = json_texts([a.old_shapes for a in args])
        shapes = [before if shape is None else shape for shape, before in zip(shapes, old, strict=True)]
    return _host(events, args) | {
        "shapes": shapes,
        "dtypes": json_texts([a.dtypes for a in args]),
        "sequence": integers([a.sequence for a in args]),
        "external": _external(args),
    }


def _host(events: list[Event], args: list[Args]) -> _Table:
    threads = identities([event.tid for event in events])
    owned = _own(args)
    threads = threads.copy() if owned else threads
    for at, own in owned:
        thread = integer(own.get("thread"))
        threads[at] = threads[at] if thread is None else thread
    return {"process": identities([event.pid for event in events]), "thread": threads}


def _external(args: list[Args]) -> pa.Array:
    external = [a.external_id for a in args]
    if None in external:
        external = [a.old_external_id if new is None else new for new, a in zip(external, args, strict=True)]
    return links(external)


def _own(args: list[Args]) -> list[tuple[int, dict[str, Any]]]:
    """What a trace that we have written says beside what Kineto would; nothing in all others."""
    return [(at, a.own) for at, a in enumerate(args) if isinstance(a.own, dict)]


_MAKERS: dict[str, Callable[[list[Event], list[Args]], _Table]] = {
    "activities": _activities,
    "launches": _launches,
    "ranges": _ranges,
    "ops": _ops,
}
