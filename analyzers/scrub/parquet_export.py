"""A Parquet export of Nsight Systems (a folder with one file a table), scrubbed: the rules are those of SQLite exports.

Each file is read and written a batch at a time, with its own columns and types. Key-value metadata is left out.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...record.errors import TraceError, first_line
from ...record.private import Cleaner, Names
from ..nsys.export import Export
from .nsys_export import META_TABLES, NAMED, PROGRAM_OUTPUT, TOLD, WORK, as_text, learn_fact

_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
_PROCESS_BITS = 24
_SAME_PROCESS = (1 << 40) - 1
"""What is left of a process's or thread's id, signed or not, without its thread."""


@dataclass(frozen=True, kw_only=True)
class _Told:
    """What tables say of rows in others."""

    profiled: set[int]
    """Processes that were."""
    printed: set[int]
    """Ids of strings that the program printed."""


def learn_parquet(folder: Path, names: Names) -> None:
    """Learn what the export gives away in the places made for it. TraceError where the folder is none."""
    with Export(folder) as export:
        tables = export.tables
    for table in META_TABLES:
        if {"name", "value"} <= tables.get(table, set()):
            columns = [_texts(folder, table, column) for column in ("name", "value")]
            for name, value in zip(*columns, strict=True):
                learn_fact(name, value, names)
    for table, column in TOLD:
        if column in tables.get(table, set()):
            for value in _texts(folder, table, column):
                names.text(value)


def scrub_parquet(folder: Path, copy: Path, cleaner: Cleaner) -> list[str]:
    """Write the scrubbed copy to the folder `copy`, which must not exist. What in it is no table is left out and named.

    TraceError names a file that cannot be read or cleaned.
    """
    copy.mkdir(parents=True)
    told = _Told(profiled=_profiled(folder), printed=set(_numbers(folder, "ProcessStreams", "contentId")))
    left_out = []
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file() or path.suffix != ".parquet":
            left_out.append(f"{cleaner.text(path.name)}: no table of the export")
            continue
        _rewrite(path, copy / path.name, partial(_edited, table=path.stem, told=told, cleaner=cleaner), cleaner)
    return left_out


def texts_in(folder: Path) -> Iterator[bytes]:
    """All texts and blobs in the tables of an export, to look for what must not be there."""
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches():
                for column in batch.columns:
                    if _holds_text(column.type):
                        yield b"\n".join(value for value in _bytes(pc.unique(column)) if value)


def _rewrite(path: Path, target: Path, edited: Callable[[pa.Table], pa.Table], cleaner: Cleaner) -> None:
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow.remove_metadata()
            odd = [field.name for field in schema if pa.types.is_nested(field.type)]
            if odd:
                raise TraceError(path, f"cannot be scrubbed: its column {odd[0]} is a list or a structure")
            with pq.ParquetWriter(target, schema) as writer:
                for batch in file.iter_batches():
                    rows = edited(pa.Table.from_batches([batch]).replace_schema_metadata(None))
                    writer.write_table(pa.table([_cleaned(column, cleaner) for column in rows.columns], schema=schema))
    except (pa.ArrowException, OSError) as error:
        raise TraceError(path, f"cannot be scrubbed: {first_line(error)}") from None


def _edited(rows: pa.Table, *, table: str, told: _Told, cleaner: Cleaner) -> pa.Table:
    rows = _of_profiled(_named(rows, table, cleaner), table, told.profiled, cleaner)
    return _without_output(rows, table, told.printed, cleaner)


def _named(rows: pa.Table, table: str, cleaner: Cleaner) -> pa.Table:
    """Facts that go by name: rows that are deleted, values that are blanked or shortened."""
    rules = [rule for rule in NAMED if rule[0] == table]
    if not rules or not {"name", "value"} <= set(rows.column_names):
        return rows
    names, values = (list(map(as_text, _bytes(rows[column]))) for column in ("name", "value"))
    kept = []
    for at, name in enumerate(names):
        gone = False
        for _, like, kind, becomes in rules:
            if gone or not _is_like(name, like):
                continue
            gone = becomes is None
            new = becomes(values[at]) if becomes else values[at]
            _count(cleaner, kind, int(gone or new != values[at]))
            values[at] = new
        if not gone:
            kept.append(at)
    encoded = [value.encode("utf-8", "surrogateescape") for value in values]
    return _put(rows, "value", encoded).take(pa.array(kept, pa.int64()))


def _of_profiled(rows: pa.Table, table: str, profiled: set[int], cleaner: Cleaner) -> pa.Table:
    """Of processes and threads those that were profiled: who else worked there is nobody's business."""
    column = {"PROCESSES": "globalPid", "ThreadNames": "globalTid"}.get(table)
    if column not in rows.column_names:
        return rows
    mask = [id is not None and (id >> _PROCESS_BITS) & _SAME_PROCESS in profiled for id in rows[column].to_pylist()]
    _count(cleaner, "name of another process", mask.count(False))
    return rows.filter(pa.array(mask, pa.bool_()))


