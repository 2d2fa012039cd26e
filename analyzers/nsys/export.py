"""An export of Nsight Systems, opened read-only: which tables and columns it has, and their rows as Arrow.

Either an SQLite file of any version from 2020 on, or a folder of Parquet files (type parquetdir, from 2024.6 on): both
answer the same SQL, that of SQLite. Nothing is taken for granted, tables are looked up by name (a `_V2` counts),
columns by what the table has. Rows come in batches, so that memory stays bounded. Environment variables, user and host
names that an export may carry are never read.
"""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ...record.errors import TraceError, first_line
from .sqlite_file import AGAIN, SqliteFile, check_file, quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from .parquet_folder import ParquetFolder

__all__ = ["AGAIN", "Export", "check_file", "quoted"]

_OWN_TABLES = {"StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "ThreadNames"}
_META_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_ENVIRONMENT = {"META_DATA_CAPTURE": "%ENVIRONMENT_VARIABLE%", "TARGET_INFO_SYSTEM_ENV": "%Environment%"}
_ENVIRONMENT_STRING = """SELECT 1 FROM StringIds WHERE instr(value, 'PATH=') > 0
    AND (instr(value, 'HOME=') > 0 OR instr(value, 'PWD=') > 0) LIMIT 1"""
_SCHEMA = (3, 28)
"""The newest whose tables are known: another major version is another layout, a later minor one may rename columns."""
_FEW = 500
_WORTH_SPLITTING = 200_000
"""Rows below which a second reader costs more than it saves."""
_MOST_READERS = 8


class Stretch(NamedTuple):
    """A part of a table."""

    where: str
    """The condition that its rows meet."""
    at_most: int
    """Rows."""


class Export:
    """An open export. TraceError where the file is none."""

    def __init__(self, path: Path) -> None:
        """Open `path` read-only; nothing is written beside it."""
        self.path = path
        self._file = _opened(path)
        try:
            self.tables = self._file.tables()
            facts = self._facts()
        except self._file.damage as error:
            raise self._damaged(error) from None
        if not self.tables.keys() & _OWN_TABLES:
            raise TraceError(path, f"is an SQLite database, but no export of Nsight Systems{_whose(path, self.tables)}")
        self.product = facts.get("EXPORT_PRODUCT_VERSION")
        """Such as `2024.6.2.225`; None before 2022."""
        self.schema_version = facts.get("EXPORT_SCHEMA_VERSION")
        self.report_name = _base_name(facts.get("EXPORT_PARAM_INPUT_FILE") or facts.get("EXPORT_INPUT_FILE"))
        """Name of the report that it was made from, if it says so."""
        self.exported_at = facts.get("EXPORT_TIME_UTC")
        """Such as `2025-12-06T07:51:29`, if it says so."""
        if self._schema[0] > _SCHEMA[0]:
            raise TraceError(
                path, f"has schema {self.schema_version}, newer than this program knows ({_SCHEMA[0]}.x); update it"
            )

    def __enter__(self) -> Self:
        """The export itself."""
        return self

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        """Close the file; a database found damaged while reading becomes one line."""
        self._file.close()
        if isinstance(error, self._file.damage) or _is_damage(error):
            raise self._damaged(error) from None

    @property
    def format(self) -> str:
        """The writer in words."""
        return f"nsys {self.product} (schema {self.schema_version})" if self.product else "nsys before 2022"

    @property
    def doubt(self) -> str | None:
        """What to doubt in an export that is newer than this program, in sentences."""
        if self._schema <= _SCHEMA:
            return None
        known = f"{_SCHEMA[0]}.{_SCHEMA[1]}"
        return (
            f"{self.path.name} has schema {self.schema_version}, and this program knows those up to {known}: what it "
            "does not find may be there under another name. Update it."
        )

    @property
    def _schema(self) -> tuple[int, int]:
        """Major and minor version; (0, 0) where the file does not say."""
        found = re.match(r"(\d{1,9})(?:\.(\d{1,9}))?", self.schema_version or "")
        return (int(found[1]), int(found[2] or 0)) if found else (0, 0)

    @property
    def carries_environment(self) -> bool:
        """Whether environment variables are in the file: the profiled program's, or other processes' as one string."""
        named = any(
            {"name", "value"} <= self.tables.get(table, set())
            and self.small(f"SELECT 1 FROM {table} WHERE name LIKE '{like}' AND value <> '' LIMIT 1")
            for table, like in _ENVIRONMENT.items()
        )
        return named or (self._has_strings and bool(self.small(_ENVIRONMENT_STRING)))

    def table(self, name: str) -> str | None:
        """The table called `name`, or its highest version (`name_V2`); None where it is absent or empty."""
        versions = [(int(found[1] or 1), known) for known in self.tables if (found := _versioned(name, known))]
        for _, known in sorted(versions, reverse=True):
            if self.small(f'SELECT 1 FROM "{known}" LIMIT 1'):
                if len({"start", "end"} & self.tables[known]) == 1:
                    raise TraceError(self.path, f"is damaged: its table {known} lacks start or end; {AGAIN}")
                return known
        return None

    def columns(self, table: str) -> set[str]:
        """The columns of a table."""
        return self.tables[table]

    def small(self, query: str) -> list[tuple[Any, ...]]:
        """All rows of a query that has few."""
        return self._file.rows(query)

    def stretches(self, table: str) -> list[Stretch]:
        """A table cut into as many parts as are worth reading at once."""
        edges = self._file.row_numbers(table)
        if edges is None or not 0 <= edges[1] - edges[0] <= self.path.stat().st_size:  # not numbered, gaps, damage
            return [Stretch("true", int(self.small(f'SELECT count(*) FROM "{table}"')[0][0]))]
        first, rows = edges[0], edges[1] + 1 - edges[0]
        parts = min(len(os.sched_getaffinity(0)), _MOST_READERS) if rows > _WORTH_SPLITTING else 1
        cuts = [first + rows * part // parts for part in range(parts + 1)]
        return [Stretch(f"rowid >= {low} AND rowid < {high}", high - low) for low, high in pairwise(cuts)]

    @contextmanager
    def integers(self, query: str, columns: Sequence[str]) -> Iterator[object]:
        """The rows of a query whose columns are all integers (null where they are not), as an Arrow C stream.

        For DuckDB, which reads it without pyarrow: `database.register("rows", stream)`. It can be read once.
        """
        with self._file.integers(query, columns) as stream:
            yield stream

    @contextmanager
    def batches(self, query: str, types: Mapping[str, "pa.DataType"]) -> Iterator["pa.RecordBatchReader"]:
        """The rows of a query as Arrow batches with the columns and types of `types`; a missing text is ''."""
        with self._file.batches(query, types) as reader:
            yield reader

    def strings(self) -> dict[int, str]:
        """StringIds: id → text."""
        return _by_number(self.small("SELECT id, value FROM StringIds")) if self._has_strings else {}

    def texts(self, ids: Sequence[int | None]) -> dict[int, str]:
        """Those of StringIds that are asked for."""
        wanted = sorted(id for id in ids if id is not None)
        if len(wanted) > _FEW or not self._has_strings:
            return self.strings()
        listed = ", ".join(map(str, wanted)) or "NULL"
        return _by_number(self.small(f"SELECT id, value FROM StringIds WHERE id IN ({listed})"))

    def words(self, table: str, *, number: str = "id", text: str = "label") -> dict[int, str]:
        """Number → text of a small table; {} where it is absent. Numbers and texts, whatever a damaged one holds."""
        if not {number, text} <= self.tables.get(table, set()):
            return {}
        rows = self.small(
            f"""SELECT CAST({number} AS INTEGER), CAST({text} AS TEXT) FROM {table}
                WHERE {number} IS NOT NULL AND CAST({text} AS TEXT) <> ''"""
        )
        return _by_number(rows)

    def copy_labels(self) -> dict[int, str]:
        """copyKind → words: as the export has them, else as versions before 2022 printed them."""
        if words := self.words("ENUM_CUDA_MEMCPY_OPER"):
            return words
        old = ("HtoD", "DtoH", "HtoA", "AtoH", "AtoA", "AtoD", "DtoA", "DtoD", "HtoH", "PtoP")
        return dict(enumerate(old, start=1))

    def device_names(self) -> dict[int, str]:
        """CUDA's number of a device in its process, `deviceId` of kernels and copies → the GPU's name.

        Which GPU that is TARGET_INFO_CUDA_DEVICE says, by process; before 2025 `cuDevice` does. `id` counts GPUs in an
        order of nsys' own: in one export of four GPUs it runs against CUDA's. A number that means GPUs of several names
        in different processes has none here.
        """
        has = self.tables.get("TARGET_INFO_GPU", set())
        if self._tells_gpus and "id" in has:
            return self._named("cudaId", "TARGET_INFO_CUDA_DEVICE JOIN TARGET_INFO_GPU ON id = gpuId")
        number = next((column for column in ("cuDevice", "id", "deviceId") if column in has), None)
        return self._named(number) if number else {}

    def gpu_names(self) -> dict[int, str]:
        """The same by the number that `columns.read_activities` gives a device: nsys' own where processes tell it."""
        return self._named("id") if self._tells_gpus else self.device_names()

    @property
    def _tells_gpus(self) -> bool:
        return {"gpuId", "cudaId", "pid"} <= self.tables.get("TARGET_INFO_CUDA_DEVICE", set())

    def _named(self, number: str, table: str = "TARGET_INFO_GPU") -> dict[int, str]:
        if not {"name", number} <= self.tables.get("TARGET_INFO_GPU", set()) | {"cudaId"}:
            return {}
        rows = self.small(f"SELECT DISTINCT {number}, name FROM {table}")
        named = [(device, str(name)) for device, name in rows if isinstance(device, int) and device >= 0 and name]
        times = Counter(device for device, _ in named)
        return {device: name for device, name in named if times[device] == 1}

    @property
    def _has_strings(self) -> bool:
        return {"id", "value"} <= self.tables.get("StringIds", set())

    def _facts(self) -> dict[str, str]:
        for table in _META_TABLES:
            if {"name", "value"} <= self.tables.get(table, set()):
                wanted = "name LIKE 'EXPORT_%VERSION' OR name LIKE 'EXPORT_%INPUT_FILE' OR name = 'EXPORT_TIME_UTC'"
                rows = self.small(f"SELECT name, value FROM {table} WHERE {wanted}")
                return {str(name): str(value) for name, value in rows if value is not None}
        return {}

    def _damaged(self, error: BaseException | None) -> TraceError:
        self._file.close()
        line = first_line(error) if error else ""
        return TraceError(self.path, f"is a damaged database ({line[:200]}); {AGAIN}")


def _by_number(rows: Iterable[tuple[object, object]]) -> dict[int, str]:
    """Number → text; a damaged table holds other things, even where its columns are declared NOT NULL."""
    return {number: text for number, text in rows if isinstance(number, int) and isinstance(text, str)}


def _opened(path: Path) -> "SqliteFile | ParquetFolder":
    if path.is_dir():
        from .parquet_folder import ParquetFolder, is_parquet_folder

        if is_parquet_folder(path):
            return ParquetFolder(path)
    try:
        return SqliteFile(path)
    except SqliteFile.damage as error:
        raise TraceError(path, f"is a damaged database ({first_line(error)}); {AGAIN}") from None


def _is_damage(error: BaseException | None) -> bool:
    """Whether an error of the libraries that rows stream through is the file's fault: rows that do not come or fit."""
    if isinstance(error, UnicodeDecodeError):  # a text that is none
        return True
    loaded: dict[str, Any] = dict(sys.modules)  # what is not loaded has raised nothing
    if "pyarrow" in loaded and isinstance(error, loaded["pyarrow"].ArrowException):
        return True
    of_duckdb = "duckdb" in loaded and isinstance(error, loaded["duckdb"].Error)
    return of_duckdb and _STREAM_FAILED.search(str(error)) is not None


_STREAM_FAILED = re.compile(r"arrow_scan|get_next|ArrowArrayStream|sqlite3?_|out of range", re.IGNORECASE)


def _whose(path: Path, tables: Mapping[str, object]) -> str:
    """Whose database it may be instead, in words."""
    if "dlprof" in path.name.lower():
        return ": DLProf wrote it, which nothing reads any more; profile again with nsys"
    listed = ", ".join(sorted(tables)[:4])
    return f" (its tables: {listed}{', …' if len(tables) > 4 else ''})" if tables else ": it has no tables"


def _versioned(name: str, known: str) -> re.Match[str] | None:
    return re.fullmatch(re.escape(name) + r"(?:_V(\d+))?", known)


def _base_name(path: str | None) -> str | None:
    return re.split(r"[/\\]", path)[-1] if path else None
