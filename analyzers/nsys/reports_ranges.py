"""NVTX ranges: their sums, and their nesting.

A range is called `domain:text`; the default domain has no name, so that its ranges begin with a colon. Ranges that were
never closed have no length and are left out. A range's id is the number of its row among all NVTX events.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .export import Export
from .reports_asked import PUSH_POP, START_END, Asked, Row, Value, largest_first, with_share
from .reports_engine import LONG, NO_NUMBER, Array, database, in_order, process_of, summed, thread_of
from .reports_nesting import Nesting, nested
from .summaries import UNKNOWN

STYLES = {PUSH_POP: "PushPop", START_END: "StartEnd"}
_DOMAIN = 75


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Closed ranges in the order of their rows."""

    id: Array
    start: Array
    end: Array
    style: Array
    """PUSH_POP or START_END."""
    thread: Array
    """globalTid of the thread that began it."""
    on_one_thread: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Whether it ends on that thread."""
    name: Array
    """Index into `names` and `texts`."""
    names: list[str]
    """`domain:text`, each once."""
    texts: list[str]
    """The same without the domain."""

    def __len__(self) -> int:
        """How many."""
        return len(self.id)

    def only(self, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> "Ranges":
        """Those for which `which` is true."""
        return Ranges(
            id=self.id[which],
            start=self.start[which],
            end=self.end[which],
            style=self.style[which],
            thread=self.thread[which],
            on_one_thread=self.on_one_thread[which],
            name=self.name[which],
            names=self.names,
            texts=self.texts,
        )

    def within(self, asked: Asked) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which of them count in the window."""
        first, last = asked.window
        inside = np.ones(len(self), dtype=bool)
        if first is not None:
            inside &= self.end >= first
        if last is not None:
            inside &= self.start <= last
        return inside

    def prefix(self, index: Value) -> str:
        """What `:nvtx-name` puts before the names of kernels of range name `index`."""
        return f"{self.texts[index]}/" if isinstance(index, int) and index >= 0 else ""

    def nesting(self) -> Nesting:
        """The push/pop ranges on their threads' stacks; start/end ranges are on none."""
        stack = np.flatnonzero(self.style == PUSH_POP)
        found = nested(self.start[stack], self.end[stack], self.thread[stack])
        parent = np.full(len(self), NO_NUMBER, dtype=np.int64)
        level = np.full(len(self), NO_NUMBER, dtype=np.int64)
        parent[stack] = np.where(found.parent < 0, NO_NUMBER, stack[found.parent] if len(stack) else NO_NUMBER)
        level[stack] = found.level
        return Nesting(parent=parent, level=level)


def no_ranges() -> Ranges:
    """Of an export whose ranges nobody asks for."""
    nothing = np.empty(0, dtype=np.int64)
    return Ranges(
        id=nothing, start=nothing, end=nothing, style=nothing, thread=nothing,
        on_one_thread=nothing.astype(bool), name=nothing, names=[], texts=[],
    )  # fmt: skip