def _without_output(rows: pa.Table, table: str, printed: set[int], cleaner: Cleaner) -> pa.Table:
    """Without what the program printed, and files that were kept beside the report."""
    has = set(rows.column_names)
    if table == "StringIds" and {"id", "value"} <= has:
        column, is_output = "value", [id in printed for id in rows["id"].to_pylist()]
    elif table == "ANALYSIS_FILE" and "content" in has:
        column, is_output = "content", [True] * len(rows)
    else:
        return rows
    values = _bytes(rows[column])
    gone = sum(bool(value) and out for value, out in zip(values, is_output, strict=True))
    _count(cleaner, PROGRAM_OUTPUT, gone)
    return _put(rows, column, [b"" if value and out else value for value, out in zip(values, is_output, strict=True)])


def _count(cleaner: Cleaner, kind: str, rows: int) -> None:
    if rows:
        cleaner.removed[kind] += rows


def _profiled(folder: Path) -> set[int]:
    """Processes that any table of work names."""
    found: set[int] = set()
    for path in folder.glob("*.parquet"):
        if path.stem.startswith(WORK):
            for column in ("globalPid", "globalTid"):
                found |= {(id >> _PROCESS_BITS) & _SAME_PROCESS for id in _numbers(folder, path.stem, column)}
    return found


def _numbers(folder: Path, table: str, column: str) -> list[int]:
    """The different integers in a column; none where it is not there."""
    path = folder / f"{table}.parquet"
    if not path.is_file() or column not in pq.read_schema(path).names:
        return []
    return [id for id in pc.unique(_read(path, column)).to_pylist() if id is not None]


def _texts(folder: Path, table: str, column: str) -> list[str]:
    return [as_text(value) for value in _bytes(_read(folder / f"{table}.parquet", column))]


def _read(path: Path, column: str) -> pa.ChunkedArray:
    try:
        return pq.read_table(path, columns=[column])[column]
    except (pa.ArrowException, OSError) as error:
        raise TraceError(path, f"cannot be read: {first_line(error)}") from None


def _cleaned(column: pa.ChunkedArray, cleaner: Cleaner) -> pa.ChunkedArray:
    """A column with its texts and blobs cleaned, each differing one once."""
    if not _holds_text(column.type) or not len(column):
        return column
    met = _plain(column).combine_chunks().dictionary_encode()
    old = met.dictionary.to_pylist()
    new = [value if value is None else cleaner.data(value) for value in old]
    if new == old:
        return column
    return _typed(pa.array(new, met.dictionary.type).take(met.indices), column.type)


def _put(rows: pa.Table, column: str, values: Sequence[bytes | None]) -> pa.Table:
    at = rows.column_names.index(column)
    kind = rows.schema.field(column).type
    return rows.set_column(at, rows.schema.field(column), _typed(pa.array(values, pa.large_binary()), kind))


def _bytes(column: pa.Array | pa.ChunkedArray) -> list[bytes | None]:
    """The cells of a column of texts or blobs, valid UTF-8 or not."""
    values: list[bytes | None] = _plain(column).to_pylist()
    return values


def _plain(column: pa.Array | pa.ChunkedArray) -> Any:
    kind = column.type
    return (column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column).cast(pa.large_binary())


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Bytes as what they were; what is no UTF-8 stays as it is."""
    if pa.types.is_dictionary(kind):
        return _typed(values, kind.value_type).dictionary_encode().cast(kind)
    return values.cast(options=pc.CastOptions(kind, allow_invalid_utf8=True))


def _holds_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(is_so(kind) for is_so in _TEXT_TYPES)


def _is_like(name: str, like: str) -> bool:
    """SQL's LIKE, as SQLite has it."""
    return re.fullmatch(like.replace("_", ".").replace("%", ".*"), name, re.IGNORECASE | re.DOTALL) is not None
