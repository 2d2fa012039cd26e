"""The sums: kernels, copies and sets, API calls, calls of the operating system, unified memory."""

from collections.abc import Iterable

import pyarrow as pa

from .export import Export
from .reports_engine import (
    LONG,
    Asked,
    Row,
    database,
    largest_first,
    number,
    summed,
    with_share,
)
from .reports_launches import kernels, range_names
from .reports_names import SHAPE, Names, api_names, kernel_column, operation, operation_names, xyz

_OS_CALL = 27
"""The class of a call of the OS runtime; others mark where its recording began and ended."""
_UNIFIED_TO_DEVICE, _UNIFIED_TO_HOST = 11, 12


def kernel_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """By name. Graphs that were recorded whole are no kernels."""
    return with_share(largest_first(_kernels(export, asked, ())))


def kernel_grid_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """By grid, block and name."""
    rows = _kernels(export, asked, SHAPE)
    folded = [(*row[:7], xyz(*row[7:10]), xyz(*row[10:13]), row[-1]) for row in rows]
    return with_share(largest_first(folded, names=3))


def gpu_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Kernels, copies and sets by name."""
    kernels = [(*row[:-1], "CUDA_KERNEL", row[-1]) for row in _kernels(export, asked, ())]
    memory = [(*row[:-1], "MEMORY_OPER", row[-1]) for row in _memory(export, asked, '"end" - start')]
    return with_share(largest_first(kernels + memory))


def memory_time_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Copies and sets by operation and time."""
    return with_share(largest_first(_memory(export, asked, '"end" - start')))


def memory_size_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Copies and sets by operation and bytes, in MB of 10⁶."""
    return [
        (number(total) / 1e6, count, *(number(value) / 1e6 for value in rest), name)
        for total, count, *rest, name in largest_first(_memory(export, asked, "bytes"))
    ]


def api_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """CUDA calls by name."""
    return with_share(largest_first(_calls(export, asked, "CUPTI_ACTIVITY_KIND_RUNTIME", api_names(export))))


def os_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Calls of the OS runtime by name."""
    names = Names(export.strings())
    only = f"eventClass = {_OS_CALL}" if "eventClass" in export.columns(export.table("OSRT_API") or "") else ""
    return with_share(largest_first(_calls(export, asked, "OSRT_API", names, only)))


