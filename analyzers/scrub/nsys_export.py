"""An SQLite export of Nsight Systems, scrubbed: a copy with rows deleted, texts blanked or cleaned, and vacuumed.

Rows of kernels, calls, copies and ranges stay, and so do the ids that join them to names.
"""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from ...record.errors import TraceError
from ...record.private import Cleaner, Names, base_name
from ..nsys.export import Export

_CAPTURE = "META_DATA_CAPTURE"
_EXPORTS = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_SYSTEM = "TARGET_INFO_SYSTEM_ENV"
NAMED = [
    # table, names (LIKE), kind, what becomes of the value: None deletes the row, else the text that stays
    (_CAPTURE, "%ENVIRONMENT_VARIABLE%", "environment variable", None),
    (_CAPTURE, "%ARGUMENT%", "command line", None),
    (_CAPTURE, "%COMMAND", "command line", base_name),
    (_CAPTURE, "%WORKING_DIR", "directory", lambda _: ""),
    (_CAPTURE, "%USER_NAME", "user name", lambda _: ""),
    (_CAPTURE, "DEVICE_DISPLAY_NAME", "host name", lambda _: ""),
    *((table, "%HOST", "host name", lambda _: "") for table in _EXPORTS),
    *((table, "%USER", "user name", lambda _: "") for table in _EXPORTS),
    *((table, "%_PATH%", "directory", base_name) for table in _EXPORTS),
    *((table, "%_FILE", "directory", base_name) for table in _EXPORTS),
    (_SYSTEM, "%Environment%", "environment variable", None),
    (_SYSTEM, "%Hostname%", "host name", lambda _: ""),
    (_SYSTEM, "NicInfo", "network interface", lambda _: ""),
    (_SYSTEM, "%InstallDir", "directory", lambda _: ""),
]
META_TABLES = (_CAPTURE, *_EXPORTS, _SYSTEM)
"""Tables of facts by name."""
TOLD = (("StringIds", "value"), ("PROCESSES", "name"), ("ANALYSIS_FILE", "filename"))
"""Other columns whose paths tell home directories."""
PROGRAM_OUTPUT = "program output"
WORK = ("CUPTI_ACTIVITY_KIND_", "NVTX_EVENTS", "OSRT_API", "CUDNN_", "CUBLAS_", "MPI_")
"""Beginnings of the tables whose rows say that a process was profiled."""


def learn_export(path: Path, names: Names) -> None:
    """Learn what the export gives away in the places made for it."""
    with Export(path) as export:
        for table in META_TABLES:
            if {"name", "value"} <= export.tables.get(table, set()):
                query = f"SELECT CAST(name AS BLOB), CAST(value AS BLOB) FROM {table}"
                for name, value in export.small(query):
                    learn_fact(as_text(name), as_text(value), names)
        for table, column in TOLD:
            if column in export.tables.get(table, set()):
                for (value,) in export.small(f"SELECT CAST({column} AS BLOB) FROM {table}"):
                    names.text(as_text(value))


def scrub_export(path: Path, copy: Path, cleaner: Cleaner) -> None:
    """Write the scrubbed copy to `copy`, which must not exist. No journal is left beside it."""
    with (
        Export(path),
        closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as source,
        closing(sqlite3.connect(copy, isolation_level=None)) as database,
    ):
        try:
            source.backup(database)
            for pragma in ("trusted_schema=OFF", "journal_mode=OFF", "synchronous=OFF", "secure_delete=ON"):
                database.execute(f"PRAGMA {pragma}")
            _Scrub(database, cleaner).all()
        except sqlite3.DatabaseError as error:
            raise TraceError(path, f"cannot be scrubbed: {error}") from None
    beside = [name for end in ("-journal", "-wal", "-shm") if (name := Path(f"{copy}{end}")).exists()]
    for leftover in beside:
        leftover.unlink()


