"""Device work of an export as columns, streamed: a few bytes a row, however wide the export's tables are.

A row that is no interval (it ends before it starts or never, lasts a day or more, or has no time at all) counts in no
sum; how many there were is told.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from ...record.errors import TraceError
from ...record.units import show_count
from ..activities import NONE, Activities, Codes, Ids, Ints, Label, Mask, What, distinct, label, translated
from ..findings import Finding
from .export import AGAIN, Export, Stretch

LONG, TEXT = pa.int64(), pa.string()
NO_PID = (1 << 24) - 1
DAY_NS = 86_400 * 10**9
_NEVER_NS = 1 << 60
"""36 years: no clock of a capture shows it, and differences below it do not overflow."""


@dataclass
class Rejected:
    """What was no interval, by what it was."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, rows: int) -> None:
        """`rows` more of them."""
        if rows:
            self.counts[what] += rows

    def findings(self, file: str) -> list[Finding]:
        """One, where there are any."""
        if not self.counts:
            return []
        told = ", ".join(f"{show_count(rows)} {what}" for what, rows in sorted(self.counts.items()))
        text = f"Rows of {file} that are no intervals ({told}: they end before they start, or never) count in no sum."
        return [Finding(code="impossible-times", severity="warning", text=text, evidence=dict(self.counts))]


def read_columns(export: Export, table: str, columns: dict[str, str]) -> dict[str, Ids]:
    """Integer columns of a table, each an SQL expression; a missing value is `NONE`. The order of rows means nothing.

    `start`, `end` and `thread` come in 64 bits; the others, which are told apart and not reckoned with, in 32 where
    those hold them.
    """
    try:
        return _read_columns(export, table, columns, np.int32)
    except OverflowError:
        return _read_columns(export, table, columns, np.int64)


def _read_columns(export: Export, table: str, columns: dict[str, str], ids: type[np.signedinteger]) -> dict[str, Ids]:
    """A large table in several stretches at once, each straight into its place. OverflowError where `ids` hold none."""
    selected = ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())
    stretches = export.stretches(table)
    places = [0, *accumulate(stretch.at_most for stretch in stretches)]
    whole: dict[str, Ids] = {
        name: np.empty(places[-1], dtype=np.int64 if name in ("start", "end", "thread") else ids) for name in columns
    }

    def read(stretch: Stretch, at: int) -> slice:
        first = at
        query = f'SELECT {selected} FROM "{table}" WHERE {stretch.where}'
        with export.batches(query, dict.fromkeys(columns, LONG)) as batches:
            for batch in batches:
                if at + len(batch) > first + stretch.at_most:
                    raise TraceError(export.path, f"is damaged: {table} has rows out of its order; {AGAIN}")
                for column, given in zip(whole.values(), batch.columns, strict=True):
                    _put(column[at : at + len(batch)], given)
                at += len(batch)
        return slice(first, at)

    with ThreadPoolExecutor(len(stretches)) as readers:
        filled = list(readers.map(read, stretches, places))
    if sum(part.stop - part.start for part in filled) == places[-1]:
        return whole
    return {name: np.concatenate([whole[name][part] for part in filled]) for name in columns}


def _put(place: Ids, column: pa.Array) -> None:
    """Copy a column to its place. OverflowError where it does not fit."""
    values = (column.fill_null(NONE) if column.null_count else column).to_numpy()
    bounds = np.iinfo(place.dtype)
    if (
        place.itemsize < values.itemsize
        and len(values)
        and not bounds.min <= values.min() <= values.max() <= bounds.max
    ):
        raise OverflowError
    place[:] = values


def read_activities(export: Export, rejected: Rejected) -> Activities:
    """Kernels, copies, sets and whole graphs of an export, of every process and device."""
    names = _Names(export)
    parts = []
    for what, told, table, name in _sources(export):
        rows = read_columns(export, table, _activity_columns(export, table, name))
        good = is_interval(rows["start"], rows["end"])
        rejected.add(told, len(good) - int(good.sum()))
        if not good.all():
            rows = {column: values[good] for column, values in rows.items()}
        rows["label"] = names.codes(rows.pop("name"), what)
        parts.append(rows)
    whole = {name: _joined([part.pop(name) for part in parts]) for name in _ACTIVITY}
    work = Activities(
        start=whole["start"],
        end=whole["end"],
        device=_on_gpus(export, whole["process"], whole["device"]),
        stream=whole["stream"],
        process=whole["process"],
        correlation=whole["correlation"],
        label=whole["label"].astype(np.int32, copy=False),
        labels=tuple(names.labels),
    )
    return _charged_once(work)


