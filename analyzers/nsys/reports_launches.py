"""Kernels with the API calls that launched them, and with the NVTX ranges around those calls.

A kernel belongs to the call of its process with its correlation id, the earliest where there are several. A range holds
a kernel if its thread made that call within it; only ranges that end on the thread they began on hold any.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ...record.errors import TraceError
from .export import Export
from .reports_asked import Asked
from .reports_engine import NO_NUMBER, Array, arrays, process_of
from .reports_names import kernel_column
from .reports_nesting import OverlapError, enclosed, indices
from .reports_ranges import Ranges, load_ranges, no_ranges

_CORRELATION_BITS = 32


@dataclass(frozen=True, kw_only=True)
class Launched:
    """Operations of the GPU, in the order of their calls, those without a call first.

    `call` is the index of an operation's call, NO_NUMBER where none was recorded; `columns` is what else was asked of
    the operations' tables.
    """

    start: Array
    end: Array
    call: Array
    columns: dict[str, Array]
    call_start: Array
    call_end: Array
    call_thread: Array
    """globalTid."""
    call_name: Array

    @property
    def thread(self) -> Array:
        """The globalTid that launched each operation."""
        return self._of_call(self.call_thread)

    @property
    def launch_start(self) -> Array:
        """When each operation's call began."""
        return self._of_call(self.call_start)

    @property
    def launch_end(self) -> Array:
        """When each operation's call ended."""
        return self._of_call(self.call_end)

    @property
    def launch_name(self) -> Array:
        """The id of the name of each operation's call."""
        return self._of_call(self.call_name)

    def _of_call(self, values: Array) -> Array:
        if not len(values):
            return np.full(len(self.call), NO_NUMBER, dtype=np.int64)
        return np.where(self.call < 0, NO_NUMBER, values[self.call])


@dataclass(frozen=True, kw_only=True)
class Held:
    """The operations in a thread's ranges, for one pass of `enclosed`.

    The operations of range `ranges[i]` are `operations[first[i]:last[i]]`.
    """

    ranges: Array
    operations: Array
    first: Array
    last: Array
    is_whole: bool
    """Whether this is the thread's only pass."""


def load_launched(export: Export, operations: dict[str, str], asked: Asked, extra: tuple[str, ...] = ()) -> Launched:
    """The operations of these tables (each with the SQL of its name's number) and the calls that launched them."""
    wanted = ("start", "end", "process", "correlation", "device", "name", *extra)
    found = [_operations(export, table, name, asked, extra) for table, name in operations.items()]
    query = " UNION ALL ".join(found)
    given = arrays(export, query, wanted) if found else dict.fromkeys(wanted, np.empty(0, dtype=np.int64))
    calls = _calls(export)
    call = _matched(calls, _keys(given["process"], given["correlation"]))
    launching, call = np.unique(call, return_inverse=True)
    if len(launching) and launching[0] < 0:
        launching, call = launching[1:], call - 1
    order = np.argsort(call, kind="stable")
    return Launched(
        start=given["start"][order],
        end=given["end"][order],
        call=call[order],
        columns={name: given[name][order] for name in ("device", "name", *extra)},
        call_start=calls["start"][launching],
        call_end=calls["end"][launching],
        call_thread=calls["thread"][launching],
        call_name=calls["name"][launching],
    )


def held(export: Export, ranges: Ranges, launched: Launched) -> Iterator[Held]:
    """The operations that ranges hold, thread by thread. TraceError where calls overlap as no thread's can."""
    bounds = np.searchsorted(launched.call, np.arange(len(launched.call_start) + 1))
    whole = np.flatnonzero(ranges.on_one_thread)
    for thread, of_thread in _by(ranges.thread[whole]):
        around = whole[of_thread]
        calls = np.flatnonzero(launched.call_thread == thread)
        passes = enclosed(
            ranges.start[around], ranges.end[around], launched.call_start[calls], launched.call_end[calls]
        )
        try:
            for chosen, first, last, is_whole in passes:
                of_calls = calls[chosen]
                counts = bounds[of_calls + 1] - bounds[of_calls]
                offsets = np.concatenate(([0], np.cumsum(counts)))
                inside = indices(bounds[of_calls], counts)
                yield Held(
                    ranges=around, operations=inside, first=offsets[first], last=offsets[last], is_whole=is_whole
                )
        except OverlapError as error:
            raise TraceError(export.path, f"is damaged: {error}") from None


