"""Small exports of Nsight Systems, made table by table: what tests put in is what the file holds."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb

PID, TID = 5, 6
"""Where nothing else is said."""

_COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, deviceId, streamId, correlationId, globalPid, demangledName",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start, end, deviceId, streamId, correlationId, globalPid, graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, deviceId, streamId, correlationId, globalPid, bytes, copyKind, srcKind, "
    "dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end, deviceId, streamId, correlationId, globalPid, bytes, memKind",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, globalTid, correlationId, nameId",
    "NVTX_EVENTS": "start, end, eventType, text, textId, globalTid, domainId, jsonText",
    "TARGET_INFO_CUDA_DEVICE": "gpuId, cudaId, pid",
    "TARGET_INFO_GPU": "id, name",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "TARGET_INFO_GPU_METRICS": "typeId, metricId, metricName",
    "GPU_METRICS": "timestamp, typeId, metricId, value",
    "META_DATA_EXPORT": "name, value",
}


class Made:
    """An export in the making; rows are mappings of column to value, names are given as text."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.strings: dict[str, int] = {}

    def add(self, table: str, **row: Any) -> "Made":
        """One row of any table."""
        self.rows.setdefault(table, []).append(row)
        return self

    def kernel(self, start: int, end: int, name: str = "gemm", *, corr: int = 0, **more: Any) -> "Made":
        """A kernel of process `pid` (default `PID`) on `deviceId` 0, `streamId` 7."""
        row = _activity(start, end, corr, more) | {"demangledName": self.string(name)}
        return self.add("CUPTI_ACTIVITY_KIND_KERNEL", **row)

    def copy(self, start: int, end: int, size: int = 8, kind: int = 1, *, corr: int = 0, **more: Any) -> "Made":
        """A copy; kind 1 is Host-to-Device."""
        row = {"srcKind": 0, "dstKind": 2} | _activity(start, end, corr, more) | {"bytes": size, "copyKind": kind}
        return self.add("CUPTI_ACTIVITY_KIND_MEMCPY", **row)

    def call(
        self,
        start: int,
        end: int,
        name: str = "cudaLaunchKernel_v7000",
        *,
        corr: int = 0,
        pid: int = PID,
        tid: int = TID,
    ) -> "Made":
        """An API call."""
        thread = (pid << 24) | tid
        row = {"start": start, "end": end, "globalTid": thread, "correlationId": corr, "nameId": self.string(name)}
        return self.add("CUPTI_ACTIVITY_KIND_RUNTIME", **row)

    def launch(self, at: int, start: int, end: int, name: str = "gemm", *, corr: int, **more: Any) -> "Made":
        """A launch call of 1 ns at `at`, and its kernel."""
        where = {key: more.pop(key) for key in ("pid", "tid") if key in more}
        self.call(at, at + 1, corr=corr, **where)
        return self.kernel(start, end, name, corr=corr, **({"pid": where["pid"]} if "pid" in where else {}), **more)

    def range(
        self, start: int, end: int | None, name: str, *, pid: int = PID, tid: int = TID, style: int = 59, **more: Any
    ) -> "Made":
        """An NVTX range; style 59 is push/pop, 60 start/end."""
        row = {"start": start, "end": end, "eventType": style, "text": name, "globalTid": (pid << 24) | tid}
        return self.add("NVTX_EVENTS", **({"domainId": 0} | row | more))

    def string(self, text: str) -> int:
        """The text's number in StringIds."""
        return self.strings.setdefault(text, len(self.strings) + 1)

    def write(self, path: Path) -> Path:
        """The file."""
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
            database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(n, t) for t, n in self.strings.items()])
            for table, rows in self.rows.items():
                _fill(database, table, rows)
        database.close()
        return path


def _activity(start: int, end: int, corr: int, more: Mapping[str, Any]) -> dict[str, Any]:
    pid = more.get("pid", PID)
    row = {"start": start, "end": end, "deviceId": 0, "streamId": 7, "correlationId": corr, "globalPid": pid << 24}
    return row | {key: value for key, value in more.items() if key != "pid"}


def _fill(database: sqlite3.Connection, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
    columns = [name.strip() for name in _COLUMNS[table].split(",")]
    database.execute(f"CREATE TABLE {table} ({', '.join(f'[{name}]' for name in columns)})")
    marks = ", ".join("?" * len(columns))
    database.executemany(f"INSERT INTO {table} VALUES ({marks})", [[row.get(n) for n in columns] for row in rows])


def as_parquet(export: Path, folder: Path) -> Path:
    """The export as `nsys export --type parquetdir` lays it out: a file a table, ids of threads unsigned."""
    folder.mkdir()
    kinds = {"INTEGER": "BIGINT", "REAL": "DOUBLE", "TEXT": "VARCHAR", "BLOB": "BLOB"}
    with closing(sqlite3.connect(export)) as source, duckdb.connect() as database:
        tables = [row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            found = source.execute(f'PRAGMA table_info("{table}")').fetchall()
            columns = {row[1]: kinds[row[2]] for row in found}
            columns |= {name: "UBIGINT" for name in columns if name in ("globalTid", "globalPid")}
            rows = source.execute(f'SELECT * FROM "{table}"').fetchall()
            listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
            database.execute(f'CREATE TABLE "{table}" ({listed})')
            if rows:
                database.executemany(f'INSERT INTO "{table}" VALUES ({", ".join("?" * len(columns))})', rows)
            database.execute(f"""COPY "{table}" TO '{folder / table}.parquet' (FORMAT parquet)""")
    return folder