def load_ranges(export: Export) -> Ranges:
    """All closed ranges of an export; none where it has no NVTX events."""
    table = export.table("NVTX_EVENTS")
    events = _events(export, table) if table else _EVENTS.empty_table()
    kind, start, end, thread, end_thread, domain = (
        pc.fill_null(events[name], NO_NUMBER).to_numpy()
        for name in ("kind", "start", "end", "thread", "end_thread", "domain")
    )
    texts = _texts(export, events)
    domains = _domains(texts, kind, process_of(thread), domain)
    kept = np.flatnonzero(np.isin(kind, list(STYLES)) & pc.is_valid(events["end"]).to_numpy() & (end >= start))
    encoded = texts.take(pa.array(kept)).dictionary_encode()
    words = encoded.dictionary.to_pylist()
    place = process_of(thread[kept]) << 32 | domain[kept]
    places, place_code = np.unique(place, return_inverse=True)
    pairs, name = np.unique(place_code * len(words) + encoded.indices.to_numpy(), return_inverse=True)
    named = [(domains.get(int(places[pair // len(words)]), ""), words[pair % len(words)]) for pair in pairs.tolist()]
    distinct = {pair: index for index, pair in enumerate(dict.fromkeys(named))}
    return Ranges(
        id=kept + 1,
        start=start[kept],
        end=end[kept],
        style=kind[kept],
        thread=thread[kept],
        on_one_thread=(end_thread[kept] <= 0) | (end_thread[kept] == thread[kept]),
        name=np.array([distinct[pair] for pair in named], dtype=np.int64)[name],
        names=[f"{of}:{text}" for of, text in distinct],
        texts=[text for _, text in distinct],
    )


_EVENTS = pa.schema(
    [
        *(pa.field(name, LONG) for name in ("kind", "start", "end", "thread", "end_thread", "domain", "text_id")),
        pa.field("text", pa.string()),
    ]
)


def _events(export: Export, table: str) -> pa.Table:
    """All NVTX events in the order of their rows; a column that the table lacks is null."""
    has = export.columns(table)
    sources = ("eventType", "start", "end", "globalTid", "endGlobalTid", "domainId", "textId", "text")
    selected = ", ".join(
        f"{_quoted(source) if source in has else 'NULL'} AS {_quoted(field.name)}"
        for source, field in zip(sources, _EVENTS, strict=True)
    )
    with export.batches(f"SELECT {selected} FROM {table}", {field.name: field.type for field in _EVENTS}) as rows:
        return rows.read_all()


def _quoted(name: str) -> str:
    return f'"{name}"'


def _texts(export: Export, events: pa.Table) -> pa.Array:
    """Each event's text, its own or that of its id."""
    strings = export.strings()
    by_id = pa.array(strings.values(), pa.string()).take(
        pc.index_in(events["text_id"], value_set=pa.array(strings.keys(), LONG)).combine_chunks()
    )
    own = pc.if_else(pc.equal(events["text"], ""), None, events["text"])
    found = pc.coalesce(own, by_id, UNKNOWN)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _domains(texts: pa.Array, kind: Array, process: Array, domain: Array) -> dict[int, str]:
    """Process and domain, as one number, → the domain's name."""
    created = np.flatnonzero(kind == _DOMAIN)
    names = texts.take(pa.array(created)).to_pylist()
    return dict(zip((process[created] << 32 | domain[created]).tolist(), names, strict=True))


def range_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """All ranges by style and name."""
    return with_share(largest_first(_sum(export, asked, (PUSH_POP, START_END)), names=2))


def push_pop_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Push/pop ranges by name."""
    return with_share(largest_first([(*row[:-2], row[-1]) for row in _sum(export, asked, (PUSH_POP,))]))


def start_end_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Start/end ranges by name."""
    return with_share(largest_first([(*row[:-2], row[-1]) for row in _sum(export, asked, (START_END,))]))


def push_pop_trace(export: Export, asked: Asked) -> Iterable[Row]:
    """Every push/pop range by its start, with its place on its thread's stack."""
    ranges = load_ranges(export)
    ranges = ranges.only(ranges.style == PUSH_POP)
    nesting = ranges.nesting()
    duration = ranges.end - ranges.start
    children, in_children = np.zeros_like(duration), np.zeros_like(duration)
    inner = np.flatnonzero(nesting.parent >= 0)
    np.add.at(children, nesting.parent[inner], 1)
    np.add.at(in_children, nesting.parent[inner], duration[inner])
    parent_id = np.where(nesting.parent < 0, NO_NUMBER, ranges.id[nesting.parent])
    columns = (
        ranges.start, ranges.end, duration, in_children, duration - in_children, ranges.name,
        process_of(ranges.thread), thread_of(ranges.thread), nesting.level, children, ranges.id, parent_id,
    )  # fmt: skip
    stacks, shown = nesting.stacks(ranges.id), np.flatnonzero(ranges.within(asked))
    order = shown[np.lexsort((ranges.id[shown], ranges.start[shown]))]
    for *row, parent, index in in_order((*columns, np.arange(len(ranges))), order):
        name = ranges.names[row[5]]
        yield (*row[:5], name, *row[6:], None if parent < 0 else parent, stacks[index], "--" * row[8] + name)


def _sum(export: Export, asked: Asked, styles: tuple[int, ...]) -> list[Row]:
    """Rows of statistics, style and name."""
    ranges = load_ranges(export)
    ranges = ranges.only(ranges.within(asked) & np.isin(ranges.style, styles))
    given = pa.table({"style": ranges.style, "name": ranges.name, "value": ranges.end - ranges.start})
    with database() as connection:
        connection.register("given", given)
        rows = summed(connection, "SELECT * FROM given", ("style", "name"))
    return [(*row[:-2], STYLES[row[-2]], ranges.names[row[-1]]) for row in rows]
