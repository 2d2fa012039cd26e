"""An SQLite file opened read-only: its tables, its rows for Python, and its rows as Arrow streams through ADBC."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import adbc_driver_manager as adbc
import adbc_driver_sqlite

from ...record.errors import TraceError

if TYPE_CHECKING:  # a summary has no need of it, and it is slow to load
    import pyarrow as pa

AGAIN = "export it again where nsys is: nsys export --type sqlite --force-overwrite true REPORT.nsys-rep"

_MAGIC = b"SQLite format 3\x00"
_BATCHES = {"adbc.sqlite.query.batch_rows": "16384"}
_LONGEST_TEXT = 1 << 26
"""A text or row beyond it (64 MiB) is damage: no name is that long."""


class SqliteFile:
    """The file at `path`; nothing is written, beside it neither."""

    damage: tuple[type[Exception], ...] = (sqlite3.Error, adbc.Error)

    def __init__(self, path: Path) -> None:
        """TraceError where it is no whole SQLite file; `damage` where it cannot be opened all the same."""
        check_file(path)
        self._uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        self._small = sqlite3.connect(self._uri, uri=True)
        self._small.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_TEXT)
        self._small.text_factory = _text
        self._small.execute("PRAGMA trusted_schema = OFF")
        self._small.execute("PRAGMA cell_size_check = ON")

    def close(self) -> None:
        """Close the file."""
        self._small.close()

    def tables(self) -> dict[str, set[str]]:
        """The tables, each with its columns. Not what runs when it is read, as views do: no export has any."""
        plain = "type = 'table' AND sql LIKE 'CREATE TABLE%'"
        names = [row[0] for row in self.rows(f"SELECT name FROM sqlite_master WHERE {plain}")]
        return {name: {row[1] for row in self.rows(f"PRAGMA table_info({quoted(name)})")} for name in names}

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a query that has few."""
        try:
            return self._small.execute(query).fetchall()
        except UnicodeDecodeError:  # of a message that quotes what the file has
            raise sqlite3.DatabaseError("malformed text") from None

    def row_numbers(self, table: str) -> tuple[int, int] | None:
        """The least and the highest row number of a table; None where it has none."""
        try:
            [(first, last)] = self.rows(  # asked for both at once, SQLite would read all rows
                f'SELECT (SELECT min(rowid) FROM "{table}"), (SELECT max(rowid) FROM "{table}")'
            )
        except sqlite3.OperationalError:  # a table without row numbers
            return None
        return (first, last) if isinstance(first, int) and isinstance(last, int) else None

    @contextmanager
    def integers(self, query: str, columns: Sequence[str]) -> Iterator[object]:
        """The rows as an Arrow C stream of integers, that DuckDB reads without pyarrow."""
        casts = ", ".join(f'CAST("{name}" AS INTEGER) AS "{name}"' for name in columns)
        driver = adbc_driver_sqlite._driver_path()
        with ExitStack() as stack:
            opened = stack.enter_context(adbc.AdbcDatabase(driver=driver, uri=self._uri))
            connection = stack.enter_context(adbc.AdbcConnection(opened))
            statement = stack.enter_context(adbc.AdbcStatement(connection))
            statement.set_options(**_BATCHES)
            statement.set_sql_query(f"SELECT {casts} FROM ({query})")
            yield statement.execute_query()[0]

    @contextmanager
    def batches(self, query: str, types: Mapping[str, "pa.DataType"]) -> Iterator["pa.RecordBatchReader"]:
        """The rows as batches of these types; SQLite has no types of its own, and ADBC takes the first row's."""
        import adbc_driver_sqlite.dbapi
        import pyarrow as pa

        schema = pa.schema([pa.field(name, kind) for name, kind in types.items()])
        casts = ", ".join(_cast(name, is_text=pa.types.is_string(kind)) for name, kind in types.items())
        with adbc_driver_sqlite.dbapi.connect(self._uri) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**_BATCHES)
            cursor.execute(f"SELECT {casts} FROM ({query})")
            batches = (batch.cast(schema) for batch in cursor.fetch_record_batch())
            yield pa.RecordBatchReader.from_batches(schema, batches)


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def check_file(path: Path) -> None:
    """TraceError unless `path` is a whole SQLite file."""
    try:
        with path.open("rb") as file:
            head = file.read(100)
        size = path.stat().st_size
    except FileNotFoundError:
        raise TraceError(path, "no such file") from None
    except IsADirectoryError:
        raise TraceError(path, "is a folder; name the report or the export in it") from None
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None
    if not size:
        raise TraceError(path, f"is empty, as after an export that failed; {AGAIN}")
    if not head.startswith(_MAGIC):
        if not head.strip(b"\x00"):
            raise TraceError(path, f"is a half-written export: its header is blank; {AGAIN}")
        raise TraceError(path, f"is no SQLite database{_seems(head)}; give a .nsys-rep report or its SQLite export")
    page_bytes = int.from_bytes(head[16:18]) or 65536
    pages = int.from_bytes(head[28:32])
    if pages and size < pages * (65536 if page_bytes == 1 else page_bytes):
        raise TraceError(path, f"is cut short: {size:,} bytes of a larger database; copy it again, or {AGAIN}")


def _seems(head: bytes) -> str:
    """What a file with this beginning seems to be instead, in words."""
    known = {
        b"\x1f\x8b": "a gzip archive: unpack it",
        b"PK\x03\x04": "a zip archive: unpack it",
        b"\x28\xb5\x2f\xfd": "a zstd archive: unpack it",
        b"\xfd7zXZ": "an xz archive: unpack it",
        b"version https://git-lfs": "a pointer of Git LFS: fetch the file itself with git lfs pull",
        b"PAR1": "a Parquet file: name the folder that holds it",
        b"\x89HDF": "an HDF5 export",
    }
    found = next((what for magic, what in known.items() if head.startswith(magic)), None)
    if found is None and head.isascii() and b"\x00" not in head:
        found = "a text file"
    return f" but seems to be {found}" if found else ""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _cast(name: str, *, is_text: bool) -> str:
    if is_text:
        return f"""coalesce(CAST("{name}" AS TEXT), '') AS "{name}\""""
    return f'CAST("{name}" AS INTEGER) AS "{name}"'
