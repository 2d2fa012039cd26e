"""NVTX ranges and the GPU: kernels by range, and ranges projected onto what they launched.

An operation is in every range that holds its launch (`reports_launches`). A range's projection runs from the start of
the first to the end of the last operation in it, kernels, copies, sets and whole graphs. What is launched outside all
ranges has a row of its own for each thread, without a range.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from .export import Export
from .reports_asked import Asked, Row, number
from .reports_engine import LONG, NO_NUMBER, Array, database, process_and_thread, spread
from .reports_launches import Launched, held, kernels, load_launched
from .reports_names import Names
from .reports_nesting import indices
from .reports_ranges import STYLES, Ranges, load_ranges

_PAIRS_AT_ONCE = 1_000_000
_OPERATIONS = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
_LATEST = np.iinfo(np.int64).max


def kernels_by_range(export: Export, asked: Asked) -> Iterable[Row]:
    """By range, process, thread and kernel; most time first."""
    ranges, launched, names = load_ranges(export), kernels(export, asked), Names(export.strings())
    batches = (pa.record_batch(columns, schema=_PAIRS) for columns in _pairs(export, ranges, launched))
    by = "range, style, thread, name"
    with database() as connection:
        connection.register("given", pa.RecordBatchReader.from_batches(_PAIRS, batches))
        found = connection.execute(
            f"""
            SELECT {by}, sum(begins), count(*), sum(value), {spread("value")}
            FROM ({names.merged(connection, "SELECT * FROM given")}) GROUP BY {by}
            """
        ).fetchall()
    rows: list[Row] = []
    for around, style, thread, name, instances, *numbers in found:
        of_range = (ranges.names[around], STYLES[style]) if around >= 0 else (None, None)
        rows.append((*of_range, *process_and_thread(thread), instances or None, *numbers, names.text(name)))
    return sorted(rows, key=lambda row: (-number(row[6]), [str(key) for key in (*row[:4], row[-1])]))


def projection_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """By range and style; most projected time first."""
    ranges = load_ranges(export)
    shown = _project(export, ranges, asked)
    held_any = np.flatnonzero(shown.operations)
    nesting, children = ranges.nesting(), shown.children(ranges)
    given = pa.table(
        {
            "name": ranges.name[held_any],
            "style": ranges.style[held_any],
            "value": (shown.end - shown.start)[held_any],
            "original": (ranges.end - ranges.start)[held_any],
            "operations": shown.operations[held_any],
            "level": pa.array(nesting.level[held_any], mask=nesting.level[held_any] < 0),
            "children": children[held_any],
        }
    )
    with database() as connection:
        connection.register("given", given)
        found = connection.execute(
            f"""
            SELECT name, style, sum(value), sum(original), count(*), {spread("value")},
                   sum(operations), avg(operations), avg(level), avg(children)
            FROM given GROUP BY name, style
            """
        ).fetchall()
    rows = [(ranges.names[name], STYLES[style], *numbers) for name, style, *numbers in found]
    return sorted(rows, key=lambda row: (-row[2], row[:2]))


def projection_trace(export: Export, asked: Asked) -> Iterable[Row]:
    """Every range that holds an operation, and each thread's operations in none, by the start of the projection."""
    ranges = load_ranges(export)
    shown = _project(export, ranges, asked)
    nesting, children = ranges.nesting(), shown.children(ranges)
    stacks = nesting.stacks(ranges.id)
    rows: list[tuple[tuple[int, int], Row]] = []
    for index in np.flatnonzero(shown.operations).tolist():
        start, id = int(shown.start[index]), int(ranges.id[index])
        parent, on_stack = int(nesting.parent[index]), int(nesting.level[index]) >= 0
        row: Row = (
            ranges.names[ranges.name[index]], start, int(shown.end[index]) - start,
            int(ranges.start[index]), int(ranges.end[index] - ranges.start[index]), STYLES[int(ranges.style[index])],
            *process_and_thread(int(ranges.thread[index])), int(shown.operations[index]),
            int(nesting.level[index]) if on_stack else None, int(children[index]), id,
            int(ranges.id[parent]) if parent >= 0 else None, stacks[index] if on_stack else None,
        )  # fmt: skip
        rows.append(((start, id), row))
    for thread, start, end, count in shown.outside:
        nothing = (None, None, None)
        row = (None, start, end - start, *nothing, *process_and_thread(thread), count, None, 0, *nothing)
        rows.append(((start, 0), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


_PAIRS = pa.schema([pa.field(name, LONG) for name in ("range", "style", "thread", "name", "begins", "value")])


def _pairs(export: Export, ranges: Ranges, launched: Launched) -> Iterator[list[Array]]:
    """Each kernel with each range that holds it, in the columns of _PAIRS; with NO_NUMBER where none does.

    `begins` is 1 once for each range and kernel name in it, else 0.
    """
    duration, name, thread = launched.end - launched.start, launched.columns["name"], launched.thread
    inside = np.zeros(len(name), dtype=bool)

    def columns(around: Array, kernel: Array) -> list[Array]:
        inside[kernel] = True
        begins = np.zeros(len(kernel), dtype=np.int64)
        _, distinct = np.unique(name[kernel], return_inverse=True)
        begins[np.unique(around * (len(distinct) + 1) + distinct, return_index=True)[1]] = 1
        return [ranges.name[around], ranges.style[around], thread[kernel], name[kernel], begins, duration[kernel]]

    of_several_passes: list[tuple[Array, Array]] = []
    for part in held(export, ranges, launched):
        counts = part.last - part.first
        for low, high in _portions(counts):
            kernel = part.operations[indices(part.first[low:high], counts[low:high])]
            around = np.repeat(part.ranges[low:high], counts[low:high])
            if part.is_whole:
                yield columns(around, kernel)
            else:
                of_several_passes.append((around, kernel))
    if of_several_passes:
        arounds, kernels_in = zip(*of_several_passes, strict=True)
        yield columns(np.concatenate(arounds), np.concatenate(kernels_in))
    alone = np.flatnonzero(~inside)
    none = np.full(len(alone), NO_NUMBER, dtype=np.int64)
    yield [none, none, thread[alone], name[alone], np.zeros_like(none), duration[alone]]


def _portions(counts: Array) -> Iterator[tuple[int, int]]:
    """Bounds of successive parts of `counts` that each sum to about _PAIRS_AT_ONCE."""
    before = np.cumsum(counts) - counts
    cuts = np.searchsorted(before, np.arange(0, int(counts.sum()) + 1, _PAIRS_AT_ONCE)).tolist()
    yield from zip(cuts, [*cuts[1:], len(counts)], strict=True)


@dataclass(frozen=True, kw_only=True)
class _Projection:
    """Of every range the start, the end and the number of the operations it holds; times mean nothing where it is 0."""

    start: Array
    end: Array
    operations: Array
    outside: list[tuple[int, int, int, int]]
    """Of every thread with operations outside all ranges: globalTid, start, end, number."""

    def children(self, ranges: Ranges) -> Array:
        """How many of the ranges directly in each hold operations."""
        parent = ranges.nesting().parent[self.operations > 0]
        children = np.zeros(len(ranges), dtype=np.int64)
        np.add.at(children, parent[parent >= 0], 1)
        return children


def _project(export: Export, ranges: Ranges, asked: Asked) -> _Projection:
    tables = [export.table(f"CUPTI_ACTIVITY_KIND_{kind}") for kind in _OPERATIONS]
    launched = load_launched(export, {table: "NULL" for table in tables if table}, asked)
    start = np.full(len(ranges), _LATEST, dtype=np.int64)
    end = np.full(len(ranges), -_LATEST, dtype=np.int64)
    operations = np.zeros(len(ranges), dtype=np.int64)
    inside = np.zeros(len(launched.call), dtype=bool)
    for part in held(export, ranges, launched):
        some = part.last > part.first
        order = np.flatnonzero(some)[np.argsort(part.first[some], kind="stable")]
        which, first, last = part.ranges[order], part.first[order], part.last[order]
        start[which] = np.minimum(start[which], _between(np.minimum, launched.start[part.operations], first, last))
        end[which] = np.maximum(end[which], _between(np.maximum, launched.end[part.operations], first, last))
        operations[which] += last - first
        inside[part.operations[_covered(first, last, len(part.operations))]] = True
    return _Projection(
        start=start, end=end, operations=operations, outside=list(_outside(launched, np.flatnonzero(~inside)))
    )


def _between(least_or_most: np.ufunc, values: Array, first: Array, last: Array) -> Array:
    """The least or most of values[first[i]:last[i]], none empty, `first` ascending."""
    if not len(first):
        return first
    bounds = np.stack([first, last], axis=1).ravel()
    found: Array = least_or_most.reduceat(np.append(values, 0), bounds)[::2]
    return found


def _covered(first: Array, last: Array, length: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which of `length` places lie in one of first[i]:last[i]."""
    steps = np.zeros(length + 1, dtype=np.int64)
    np.add.at(steps, first, 1)
    np.add.at(steps, last, -1)
    return np.cumsum(steps[:-1]) > 0


def _outside(launched: Launched, alone: Array) -> Iterator[tuple[int, int, int, int]]:
    thread = launched.thread[alone]
    for one in np.unique(thread).tolist():
        these = alone[thread == one]
        yield one, int(launched.start[these].min()), int(launched.end[these].max()), len(these)