def innermost(export: Export, ranges: Ranges, launched: Launched) -> Array:
    """Of every operation the innermost range that holds it: the one that began last, of several the shortest."""
    found = np.full(len(launched.call), NO_NUMBER, dtype=np.int64)
    for part in held(export, ranges, launched):
        place = np.full(len(part.operations), NO_NUMBER, dtype=np.int64)
        order = np.lexsort((ranges.id[part.ranges], -ranges.end[part.ranges], ranges.start[part.ranges]))
        for index, first, last in zip(
            part.ranges[order].tolist(), part.first[order].tolist(), part.last[order].tolist(), strict=True
        ):
            place[first:last] = index
        found[part.operations] = place
    return found


def kernels(export: Export, asked: Asked, extra: tuple[str, ...] = ()) -> Launched:
    """The kernels, each with its call."""
    table = export.table("CUPTI_ACTIVITY_KIND_KERNEL")
    return load_launched(export, {table: kernel_column(export, table, asked)} if table else {}, asked, extra)


def range_names(export: Export, asked: Asked, launched: Launched) -> tuple[Ranges, Array]:
    """Ranges, and of every operation the name of the innermost; NO_NUMBER where there is none, or none is asked for."""
    ranges = load_ranges(export) if asked.by_range else no_ranges()
    if not len(ranges):
        return ranges, np.full(len(launched.call), NO_NUMBER, dtype=np.int64)
    around = innermost(export, ranges, launched)
    return ranges, np.where(around < 0, NO_NUMBER, ranges.name[around])


def _operations(export: Export, table: str, name: str, asked: Asked, extra: tuple[str, ...]) -> str:
    has = export.columns(table)
    columns = {"start": "start", "end": '"end"', "name": name} | {
        known: source if source in has else "NULL"
        for known, source in (
            ("process", "globalPid"), ("correlation", "correlationId"), ("device", "deviceId"),
            *zip(extra, extra, strict=True),
        )
    }  # fmt: skip
    selected = ", ".join(f'{source} AS "{known}"' for known, source in columns.items())
    return f"SELECT {selected} FROM {table} {asked.where(has)}"


def _calls(export: Export) -> dict[str, Array]:
    """All API calls; where several have one correlation id, the earliest comes first."""
    columns = {
        "start": "start",
        "end": '"end"',
        "thread": "globalTid",
        "correlation": "correlationId",
        "name": "nameId",
    }
    table = export.table("CUPTI_ACTIVITY_KIND_RUNTIME")
    if table is None:
        return dict.fromkeys((*columns, "key"), np.empty(0, dtype=np.int64))
    selected = ", ".join(f'{source} AS "{name}"' for name, source in columns.items())
    found = arrays(export, f'SELECT {selected} FROM {table} WHERE "end" >= start', tuple(columns))
    found["key"] = _keys(found["thread"], found["correlation"])
    order = np.lexsort((-found["end"], found["start"], found["key"]))
    return {name: values[order] for name, values in found.items()}


def _keys(serialised: Array, correlation: Array) -> Array:
    """Process and correlation id as one number; NO_NUMBER where either is missing."""
    missing = (serialised == NO_NUMBER) | (correlation < 0)
    return np.where(missing, NO_NUMBER, process_of(serialised) << _CORRELATION_BITS | correlation)


def _matched(calls: dict[str, Array], keys: Array) -> Array:
    """The index of each operation's call, NO_NUMBER where there is none."""
    if not len(calls["key"]):
        return np.full(len(keys), NO_NUMBER, dtype=np.int64)
    place = np.minimum(np.searchsorted(calls["key"], keys), len(calls["key"]) - 1)
    return np.where((keys >= 0) & (calls["key"][place] == keys), place, NO_NUMBER)


def _by(values: Array) -> Iterator[tuple[int, Array]]:
    """Each distinct value with the indices at which it stands."""
    order = np.argsort(values, kind="stable")
    distinct, first = np.unique(values[order], return_index=True)
    yield from zip(distinct.tolist(), np.split(order, first[1:]), strict=True)
