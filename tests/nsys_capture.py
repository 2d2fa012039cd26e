"""A small capture of nsys with a row of every kind, and what reports say of it."""

import csv
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from stepscope.analyzers.nsys.export import Export
from stepscope.analyzers.nsys.reports import Asked, Row, report
from stepscope.dashboards.cli import analyze_nsys_main

PID, TID, OTHER = 5, 6, 7


THREAD, OTHER_THREAD, PROCESS = PID << 24 | TID, PID << 24 | OTHER, PID << 24


def fill(database: sqlite3.Connection, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    names = columns.split()
    database.execute(f"CREATE TABLE {table} ({', '.join(f'{chr(34)}{name}{chr(34)}' for name in names)})")
    database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)


NVTX = "start end eventType text globalTid endGlobalTid domainId"


KERNEL = (
    "start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName mangledName "
    "registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory"
)


CALL = "start end globalTid correlationId nameId returnValue"


COPY = "start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind virtualAddress"


def kernel(start: int, end: int, correlation: int, name: int, device: int = 0, grid: int = 8) -> tuple[Any, ...]:
    shape = (32, grid, 1, 1, 128, 1, 1, 0, 2_000_000)
    return (start, end, device, 1, None, 7, correlation, PROCESS, name, name + 10, name + 20, *shape)


def write_capture(path: Path) -> Path:
    """Three launches on one thread and one on another, a copy, ranges of both styles, unified memory."""
    with sqlite3.connect(path) as database:
        strings = [
            (1, "gemm<float>"), (2, "add<int>"), (11, "gemm"), (12, "add"), (21, "_Z4gemm"), (22, "_Z3add"),
            (50, "cudaLaunchKernel_v7000"), (51, "cudaMemcpyAsync_v3020"), (60, "python"),
        ]  # fmt: skip
        fill(database, "StringIds", "id value", strings)
        fill(database, "ThreadNames", "nameId priority globalTid", [(60, 20, THREAD)])
        fill(database, "TARGET_INFO_GPU", "id name", [(0, "NVIDIA H100")])
        calls = [(10, 14, 1, 50), (20, 26, 2, 50), (30, 31, 3, 50), (40, 45, 4, 51)]
        rows = [(start, end, THREAD, correlation, name, 0) for start, end, correlation, name in calls]
        fill(database, "CUPTI_ACTIVITY_KIND_RUNTIME", CALL, [*rows, (12, 13, OTHER_THREAD, 5, 50, 0)])
        kernels = [
            kernel(114, 124, 1, 1), kernel(126, 130, 2, 1, grid=16), kernel(30, 60, 3, 2), kernel(113, 114, 5, 2, 1),
        ]  # fmt: skip
        fill(database, "CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, kernels)
        copies = [(200, 2_000_000_200, 0, 1, 7, 4, PROCESS, 3_000_000, 1, 1, 2, None)]
        copies += [(300, 1300, 0, 1, 7, 6, PROCESS, 2_000_000, 11, 0, 2, 0x7F00)]
        fill(database, "CUPTI_ACTIVITY_KIND_MEMCPY", COPY, copies)
        fill(database, "CUDA_UM_GPU_PAGE_FAULT_EVENTS", "start end deviceId address numberOfPageFaults", [
            (300, 310, 0, 0x7F00, 4), (320, 330, 0, 0x8F00, 5),
        ])  # fmt: skip
        ranges = [
            (0, 100, 59, "step", THREAD, None, 0), (None, None, 75, "NCCL", THREAD, None, 3),
            (9, 27, 59, "forward", THREAD, None, 0), (19, 27, 59, "gemm", THREAD, None, 3),
            (5, 50, 60, "window", THREAD, THREAD, 0), (5, 50, 60, "across", THREAD, OTHER_THREAD, 0),
            (0, None, 59, "open", THREAD, None, 0), (9, 9, 34, "mark", THREAD, None, 0),
        ]  # fmt: skip
        fill(database, "NVTX_EVENTS", NVTX, ranges)
    database.close()
    return path


def answer(path: Path, name: str, asked: Asked | None = None) -> list[Row]:
    with Export(path) as export:
        rows = report(name).rows(export, asked)
    assert rows is not None
    return rows


def printed(path: Path, name: str, capsys: pytest.CaptureFixture[str], *flags: str) -> list[list[str]]:
    assert analyze_nsys_main([str(path), "--report", name, "--format", "csv", *flags]) == 0
    return list(csv.reader(capsys.readouterr().out.splitlines()))
