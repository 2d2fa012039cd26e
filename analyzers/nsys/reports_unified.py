"""Unified memory: migrations and page faults by address."""

from collections.abc import Iterable

from .export import Export
from .reports_asked import Asked, Row
from .reports_engine import LONG, database

_TO_DEVICE, _TO_HOST = 11, 12


def unified_memory_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Migrations and page faults by virtual address, most bytes first, at most `asked.limit` of them."""
    parts = {
        "to_device": _migrations(export, asked, _TO_DEVICE, "to_device"),
        "to_host": _migrations(export, asked, _TO_HOST, "to_host"),
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
