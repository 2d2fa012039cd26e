"""What the reports share that pyarrow and numpy do for them: rows as arrays, statistics, rows in an order."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .export import Export

Array = npt.NDArray[np.int64]
LONG = pa.int64()
NO_NUMBER = -1
"""In an array, in place of a missing number."""
_ROWS_AT_ONCE = 20_000
_THREAD_BITS = 24
_LOW = (1 << _THREAD_BITS) - 1


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
