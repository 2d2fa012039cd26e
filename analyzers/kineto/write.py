"""A timeline as a Chrome trace: for Perfetto, and to be read again without loss.

Events have the names, categories and arguments that torch.profiler gives them. Perfetto drops slices that overlap
others of their track without lying within them: such ones go to tracks (lanes) of their own, as does device work that
overlaps other work of its stream at all. What our reader needs to put a row back, and Kineto has no place for, is in
the argument `stepscope`. Of counters the device is not kept.
"""

import gzip
from collections import deque
from collections.abc import Iterator, Sequence
from io import BufferedWriter
from pathlib import Path
from typing import Any

import msgspec

from ...record.atomic import beside
from ..timeline import Source, Timeline
from .categories import style_of
from .events import OWN

_CATEGORIES = {
    "kernel": "kernel",
    "graph": "kernel",
    "memcpy": "gpu_memcpy",
    "memset": "gpu_memset",
    "sync": "cuda_sync",
}
"""Kind of activity → its category."""
_Row = dict[str, Any]
_Track = tuple[int, int]


def write_trace(timeline: Timeline, path: Path) -> None:
    """Write the timeline of one rank, whole or not at all; gzipped where the name ends in .gz."""
    [source] = timeline.sources
    with beside(path) as part, _opened(part, path.suffix) as file:
        file.write(b'{"schemaVersion": 1,\n"traceEvents": [\n')
        for number, event in enumerate(_events(timeline)):
            file.write((b",\n" if number else b"") + msgspec.json.encode(event))
        file.write(b"\n],\n" + msgspec.json.encode(_facts(source))[1:])


def _opened(path: Path, suffix: str) -> "gzip.GzipFile | BufferedWriter":
    return gzip.GzipFile(path, "wb", compresslevel=5) if suffix == ".gz" else path.open("wb")


def _facts(source: Source) -> _Row:
    distributed = {"rank": source.rank} | ({} if source.world_size is None else {"world_size": source.world_size})
    found: _Row = {"distributedInfo": distributed}
    if source.origin_ns:
        found["baseTimeNanoseconds"] = source.origin_ns
    found["deviceProperties"] = [{"id": device, "name": name} for device, name in source.device_names.items()]
    return found


def _events(timeline: Timeline) -> Iterator[_Row]:
    said = _Said(timeline.collectives.to_pylist())
    yield from _on_devices(timeline.activities.to_pylist(), said)
    yield from _on_host(timeline, said)
    for row in timeline.memory.to_pylist():
        args = {
            "Bytes": row["delta_bytes"],
            "Total Allocated": row["allocated_bytes"],
            "Total Reserved": row["reserved_bytes"],
            "Device Id": row["device"],
            "Device Type": 0 if row["device"] == -1 else 1,
        }
        event = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 0, "tid": 0}
        yield event | {"ts": _us(row["time"]), "args": _given(args)}
    for row in timeline.counters.to_pylist():
        yield {"ph": "C", "name": row["name"], "pid": 0, "ts": _us(row["time"]), "args": {"value": row["value"]}}


class _Said:
    """What is said of collectives, by the row that it is said of."""

    def __init__(self, rows: Sequence[_Row]) -> None:
        self._rows: dict[tuple[Any, ...], deque[_Row]] = {}
        for row in rows:
            self._rows.setdefault(self._key(row), deque()).append(row)

    @staticmethod
    def _key(row: _Row) -> tuple[Any, ...]:
        on_device = row.get("device") is not None
        place = ("device", "correlation") if on_device else ("process", "thread")
        return (on_device, *(row[name] for name in (*place, "start", "end", "name")))

    def of(self, row: _Row) -> _Row:
        """The arguments that say it; empty where the row is no collective."""
        left = self._rows.get(self._key(row))
        if not left:
            return {}
        told = left.popleft()
        return {
            "Collective name": told["collective"],
            "Process Group Name": told["group"],
            "Group size": told["group_size"],
            "dtype": told["dtype"],
            "In msg nelems": told["in_elements"],
            "Out msg nelems": told["out_elements"],
        }


