"""The summaries of `nsys stats`, under their official names, with its columns, order and rounding.

duration = end − start in whole ns. Time (%) is a row's share of the listed rows. Medians are the mean of the two middle
values, deviations the sample's (n − 1; 0 for a single one). MB = 10⁶ bytes. Rows are by total, largest first, then by
name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import duckdb

from ...record.errors import ConfigError
from .export import Export, quoted
from .summaries import summarise

Value = str | int | float
Row = tuple[Value, ...]


@dataclass(frozen=True, kw_only=True)
class ReportColumn:
    """A column as nsys heads it; `decimals` None = as it is."""

    heading: str
    decimals: int | None = None


@dataclass(frozen=True, kw_only=True)
class Report:
    """One report: `rows` answers None where the export lacks what it needs."""

    name: str
    old_name: str
    title: str
    columns: tuple[ReportColumn, ...]
    lacks: str
    """What an export that cannot answer does not contain, in the words of `nsys stats`."""
    rows: Callable[[Export], list[Row] | None]


def report(name: str) -> Report:
    """The report called `name` (today's name, or that of before 2023); ConfigError lists those there are."""
    for known in REPORTS:
        if name in (known.name, known.old_name):
            return known
    raise ConfigError(
        f"--report: there is no report {name!r}; choose from {', '.join(known.name for known in REPORTS)}"
    )


def _kernel_rows(export: Export) -> list[Row] | None:
    table = export.table("CUPTI_ACTIVITY_KIND_KERNEL")
    if table is None:
        return None
    return _with_share(_named(export, table, "demangledName"))


def _api_rows(export: Export) -> list[Row] | None:
    table = export.table("CUPTI_ACTIVITY_KIND_RUNTIME")
    if table is None:
        return None
    # Names carry the CUDA version that introduced them; nsys takes it off where it has four digits, and leaves _v10000.
    return _with_share(_named(export, table, "nameId", lambda name: re.sub("_v[0-9]{4}$", "", name)))


def _memory_time_rows(export: Export) -> list[Row] | None:
    query = _memory_query(export, "end - start")
    return None if query is None else _with_share(_summed(export, query))


def _memory_size_rows(export: Export) -> list[Row] | None:
    query = _memory_query(export, "bytes")
    if query is None:
        return None
    return [
        (float(total) / 1e6, count, *(float(value) / 1e6 for value in statistics), name)
        for total, count, *statistics, name in _summed(export, query)
    ]


_INTERVALS = "WHERE end >= start"


def _memory_query(export: Export, value: str) -> str | None:
    """Copies and sets, each with its operation in words."""
    parts = []
    if copies := export.table("CUPTI_ACTIVITY_KIND_MEMCPY"):
        labels = "".join(f" WHEN {kind} THEN {quoted(label)}" for kind, label in export.copy_labels().items())
        operation = f"'[CUDA memcpy ' || CASE copyKind{labels} ELSE 'Unknown' END || ']'"
        parts.append(f"SELECT {operation} AS name, {value} AS value FROM {copies} {_INTERVALS}")
    if sets := export.table("CUPTI_ACTIVITY_KIND_MEMSET"):
        parts.append(f"SELECT '[CUDA memset]' AS name, {value} AS value FROM {sets} {_INTERVALS}")
    return " UNION ALL ".join(parts) if parts else None


def _named(export: Export, table: str, name_id: str, shown: Callable[[str], str] = str) -> list[Row]:
    """Durations of a table's rows by name."""
    found = summarise(export, table, name_id=name_id, value='"end" - start', at_least=0, shown=shown)
    return [(of.total, of.count, of.mean, of.median, of.least, of.most, of.deviation, of.name) for of in found]


def _summed(export: Export, query: str) -> list[Row]:
    """Statistics of a query of value by name, the name being text."""
    import pyarrow as pa

    with duckdb.connect() as database, export.batches(query, {"name": pa.string(), "value": pa.int64()}) as given:
        database.register("given", given)
        return _statistics(database, "SELECT name, value FROM given")


def _statistics(database: duckdb.DuckDBPyConnection, source: str) -> list[Row]:
    """Rows of total, count, mean, median, least, most, deviation and name."""
    return database.execute(
        f"""
        SELECT sum(value)::BIGINT AS total, count(*), avg(value), quantile_cont(value, 0.5), min(value), max(value),
               coalesce(stddev_samp(value), 0), coalesce(name, '?') AS label
        FROM ({source}) WHERE value IS NOT NULL GROUP BY label ORDER BY total DESC, label
        """
    ).fetchall()


def _with_share(rows: list[Row]) -> list[Row]:
    whole = sum(int(row[0]) for row in rows)
    return [(100 * int(row[0]) / whole if whole else 0.0, *row) for row in rows]


def _time_columns(count: str, name: str) -> tuple[ReportColumn, ...]:
    return (
        ReportColumn(heading="Time (%)", decimals=1),
        ReportColumn(heading="Total Time (ns)"),
        ReportColumn(heading=count),
        ReportColumn(heading="Avg (ns)", decimals=1),
        ReportColumn(heading="Med (ns)", decimals=1),
        ReportColumn(heading="Min (ns)"),
        ReportColumn(heading="Max (ns)"),
        ReportColumn(heading="StdDev (ns)", decimals=1),
        ReportColumn(heading=name),
    )


_SIZE_COLUMNS = (
    ReportColumn(heading="Total (MB)", decimals=3),
    ReportColumn(heading="Count"),
    *(ReportColumn(heading=f"{what} (MB)", decimals=3) for what in ("Avg", "Med", "Min", "Max", "StdDev")),
    ReportColumn(heading="Operation"),
)

REPORTS: tuple[Report, ...] = (
    Report(
        name="cuda_gpu_kern_sum",
        old_name="gpukernsum",
        title="CUDA GPU Kernel Summary",
        columns=_time_columns("Instances", "Name"),
        lacks="CUDA kernel data",
        rows=_kernel_rows,
    ),
    Report(
        name="cuda_gpu_mem_time_sum",
        old_name="gpumemtimesum",
        title="CUDA GPU MemOps Summary (by Time)",
        columns=_time_columns("Count", "Operation"),
        lacks="GPU memory data",
        rows=_memory_time_rows,
    ),
    Report(
        name="cuda_gpu_mem_size_sum",
        old_name="gpumemsizesum",
        title="CUDA GPU MemOps Summary (by Size)",
        columns=_SIZE_COLUMNS,
        lacks="GPU memory data",
        rows=_memory_size_rows,
    ),
    Report(
        name="cuda_api_sum",
        old_name="cudaapisum",
        title="CUDA API Summary",
        columns=_time_columns("Num Calls", "Name"),
        lacks="CUDA trace data",
        rows=_api_rows,
    ),
)
"""In the order in which they are shown."""
