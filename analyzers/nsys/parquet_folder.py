"""An export of the type parquetdir: a folder with one Parquet file a table, read by DuckDB through views.

The views have the columns of an SQLite export, integers as signed 64-bit numbers and texts as such, so that queries
written for SQLite mean the same here. A column called `end` may stand unquoted, as it may in SQLite.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from ...record.errors import TraceError

if TYPE_CHECKING:
    import pyarrow as pa

_SIGNED = '("{0}"::HUGEINT - CASE WHEN "{0}" > 9223372036854775807 THEN 18446744073709551616 ELSE 0 END)::BIGINT'
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "BOOLEAN"}
_BATCH_ROWS = 65536


class ParquetFolder:
    """The tables in the folder `path`."""

    damage: tuple[type[Exception], ...] = (duckdb.Error,)

    def __init__(self, path: Path) -> None:
        """TraceError where a file in it is not whole."""
        self._database = duckdb.connect(config={"autoinstall_known_extensions": "false"})
        self._database.execute("SET integer_division = true")  # as SQLite has it
        self._columns = {file.stem: self._view(file) for file in sorted(path.glob("*.parquet"))}

    def close(self) -> None:
        """Forget the views."""
        self._database.close()

    def tables(self) -> dict[str, set[str]]:
        """The tables, each with its columns."""
        return self._columns

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a query that has few."""
        return self._database.execute(_translated(query)).fetchall()

    def row_numbers(self, _: str) -> None:
        """None: DuckDB cuts a Parquet file by itself."""

    @contextmanager
    def integers(self, query: str, columns: Sequence[str]) -> Iterator[object]:
        """The rows as an Arrow stream of integers."""
        casts = ", ".join(f'CAST("{name}" AS BIGINT) AS "{name}"' for name in columns)
        with self._stream(f"SELECT {casts} FROM ({query})") as reader:
            yield reader

    @contextmanager
    def batches(self, query: str, types: Mapping[str, "pa.DataType"]) -> Iterator["pa.RecordBatchReader"]:
        """The rows as batches of these types; a missing text is ''."""
        import pyarrow as pa

        schema = pa.schema([pa.field(name, kind) for name, kind in types.items()])
        casts = ", ".join(_cast(name, is_text=pa.types.is_string(kind)) for name, kind in types.items())
        with self._stream(f"SELECT {casts} FROM ({query})") as reader:
            yield pa.RecordBatchReader.from_batches(schema, (batch.cast(schema) for batch in reader))

    @contextmanager
    def _stream(self, query: str) -> Iterator["pa.RecordBatchReader"]:
        with self._database.cursor() as cursor:
            yield cursor.sql(_translated(query)).to_arrow_reader(_BATCH_ROWS)

    def _view(self, file: Path) -> set[str]:
        source = "read_parquet('" + str(file).replace("'", "''") + "')"
        try:
            found = self._database.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()
        except duckdb.Error as error:
            why = str(error).splitlines()[0]
            raise TraceError(file, f"is no whole Parquet file ({why}); export the report again") from None
        columns = ", ".join(f'{_as_in_sqlite(name, kind)} AS "{name}"' for name, kind, *_ in found)
        self._database.execute(f'CREATE VIEW "{file.stem}" AS SELECT {columns} FROM {source}')
        return {name for name, *_ in found}


def is_parquet_folder(path: Path) -> bool:
    """Whether `path` is a folder with tables as Parquet files."""
    return path.is_dir() and any(path.glob("*.parquet"))


def _as_in_sqlite(name: str, kind: str) -> str:
    if kind in _INTEGERS:
        return f'"{name}"::BIGINT'
    if kind == "UBIGINT":
        return _SIGNED.format(name)
    if kind == '"NULL"':  # of a column without a single value
        return f'"{name}"'
    return f'"{name}"::DOUBLE' if kind in ("FLOAT", "DOUBLE") else f'"{name}"::VARCHAR'


def _translated(query: str) -> str:
    """Quotes around the column `end`, a word of DuckDB's grammar, as the END of a CASE is; and integers of 64 bits."""
    return re.sub(r'(?<!["\w])end(?!["\w])', '"end"', query.replace(" AS INTEGER)", " AS BIGINT)"))


def _cast(name: str, *, is_text: bool) -> str:
    if is_text:
        return f"""coalesce(CAST("{name}" AS VARCHAR), '') AS "{name}\""""
    return f'CAST("{name}" AS BIGINT) AS "{name}"'
