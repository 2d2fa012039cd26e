"""The traces, a row an event: what ran on the GPU, and the API calls."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

import pyarrow as pa

from .export import Export
from .reports_asked import Asked, Row
from .reports_engine import LONG, NO_NUMBER, database, in_batches, process_and_thread
from .reports_launches import kernels, range_names
from .reports_names import (
    SHAPE,
    Names,
    api_names,
    kernel_column,
    memory_kinds,
    operation,
    operation_names,
)
from .reports_ranges import Ranges, no_ranges

_RUN = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
_MOVED = ("bytes", "srcKind", "dstKind")
_PLACE = ("deviceId", "contextId", "greenContextId", "streamId")
_COLUMNS = ("start", "duration", "correlationId", *SHAPE, *_RUN, *_MOVED, *_PLACE, "name", "range")


def gpu_trace(export: Export, asked: Asked) -> Iterator[Row]:
    """Kernels, copies and sets by their start.

    Throughput is bytes over time. `nsys stats` multiplies the bytes by how many whole times the duration fits into a
    second, which is too little, and 0 for what takes longer than one; `asked.as_nsys` does the same.
    """
    names = Names(export.strings() | operation_names(export))
    devices, kinds = export.device_names(), memory_kinds(export)
    with database() as connection, ExitStack() as opened:
        ranges = no_ranges()
        parts: dict[str, pa.RecordBatchReader | pa.Table] = {}
        for table, sources in _tables(export, asked).items():
            if asked.by_range and "KERNEL" in table:
                ranges, parts[table] = _kernels_with_ranges(export, asked)
            else:
                parts[table] = opened.enter_context(_rows(export, table, _COLUMNS, sources, asked))
        for name, part in parts.items():
            connection.register(name, part)
        found = " UNION ALL ".join(f"SELECT * FROM {name}" for name in parts)
        for row in in_batches(connection, f"SELECT * FROM ({found}) ORDER BY start, correlationId, streamId"):
            start, duration, correlation, *rest, name, around = row
            moved, source, destination, device = rest[9:13]
            yield (
                start, duration, correlation, *rest[:7], *map(_mb, rest[7:10]), _throughput(moved, duration, asked),
                kinds.get(source), kinds.get(destination), _device(devices, device), *rest[13:],
                ranges.prefix(around) + names.text(name),
            )  # fmt: skip


def api_trace(export: Export, asked: Asked) -> Iterator[Row]:
    """CUDA calls by their start, each with its thread."""
    table = export.table("CUPTI_ACTIVITY_KIND_RUNTIME")
    if table is None:
        return
    names, threads = api_names(export), _threads(export)
    columns = ("start", "duration", "nameId", "returnValue", "correlationId", "globalTid")
    with database() as connection, _rows(export, table, columns, {}, asked) as given:
        connection.register("given", given)
        for start, duration, name, result, correlation, thread in in_batches(
            connection, "SELECT * FROM given ORDER BY start, correlationId"
        ):
            yield (
                start, duration, names.text(name), result, correlation, *process_and_thread(thread),
                *threads.get(thread, (None, None)),
            )  # fmt: skip


def _tables(export: Export, asked: Asked) -> dict[str, dict[str, str]]:
    """The tables of what runs on the GPU, each with the sources of columns that are called otherwise in it."""
    found = {}
    for kind in ("KERNEL", "MEMCPY", "MEMSET"):
        if table := export.table(f"CUPTI_ACTIVITY_KIND_{kind}"):
            name = kernel_column(export, table, asked) if kind == "KERNEL" else operation(export, table)
            found[table] = {"name": name} | ({"srcKind": "memKind"} if kind == "MEMSET" else {})
    return found


def _rows(
    export: Export, table: str, columns: tuple[str, ...], sources: dict[str, str], asked: Asked
) -> AbstractContextManager[pa.RecordBatchReader]:
    """Rows of a table in these columns; one that it lacks is null."""
    has = export.columns(table)
    known = (
        {"duration": '"end" - start'}
        | ({"greenContextId": "nullif(greenContextId, 0)"} if "greenContextId" in has else {})
        | sources
    )
    selected = ", ".join(f"{known.get(name, name if name in has else 'NULL')} AS {name}" for name in columns)
    return export.batches(f"SELECT {selected} FROM {table} {asked.where(has)}", dict.fromkeys(columns, LONG))


def _kernels_with_ranges(export: Export, asked: Asked) -> tuple[Ranges, pa.Table]:
    """Kernels in _COLUMNS, each with the range that its column `range` means."""
    extra = ("correlationId", *SHAPE, *_RUN, "contextId", "greenContextId", "streamId")
    launched = kernels(export, asked, extra)
    ranges, around = range_names(export, asked, launched)
    columns = launched.columns | {"deviceId": launched.columns["device"], "range": around}
    columns |= {"start": launched.start, "duration": launched.end - launched.start}
    missing = pa.nulls(len(launched.start), LONG)
    return ranges, pa.table(
        {
            name: pa.array(columns[name], mask=columns[name] == NO_NUMBER) if name in columns else missing
            for name in _COLUMNS
        }
    )


def _threads(export: Export) -> dict[int, tuple[int | None, str | None]]:
    """globalTid → priority and name, the first where a thread has several."""
    if not {"globalTid", "priority", "nameId"} <= export.tables.get("ThreadNames", set()):
        return {}
    strings = export.strings()
    found: dict[int, tuple[int | None, str | None]] = {}
    for thread, priority, name in export.small("SELECT globalTid, priority, nameId FROM ThreadNames"):
        found.setdefault(thread, (priority, strings.get(name)))
    return found


def _device(names: dict[int, str], device: int | None) -> str | None:
    return None if device is None else f"{names.get(device, '')} ({device})".lstrip()


def _mb(value: int | None) -> float | None:
    return None if value is None else value / 1e6


def _throughput(moved: int | None, duration: int, asked: Asked) -> float | None:
    """MB/s; None where nothing is moved, or in no time."""
    if moved is None or not duration:
        return None
    return (1_000_000_000 // duration) * moved / 1e6 if asked.as_nsys else moved * 1000 / duration
