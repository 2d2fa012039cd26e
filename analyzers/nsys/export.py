"""An SQLite export of Nsight Systems, opened read-only: which tables and columns it has, and their rows as Arrow.

Every version from 2020 on is read: nothing is taken for granted, tables are looked up by name (a `_V2` counts), columns
by what the table has. Rows come through ADBC in batches, so that memory stays bounded. Environment variables, user and
host names that an export may carry are never read.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import adbc_driver_manager as adbc
import adbc_driver_sqlite

from ...record.errors import TraceError

if TYPE_CHECKING:  # a summary has no need of it, and it is slow to load
    import pyarrow as pa

AGAIN = "export it again where nsys is: nsys export --type sqlite --force-overwrite true REPORT.nsys-rep"

_MAGIC = b"SQLite format 3\x00"
_OWN_TABLES = {"StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "ThreadNames"}
_META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_SCHEMA_MAJOR = 3
_FEW = 500
_BATCHES = {"adbc.sqlite.query.batch_rows": "65536"}


class Export:
    """An open export. TraceError where the file is none."""

    def __init__(self, path: Path) -> None:
        """Open `path` read-only; nothing is written beside it."""
        check_file(path)
        self.path = path
        self._uri = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        try:
            self._small = sqlite3.connect(self._uri, uri=True)
            self.tables = self._catalogue()
            facts = self._facts()
        except sqlite3.DatabaseError as error:
            raise TraceError(path, f"is a damaged database ({error}); {AGAIN}") from None
        if not self.tables.keys() & _OWN_TABLES:
            raise TraceError(path, "is an SQLite database, but no export of Nsight Systems")
        self.product = facts.get("EXPORT_PRODUCT_VERSION")
        """Such as `2024.6.2.225`; None before 2022."""
        self.schema_version = facts.get("EXPORT_SCHEMA_VERSION")
        major = (self.schema_version or "").partition(".")[0]
        if major.isdigit() and int(major) > _SCHEMA_MAJOR:
            raise TraceError(
                path, f"has schema {self.schema_version}, newer than this program knows ({_SCHEMA_MAJOR}.x); update it"
            )

    def __enter__(self) -> Self:
        """The export itself."""
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        """Close the file; a database found damaged while reading becomes one line."""
        self._small.close()
        if isinstance(error, sqlite3.DatabaseError | adbc.Error):
            line = str(error).splitlines()[0]
            raise TraceError(self.path, f"is a damaged database ({line}); {AGAIN}") from None

    @property
    def format(self) -> str:
        """The writer in words."""
        return f"nsys {self.product} (schema {self.schema_version})" if self.product else "nsys before 2022"

    @property
    def carries_environment(self) -> bool:
        """Whether the profiled program's environment variables are in the file."""
        if "META_DATA_CAPTURE" in self.tables:
            query = "SELECT 1 FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRONMENT_VARIABLE%' LIMIT 1"
            if self.small(query):
                return True
        query = "SELECT 1 FROM TARGET_INFO_SYSTEM_ENV WHERE name LIKE '%Environment%' LIMIT 1"
        return "TARGET_INFO_SYSTEM_ENV" in self.tables and bool(self.small(query))

    def table(self, name: str) -> str | None:
        """The table called `name`, or its highest version (`name_V2`); None where it is absent or empty."""
        versions = [(int(found[1] or 1), known) for known in self.tables if (found := _versioned(name, known))]
        for _, known in sorted(versions, reverse=True):
            if self.small(f'SELECT 1 FROM "{known}" LIMIT 1'):
                return known
        return None

    def columns(self, table: str) -> set[str]:
        """The columns of a table."""
        return self.tables[table]

    def small(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a query that has few."""
        return self._small.execute(query).fetchall()

    def last_row(self, table: str) -> int | None:
        """The highest row number of a table, from which it can be read in stretches; None where it has none."""
        try:
            [(last,)] = self.small(f'SELECT max(rowid) FROM "{table}"')
        except sqlite3.OperationalError:  # a view, or a table without row numbers
            return None
        return last if isinstance(last, int) else None

    @contextmanager
    def integers(self, query: str, columns: Sequence[str]) -> Iterator[object]:
        """The rows of a query whose columns are all integers (null where they are not), as an Arrow C stream.

        For DuckDB, which reads it without pyarrow: `database.register("rows", stream)`. It can be read once.
        """
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
        """The rows of a query as Arrow batches with the columns and types of `types`; a missing text is ''.

        SQLite's columns have no types of their own, and ADBC takes them from the first rows: so each is cast, and no
        text may be null, lest a column that begins with nulls be taken for one of numbers.
        """
        import adbc_driver_sqlite.dbapi
        import pyarrow as pa

        schema = pa.schema([pa.field(name, kind) for name, kind in types.items()])
        casts = ", ".join(_cast(name, kind) for name, kind in types.items())
        with adbc_driver_sqlite.dbapi.connect(self._uri) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**_BATCHES)
            cursor.execute(f"SELECT {casts} FROM ({query})")
            batches = (batch.cast(schema) for batch in cursor.fetch_record_batch())
            yield pa.RecordBatchReader.from_batches(schema, batches)

    def strings(self) -> dict[int, str]:
        """StringIds: id → text."""
        return dict(self.small("SELECT id, value FROM StringIds")) if "StringIds" in self.tables else {}

    def texts(self, ids: Sequence[int]) -> dict[int, str]:
        """Those of StringIds that are asked for."""
        wanted = sorted(id for id in ids if id is not None)
        if len(wanted) > _FEW:
            return self.strings()
        if "StringIds" not in self.tables:
            return {}
        marks = ", ".join("?" * len(wanted))
        return dict(self._small.execute(f"SELECT id, value FROM StringIds WHERE id IN ({marks})", wanted))

    def copy_labels(self) -> dict[int, str]:
        """copyKind → words: as the export has them, else as versions before 2022 printed them."""
        if "ENUM_CUDA_MEMCPY_OPER" in self.tables:
            return {int(kind): str(label) for kind, label in self.small("SELECT id, label FROM ENUM_CUDA_MEMCPY_OPER")}
        old = ("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
        return dict(enumerate(old, start=1))

    def _catalogue(self) -> dict[str, set[str]]:
        names = [
            row[0] for row in self._small.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        ]
        return {name: {row[1] for row in self.small(f'PRAGMA table_info("{name}")')} for name in names}

    def _facts(self) -> dict[str, str]:
        for table in _META_TABLES:
            if table in self.tables:
                return dict(self.small(f"SELECT name, value FROM {table} WHERE name LIKE 'EXPORT_%VERSION'"))
        return {}


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
        raise TraceError(path, "is no SQLite database; give a .nsys-rep report or its SQLite export")
    page_bytes = int.from_bytes(head[16:18]) or 65536
    pages = int.from_bytes(head[28:32])
    if pages and size < pages * (65536 if page_bytes == 1 else page_bytes):
        raise TraceError(path, f"is cut short: {size:,} bytes of a larger database; copy it again, or {AGAIN}")


def _versioned(name: str, known: str) -> re.Match[str] | None:
    return re.fullmatch(re.escape(name) + r"(?:_V(\d+))?", known)


def _cast(name: str, kind: "pa.DataType") -> str:
    import pyarrow as pa

    if pa.types.is_string(kind):
        return f"""coalesce(CAST("{name}" AS TEXT), '') AS "{name}\""""
    return f'CAST("{name}" AS INTEGER) AS "{name}"'