class _Scrub:
    """The work on one open copy."""

    def __init__(self, database: sqlite3.Connection, cleaner: Cleaner) -> None:
        self._database = database
        self._cleaner = cleaner
        self._encoding = str(self._rows("PRAGMA encoding")[0][0]).replace("UTF-16le", "utf-16-le")
        kinds = self._rows("SELECT type, name FROM sqlite_master WHERE type IN ('view', 'trigger')")
        for kind, name in kinds:  # they would run, or show what is gone
            self._database.execute(f'DROP {kind} "{name}"')
        names = [row[0] for row in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        self._tables = {
            name: [row[1] for row in self._rows(f'PRAGMA table_xinfo("{name}")') if row[6] == 0]
            for name in names
            if not name.startswith("sqlite_")
        }

    def all(self) -> None:
        self._database.execute("BEGIN")
        for table, like, kind, becomes in NAMED:
            if {"name", "value"} <= set(self._tables.get(table, ())):
                self._named(table, like, kind, becomes)
        self._program_output()
        self._other_processes()
        for table, columns in self._tables.items():
            self._cells(table, columns)
        self._database.execute("COMMIT")
        self._database.execute("VACUUM")

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._database.execute(query, values).fetchall()

    def _change(self, kind: str, statement: str, *values: object) -> None:
        changed = self._database.execute(statement, values).rowcount
        if changed > 0:
            self._cleaner.removed[kind] += changed

    def _named(self, table: str, like: str, kind: str, becomes: Callable[[str], str] | None) -> None:
        if becomes is None:
            self._change(kind, f"DELETE FROM {table} WHERE name LIKE ?", like)
            return
        found = self._rows(f"SELECT DISTINCT CAST(value AS BLOB) FROM {table} WHERE name LIKE ?", like)
        for (value,) in found:
            text = as_text(value)
            if text and becomes(text) != text:
                change = f"UPDATE {table} SET value = ? WHERE name LIKE ? AND CAST(value AS BLOB) = ?"
                self._change(kind, change, becomes(text), like, value)

    def _program_output(self) -> None:
        """What the program printed, and files that were kept beside the report."""
        if "contentId" in self._tables.get("ProcessStreams", ()) and "StringIds" in self._tables:
            ids = "SELECT contentId FROM ProcessStreams"
            self._change(PROGRAM_OUTPUT, f"UPDATE StringIds SET value = '' WHERE value <> '' AND id IN ({ids})")
        if "content" in self._tables.get("ANALYSIS_FILE", ()):
            self._change(PROGRAM_OUTPUT, "UPDATE ANALYSIS_FILE SET content = '' WHERE length(content) > 0")

    def _other_processes(self) -> None:
        """Processes of the machine that were not profiled: who else worked there, and with what."""
        if "globalPid" not in self._tables.get("PROCESSES", ()):
            return
        parts = []
        for table, columns in self._tables.items():
            if table.startswith(WORK):
                parts += [
                    f'SELECT "{name}" >> 24 FROM "{table}"' for name in ("globalPid", "globalTid") if name in columns
                ]
        profiled = " UNION ".join(parts) or "SELECT NULL WHERE 0"
        for table, column in (("PROCESSES", "globalPid"), ("ThreadNames", "globalTid")):
            if column in self._tables.get(table, ()):
                change = f"DELETE FROM {table} WHERE ({column} >> 24) NOT IN ({profiled})"
                self._change("name of another process", change)

    def _cells(self, table: str, columns: list[str]) -> None:
        """Clean every text of a table, and every blob."""
        is_text = [f"""max(typeof("{column}") IN ('text', 'blob'))""" for column in columns]
        [holds] = self._rows(f'SELECT {", ".join(is_text)} FROM "{table}"')
        for column, any_text in zip(columns, holds, strict=True):
            if any_text:
                self._column(table, column)

    def _column(self, table: str, column: str) -> None:
        """Each differing value once; blobs stay blobs, and text that is not UTF-8 keeps its other bytes."""
        values = self._rows(
            f"""SELECT DISTINCT typeof("{column}"), CAST("{column}" AS BLOB) FROM "{table}"
                WHERE typeof("{column}") IN ('text', 'blob')"""
        )
        changes = []
        for kind, raw in values:
            assert isinstance(raw, bytes)
            data = raw.decode(self._encoding, "replace").encode() if self._encoding != "UTF-8" else raw
            new = self._cleaner.data(data)
            if new != data:
                changes.append((self._encoded(new), raw, str(kind)))
        for new, raw, kind in changes:
            put = "CAST(? AS TEXT)" if kind == "text" else "?"
            where = f'CAST("{column}" AS BLOB) = ? AND typeof("{column}") = ?'
            self._database.execute(f'UPDATE "{table}" SET "{column}" = {put} WHERE {where}', (new, raw, kind))

    def _encoded(self, data: bytes) -> bytes:
        return data if self._encoding == "UTF-8" else data.decode().encode(self._encoding)


def learn_fact(name: str, value: str, names: Names) -> None:
    """Learn from a fact in a table of such, by its name."""
    if "ENVIRONMENT" in name.upper():
        names.environment(value)
    elif name in ("EXPORT_HOST", "Hostname", "DEVICE_DISPLAY_NAME"):
        names.host(value)
    elif name.endswith(("USER_NAME", "EXPORT_USER")):
        names.user(value)
    elif name.endswith("WORKING_DIR"):
        names.folder(value)
    names.text(value)


def as_text(value: object) -> str:
    """A text that came as bytes, whatever they are; '' for what is none."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else ""
