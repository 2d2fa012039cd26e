"""Damaged exports of Nsight Systems, as `fuzz_cases` takes them; FOLDER has the whole one as whole.sqlite."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from fuzz_cases import SECRET, Outcome, outcome, take_cases

from stepscope.dashboards.cli import analyze_nsys_main

PAGE = 512
"""Small pages, so that damage often hits what holds the file together."""

ASKED = (
    ["--report", "cuda_gpu_kern_sum", "--format", "csv"],
    ["--format", "json"],
    ["--report", "cuda_api_sum", "--format", "csv"],
    ["--report", "cuda_gpu_mem_size_sum", "--format", "csv"],
    ["--report", "cuda_gpu_mem_time_sum"],
    ["--report", "nvtx_gpu_proj_trace,nvtx_sum,nvtx_kern_sum,cuda_gpu_trace", "--format", "json"],
    ["--list"],
    [],
)

_SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER NOT NULL, name TEXT, totalMemory INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, typeName TEXT NOT NULL,
    metricId INTEGER NOT NULL, metricName TEXT NOT NULL);
CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL,
    value INTEGER NOT NULL);
CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER NOT NULL, name TEXT, label TEXT);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL, mangledName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER,
    blockY INTEGER, blockZ INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
    graphId INTEGER, graphExecId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
    globalPid INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
    srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER, memKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
CREATE TABLE OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, text TEXT,
    globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER,
    jsonText TEXT);
"""
NAMES = [
    "gemm_f8",
    "ncclDevKernel_AllReduce",
    "void at::native::add<float>(int)",
    "cudaLaunchKernel_v7000",
    "poll",
    "step",
]


def write_export(path: Path, rows: int = 60) -> None:
    """A small export with a table of every kind, `rows` kernels and as many of the rest."""
    process, thread = 5 << 24, (5 << 24) | 6
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(f"PRAGMA page_size={PAGE}; PRAGMA journal_mode=OFF; {_SCHEMA}")
        put = database.executemany
        put("INSERT INTO StringIds VALUES (?, ?)", enumerate(NAMES))
        put(
            "INSERT INTO META_DATA_EXPORT VALUES (?, ?)",
            [("EXPORT_SCHEMA_VERSION", "3.17.2"), ("EXPORT_PRODUCT_VERSION", "2025.1.1"), ("EXPORT_HOST", "nobody")],
        )
        put("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", [("PROCESS_0:ENVIRONMENT_VARIABLE", f"TOKEN={SECRET}")])
        put("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", [(1_750_000_000_000_000_000,)])
        put("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, ?, 1)", [("NVIDIA H200",)])
        put("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (?, ?, ?)", [(0, 0, 5), (1, 1, 5)])
        put("INSERT INTO TARGET_INFO_GPU_METRICS VALUES (7, 0, 'GPU', ?, ?)", [(1, "SMs Active"), (2, "DRAM Read")])
        put("INSERT INTO GPU_METRICS VALUES (?, 7, ?, ?)", [(1000 * n, 1 + n % 2, n % 100) for n in range(rows)])
        put("INSERT INTO ENUM_CUDA_MEM_KIND VALUES (?, '', ?)", enumerate(("Pageable", "Pinned", "Device")))
        put("INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (?, '', ?)", [(1, "Host-to-Device"), (2, "Device-to-Host")])
        for n in range(rows):
            at, device = 1_000_000 + 1000 * n, n % 2
            inserts: dict[str, tuple[object, ...]] = {
                "KERNEL": (at, at + 700 + n, device, 1, 7, n, process, n % 3, n % 3, n % 3, 1, 1, 1, 128, 1, 1, None),
                "GRAPH_TRACE": (at + 5, at + 600, device, 3, 4, 1, 9, 2000 + n, process),
                "MEMCPY": (at, at + 90, device, 8, 1000 + n, process, 4096 * n, 1 + n % 2, 1, 2),
                "MEMSET": (at + 90, at + 99, device, 8, 3000 + n, process, 0, 64, 2),
                "SYNCHRONIZATION": (at, at + 900, device, 7, 4000 + n, process, 3),
                "RUNTIME": (at - 900, at - 100, 1, thread, n, 3, 0),
            }
            for table, row in inserts.items():
                marks = ", ".join("?" * len(row))
                database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_{table} VALUES ({marks})", row)
            database.execute("INSERT INTO OSRT_API VALUES (?, ?, 27, ?, 0, 4, 0)", (at, at + 50, thread))
            text = "layer" if n % 2 else None
            row = (at - 950, at + 800, 59 + n % 2, n, text, thread, None, 5, 0, None)
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
            row = (at, at + 1, 59, n, "ncclAllReduce", thread, None, None, 0, '{"Message size [bytes]": 4096}')
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def damaged(whole: bytes, case: int) -> bytes:
    """The file with damage number `case` done to it."""
    chance = random.Random(case)
    data = bytearray(whole)
    pages = len(data) // PAGE
    kind = case % 8
    if kind < 3:  # bits, anywhere
        for _ in range(1 + chance.randrange(8)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == 3:  # bits in the header and in what describes the tables
        for _ in range(1 + chance.randrange(4)):
            data[chance.randrange(16, min(len(data), 16 * PAGE))] ^= 1 << chance.randrange(8)
    elif kind == 4:  # where a page says what it holds
        start = chance.randrange(pages) * PAGE
        for _ in range(1 + chance.randrange(4)):
            data[start + chance.randrange(24)] = chance.randrange(256)
    elif kind == 5:  # cut short
        del data[chance.randrange(len(data)) :]
    elif kind == 6:  # cut short, and the header made to agree
        kept = 1 + chance.randrange(pages - 1)
        del data[kept * PAGE :]
        data[28:32] = kept.to_bytes(4)
    else:  # a page that is lost, or another's
        start, other = chance.randrange(1, pages) * PAGE, chance.randrange(pages) * PAGE
        data[start : start + PAGE] = data[other : other + PAGE] if chance.random() < 0.6 else bytes(PAGE)
    return bytes(data)


def asked(case: int) -> list[str]:
    """What is asked of a case: every kind of damage meets every question."""
    return ASKED[case // 8 % len(ASKED)]


def outcome_of(path: Path, case: int) -> tuple[str | None, int]:
    """What is wrong with how the command line takes a case (None where nothing is), and the exit code."""
    return outcome(analyze_nsys_main, [str(path), *asked(case)])


def taken(folder: Path, first: int) -> Outcome:
    """How a case is taken."""
    whole, path = (folder / "whole.sqlite").read_bytes(), folder / f"case{first}.sqlite"

    def take(case: int) -> tuple[str | None, int]:
        path.write_bytes(damaged(whole, case))
        return outcome_of(path, case)

    return take


if __name__ == "__main__":
    take_cases(taken)