def _joined(parts: list[Ids]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _charged_once(work: Activities) -> Activities:
    """Without the whole of those graph launches whose kernels were recorded too."""
    is_graph = np.array([entry.what == "graph" for entry in work.labels], dtype=bool)[work.label]
    if not is_graph.any():
        return work
    graphs = np.flatnonzero(is_graph & (work.correlation != NONE))
    others = np.flatnonzero(~is_graph & np.isin(work.correlation, work.correlation[graphs]))
    seen = set(zip(work.process[others].tolist(), work.correlation[others].tolist(), strict=True))
    keys = zip(work.process[graphs].tolist(), work.correlation[graphs].tolist(), strict=True)
    doubled = graphs[np.array([key in seen for key in keys], dtype=bool)]
    keep = np.ones(len(work), dtype=bool)
    keep[doubled] = False
    return work.where(keep)


_ACTIVITY = ("start", "end", "device", "stream", "process", "correlation", "label")


def is_interval(start: Ints, end: Ints) -> Mask:
    """Which rows are intervals that a machine can have measured."""
    possible = (start > -_NEVER_NS) & (end < _NEVER_NS)
    return possible & (end >= start) & (end > 0) & (end - start < DAY_NS)


def _sources(export: Export) -> list[tuple[What, str, str, str]]:
    """What there is to read: what it is, the word for it, the table, and the expression for its name's number."""
    wanted: tuple[tuple[What, str, str, str], ...] = (
        ("kernel", "kernels", "KERNEL", "demangledName"),
        ("graph", "graph launches", "GRAPH_TRACE", "graphId"),
        ("memcpy", "copies", "MEMCPY", "copyKind"),
        ("memset", "sets", "MEMSET", "0"),
    )
    found = []
    for what, told, name, expression in wanted:
        table = export.table(f"CUPTI_ACTIVITY_KIND_{name}")
        if table and {"start", "end"} <= export.columns(table):
            has = expression.isdigit() or expression in export.columns(table)
            found.append((what, told, table, expression if has else "NULL"))
    return found


def _activity_columns(export: Export, table: str, name: str) -> dict[str, str]:
    has = export.columns(table)
    return {
        "start": "start",
        "end": '"end"',
        "device": "coalesce(deviceId, 0)" if "deviceId" in has else "0",
        "stream": "streamId" if "streamId" in has else "NULL",
        "process": f"(globalPid >> 24) & {NO_PID}" if "globalPid" in has else "NULL",
        "correlation": "nullif(correlationId, 0)" if "correlationId" in has else "NULL",
        "name": name,
    }


def texts(export: Export) -> dict[int, str]:
    """StringIds, without what a damaged one holds in place of a number or a text."""
    return {key: text for key, text in export.strings().items() if isinstance(key, int) and isinstance(text, str)}


class _Names:
    """Numbers of names as codes of labels; equal texts are one label."""

    def __init__(self, export: Export) -> None:
        self.labels: list[Label] = []
        self._strings = texts(export)
        self._copies = export.copy_labels()
        self._code: dict[Label, int] = {}

    def codes(self, numbers: Ids, what: What) -> Codes:
        """The label's code for each number."""
        known = distinct(numbers)
        return translated(numbers, known, [self._coded(self._text(number, what), what) for number in known.tolist()])

    def _coded(self, text: str, what: What) -> int:
        found = label(text, what)
        if found not in self._code:
            self._code[found] = len(self.labels)
            self.labels.append(found)
        return self._code[found]

    def _text(self, number: int, what: What) -> str:
        match what:
            case "kernel":
                return self._strings.get(number, "?")
            case "memcpy":
                return f"memcpy {self._copies.get(number, 'Unknown')}"
            case "graph":
                return f"CUDA graph {number}" if number != NONE else "CUDA graph"
        return "memset"


def gpus(export: Export) -> dict[tuple[int, int], int]:
    """(process, device as the process numbers it) → GPU as the machine does, where newer exports say it."""
    table = "TARGET_INFO_CUDA_DEVICE"
    if not {"gpuId", "cudaId", "pid"} <= export.tables.get(table, set()):
        return {}
    number = ", ".join(f"CAST({name} AS INTEGER)" for name in ("pid", "cudaId", "gpuId"))
    rows = export.small(f"SELECT {number} FROM {table} WHERE pid + cudaId + gpuId IS NOT NULL")
    return {(int(pid), int(cuda)): int(gpu) for pid, cuda, gpu in rows}


def _on_gpus(export: Export, process: Ids, device: Ids) -> Codes:
    """Devices as the machine numbers them: processes may each call another GPU 0."""
    found: Codes = device.astype(np.int32)
    for (pid, cuda), gpu in gpus(export).items():
        found[(process == pid) & (device == cuda)] = gpu
    return found