def _on_devices(rows: list[_Row], said: _Said) -> Iterator[_Row]:
    tracks = [(row["device"], row["stream"]) for row in rows]
    for row, (track, _) in zip(rows, _lanes(rows, tracks, nested=False), strict=True):
        own = {"process": row["process"], "kind": row["kind"] if row["kind"] == "graph" else None}
        args = {
            "device": row["device"],
            "stream": row["stream"],
            "correlation": row["correlation"],
            "graph id": row["graph"],
            "bytes": row["bytes"],
            "External id": row["external"],
            **said.of(row),
        }
        yield _slice(row, _CATEGORIES[row["kind"]], track, args, own)


def _on_host(timeline: Timeline, said: _Said) -> Iterator[_Row]:
    tables = {"cuda_runtime": timeline.launches, "user_annotation": timeline.ranges, "cpu_op": timeline.ops}
    rows = [(category, row) for category, table in tables.items() for row in table.to_pylist()]
    tracks = [(row["process"], row["thread"]) for _, row in rows]
    lanes = _lanes([row for _, row in rows], tracks, nested=True)
    for (category, row), (track, lane) in zip(rows, lanes, strict=True):
        own: _Row = {"thread": row["thread"] if lane else None}
        args: _Row = {"correlation": row["correlation"]} if category == "cuda_runtime" else said.of(row)
        if category == "user_annotation" and row["style"] != style_of(row["name"]):
            own["style"] = row["style"]
        if category == "cpu_op":
            args |= {"Sequence number": row["sequence"], "External id": row["external"]}
            args |= {
                key: None if row[name] is None else msgspec.Raw(row[name].encode())
                for key, name in (("Input Dims", "shapes"), ("Input type", "dtypes"))
            }
        yield _slice(row, category, track, args, own)


def _slice(row: _Row, category: str, track: _Track, args: _Row, own: _Row) -> _Row:
    more = _given(args)
    if told := _given(own):
        more[OWN] = told
    event = {"ph": "X", "cat": category, "name": row["name"], "pid": track[0], "tid": track[1]}
    return event | {"ts": _us(row["start"]), "dur": _us(row["end"] - row["start"]), "args": more}


def _lanes(rows: Sequence[_Row], tracks: Sequence[_Track], *, nested: bool) -> list[tuple[_Track, int]]:
    """For each row its track and lane; `nested`: rows may lie within others of their lane, else only beside them."""
    free = 1 + max((thread for _, thread in tracks), default=0)
    found: list[tuple[_Track, int]] = [((0, 0), 0)] * len(rows)
    open_until: dict[_Track, list[list[int]]] = {}
    named: dict[tuple[_Track, int], _Track] = {}
    for at in sorted(range(len(rows)), key=lambda at: (rows[at]["start"], -rows[at]["end"], at)):
        track, start, end = tracks[at], rows[at]["start"], rows[at]["end"]
        lanes = open_until.setdefault(track, [])
        lane = _fitting(lanes, start, end, nested=nested)
        if lane == len(lanes):
            lanes.append([])
            named[track, lane] = track if lane == 0 else (track[0], free)
            free += lane > 0
        lanes[lane].append(end)
        found[at] = named[track, lane], lane
    return found


def _fitting(lanes: list[list[int]], start: int, end: int, *, nested: bool) -> int:
    """The first lane with room for [start, end), a new one if need be; a lane is the ends of what is open on it."""
    for lane, still_open in enumerate(lanes):
        while still_open and still_open[-1] <= start:
            still_open.pop()
        if not still_open or (nested and end <= still_open[-1]):
            return lane
    return len(lanes)


def _given(args: _Row) -> _Row:
    return {name: value for name, value in args.items() if value is not None}


def _us(time_ns: int) -> msgspec.Raw:
    """Kineto's µs with three decimals, to the nanosecond."""
    whole, rest = divmod(abs(time_ns), 1000)
    return msgspec.Raw(f"{'-' if time_ns < 0 else ''}{whole}.{rest:03}".encode())