def unified_memory_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Migrations and page faults by virtual address, most bytes first, at most `asked.limit` of them."""
    parts = {
        "to_device": _migrations(export, asked, _UNIFIED_TO_DEVICE, "to_device"),
        "to_host": _migrations(export, asked, _UNIFIED_TO_HOST, "to_host"),
        "cpu": _faults(export, asked, "CUDA_UM_CPU_PAGE_FAULT_EVENTS", "cpu", "1"),
        "gpu": _faults(export, asked, "CUDA_UM_GPU_PAGE_FAULT_EVENTS", "gpu", "numberOfPageFaults"),
    }
    columns = ("address", *parts, "ns")
    with database() as connection:
        connection.execute(f"CREATE TABLE found ({', '.join(f'{name} BIGINT' for name in columns)})")
        for query in filter(None, parts.values()):
            with export.batches(query, dict.fromkeys(columns, LONG)) as given:
                connection.register("given", given)
                connection.execute("INSERT INTO found SELECT * FROM given")
        totals = ", ".join(f"sum(coalesce({name}, 0))" if query else "NULL" for name, query in parts.items())
        rows = connection.execute(
            f"""
            SELECT address, {totals}, sum(ns), sum(coalesce(to_device, 0) + coalesce(to_host, 0)) AS bytes FROM found
            GROUP BY address ORDER BY bytes DESC, sum(coalesce(cpu, 0) + coalesce(gpu, 0)) DESC, address LIMIT ?
            """,
            [asked.limit],
        ).fetchall()
    return [
        (f"0x{address:X}", _mb(to_device), _mb(to_host), cpu, gpu, _mb_per_s(moved, ns))
        for address, to_device, to_host, cpu, gpu, ns, moved in rows
    ]


def _kernels(export: Export, asked: Asked, keys: tuple[str, ...]) -> list[Row]:
    """Rows of statistics, keys and name."""
    table = export.table("CUPTI_ACTIVITY_KIND_KERNEL")
    if table is None:
        return []
    has, names = export.columns(table), Names(export.strings())
    name = kernel_column(export, table, asked)
    extra = "".join(f", {key if key in has else 'NULL'} AS {key}" for key in keys)
    with database() as connection:
        if asked.by_range:
            launched = kernels(export, asked, keys)
            ranges, around = range_names(export, asked, launched)
            columns = {column: launched.columns[column] for column in ("name", *keys)}
            connection.register("given", pa.table(columns | {"range": around, "value": launched.end - launched.start}))
            rows = summed(connection, names.merged(connection, "SELECT * FROM given"), (*keys, "range", "name"))
            return [(*row[:-2], ranges.prefix(row[-2]) + names.text(row[-1])) for row in rows]
        query = f'SELECT {name} AS name, "end" - start AS value{extra} FROM {table} {asked.where(has)}'
        with export.batches(query, dict.fromkeys(("name", "value", *keys), LONG)) as batches:
            connection.register("given", batches)
            rows = summed(connection, names.merged(connection, "SELECT * FROM given"), (*keys, "name"))
    return [(*row[:-1], names.text(row[-1])) for row in rows]


def _memory(export: Export, asked: Asked, value: str) -> list[Row]:
    """Rows of statistics and operation."""
    parts = []
    for kind in ("MEMCPY", "MEMSET"):
        if table := export.table(f"CUPTI_ACTIVITY_KIND_{kind}"):
            where = asked.where(export.columns(table))
            parts.append(f"SELECT {operation(export, table)} AS name, {value} AS value FROM {table} {where}")
    if not parts:
        return []
    return _named(export, " UNION ALL ".join(parts), Names(operation_names(export)))


def _calls(export: Export, asked: Asked, name: str, names: Names, only: str = "") -> list[Row]:
    table = export.table(name)
    if table is None:
        return []
    where = asked.where() + (f" AND {only}" if only else "")
    return _named(export, f'SELECT nameId AS name, "end" - start AS value FROM {table} {where}', names)


def _named(export: Export, query: str, names: Names) -> list[Row]:
    with database() as connection, export.batches(query, {"name": LONG, "value": LONG}) as given:
        connection.register("given", given)
        rows = summed(connection, names.merged(connection, "SELECT * FROM given"), ("name",))
    return [(*row[:-1], names.text(row[-1])) for row in rows]


def _migrations(export: Export, asked: Asked, kind: int, column: str) -> str | None:
    """Bytes and time of one direction by address, as SQL; None where they were not recorded."""
    table = export.table("CUPTI_ACTIVITY_KIND_MEMCPY")
    has = export.columns(table) if table else set()
    if "virtualAddress" not in has:
        return None
    only = f"copyKind = {kind} AND virtualAddress IS NOT NULL"
    return _by_address(f"{table} {asked.where(has)} AND {only}", column, "bytes", "virtualAddress", '"end" - start')


def _faults(export: Export, asked: Asked, name: str, column: str, count: str) -> str | None:
    table = export.table(name)
    if table is None:
        return None
    where = asked.where(export.columns(table), end="start")
    return _by_address(f"{table} {where}", column, count, "address", "NULL")


def _by_address(rows: str, column: str, value: str, address: str, ns: str) -> str:
    values = {name: value if name == column else "NULL" for name in ("to_device", "to_host", "cpu", "gpu")}
    selected = ", ".join(f"{value} AS {name}" for name, value in values.items())
    return f"SELECT {address} AS address, {selected}, {ns} AS ns FROM {rows}"


def _mb(value: int | None) -> float | None:
    return None if value is None else value / 1e6


def _mb_per_s(moved: int, ns: int | None) -> float | None:
    return moved * 1000 / ns if ns else None
