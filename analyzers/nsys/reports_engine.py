"""What the reports share: what is asked of them, what an export must have, its rows as arrays, and statistics.

An event counts where it ends no earlier than it starts. `--filter-time` and `--filter-nvtx` keep an event, whole, where
any part of it lies in the window.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .export import Export

Value = str | int | float | None
Row = tuple[Value, ...]
Array = npt.NDArray[np.int64]
KernelName = Literal["full", "base", "mangled"]

LONG = pa.int64()
NO_NUMBER = -1
"""In an array, in place of a missing number."""
_ROWS_AT_ONCE = 20_000
_THREAD_BITS = 24
_LOW = (1 << _THREAD_BITS) - 1


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How a report is to be answered: its arguments, and the part of the capture it is about."""

    kernel_name: KernelName = "full"
    by_range: bool = False
    """Whether kernel names begin with the innermost NVTX range around their launch (`:nvtx-name`)."""
    limit: int = 10
    """The most rows of a report that has a limit of its own (`:rows=10`)."""
    as_nsys: bool = False
    """Whether throughput is rounded as `nsys stats` does it (`:nsys-throughput`)."""
    window: tuple[int | None, int | None] = (None, None)
    """First and last ns; None: from the start, to the end."""
    devices: frozenset[int] = frozenset()
    """Only what ran on these; empty: on all."""

    def where(self, columns: Iterable[str] = (), *, end: str = '"end"') -> str:
        """The condition under which a row of a table with these columns counts, as SQL."""
        first, last = self.window
        conditions = [f"{end} >= start"]
        if first is not None:
            conditions.append(f"{end} >= {first}")
        if last is not None:
            conditions.append(f"start <= {last}")
        if self.devices and "deviceId" in columns:
            conditions.append(f"deviceId IN ({', '.join(map(str, sorted(self.devices)))})")
        return "WHERE " + " AND ".join(conditions)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Rows of a table: it has these columns, and a row that meets the condition (SQL)."""

    table: str
    columns: tuple[str, ...] = ()
    rows: str = "1"

    def is_in(self, export: Export) -> bool:
        """Whether the export has such rows."""
        table = export.table(self.table)
        if table is None or not export.columns(table).issuperset(self.columns):
            return False
        return bool(export.small(f'SELECT 1 FROM "{table}" WHERE {self.rows} LIMIT 1'))


@dataclass(frozen=True, kw_only=True)
class Need:
    """What a report cannot do without: one of these."""

    sources: tuple[Source, ...]
    words: str
    """What an export that has none does not contain, in the words of `nsys stats`."""

    def is_met(self, export: Export) -> bool:
        """Whether the export has one."""
        return any(source.is_in(export) for source in self.sources)


@contextmanager
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that would spill into the system's temporary folder, never into the working one."""
    with (
        tempfile.TemporaryDirectory(prefix="stepscope-") as spill,
        duckdb.connect(config={"temp_directory": spill}) as connection,
    ):
        connection.execute("SET enable_progress_bar = false")
        yield connection


def process_of(serialised: Array) -> Array:
    """Process ids of `globalPid` or `globalTid`."""
    return np.where(serialised == NO_NUMBER, NO_NUMBER, (serialised >> _THREAD_BITS) & _LOW)


def thread_of(serialised: Array) -> Array:
    """Thread ids of `globalTid`."""
    return np.where(serialised == NO_NUMBER, NO_NUMBER, serialised & _LOW)


def process_and_thread(serialised: int | None) -> tuple[int | None, int | None]:
    """Process and thread id of one `globalTid`."""
    if serialised is None or serialised == NO_NUMBER:
        return None, None
    return serialised >> _THREAD_BITS & _LOW, serialised & _LOW


def arrays(export: Export, query: str, columns: Sequence[str]) -> dict[str, Array]:
    """The rows of a query of whole numbers, a column an array; a missing one is NO_NUMBER."""
    with export.batches(query, dict.fromkeys(columns, LONG)) as rows:
        found = rows.read_all()
    return {name: pc.fill_null(found[name], NO_NUMBER).to_numpy() for name in columns}


def spread(value: str) -> str:
    """As SQL: mean, median, least, most and sample deviation of a column, missing values left out."""
    return (
        f"avg({value}), quantile_cont({value}, 0.5), min({value}), max({value}), "
        f"CASE WHEN count({value}) = 1 THEN 0 ELSE stddev_samp({value}) END"
    )


def summed(connection: duckdb.DuckDBPyConnection, source: str, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of total, count, spread of `source`'s column `value`, and the keys they are grouped by, in no order."""
    by = ", ".join(keys)
    query = f"SELECT sum(value), count(*), {spread('value')}, {by} FROM ({source}) GROUP BY {by}"
    return connection.execute(query).fetchall()


def with_share(rows: list[Row]) -> list[Row]:
    """The rows with each one's share of all totals, in percent, before them."""
    whole = sum(number(row[0]) for row in rows)
    return [(100 * number(row[0]) / whole if whole else 0.0, *row) for row in rows]


def largest_first(rows: Iterable[Row], *, total: int = 0, names: int = 1) -> list[Row]:
    """Rows by column `total`, largest first, then by their last `names` columns."""
    return sorted(rows, key=lambda row: (-number(row[total]), tuple(map(str, row[len(row) - names :]))))


def number(value: Value) -> float:
    """A value that is a number; a missing one counts nothing."""
    return value if isinstance(value, int | float) else 0


def in_batches(connection: duckdb.DuckDBPyConnection, query: str) -> Iterator[tuple[Any, ...]]:
    """The rows of a query, a few thousand in memory at a time."""
    result = connection.execute(query)
    while rows := result.fetchmany(_ROWS_AT_ONCE):
        yield from rows


def in_order(columns: Sequence[Array], order: Array) -> Iterator[tuple[int, ...]]:
    """The rows of arrays in an order, a few thousand at a time."""
    for low in range(0, len(order), _ROWS_AT_ONCE):
        some = order[low : low + _ROWS_AT_ONCE]
        yield from zip(*(column[some].tolist() for column in columns), strict=True)
