"""The kernel summary as others write it: total, count, median, mean, least, most, deviation and name, a line a kernel.

    python benchmarks/nsys_peers.py window|aggregates|duckdb EXPORT.sqlite

`window` is SQL alone, with the median by window functions; `aggregates` has median and deviation as Python aggregates
grouped by name; `duckdb` scans the file with DuckDB's extension, from the wheel duckdb-extension-sqlite-scanner.
"""

import sqlite3
import statistics
import sys
from pathlib import Path

_WINDOW = """
WITH kernels AS (SELECT demangledName AS name, "end" - start AS ns FROM CUPTI_ACTIVITY_KIND_KERNEL),
placed AS (
    SELECT name, ns, row_number() OVER (PARTITION BY name ORDER BY ns) AS place, count(*) OVER (PARTITION BY name) AS n
    FROM kernels
)
SELECT sum(ns) AS total, count(*), avg(CASE WHEN place IN ((n + 1) / 2, (n + 2) / 2) THEN ns END), avg(ns), min(ns),
    max(ns), sqrt(max(0, (sum(1.0 * ns * ns) - count(*) * avg(ns) * avg(ns)) / max(1, count(*) - 1))), value
FROM placed JOIN StringIds ON id = name GROUP BY name ORDER BY total DESC
"""
_AGGREGATES = """
SELECT sum("end" - start) AS total, count(*), median("end" - start), avg("end" - start), min("end" - start),
    max("end" - start), stdev("end" - start), value
FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = demangledName GROUP BY demangledName ORDER BY total DESC
"""
_DUCKDB = """
SELECT sum(ns)::BIGINT AS total, count(*), median(ns), avg(ns), min(ns), max(ns), coalesce(stddev_samp(ns), 0), value
FROM (SELECT demangledName AS name, "end" - start AS ns FROM sqlite_scan('{path}', 'CUPTI_ACTIVITY_KIND_KERNEL'))
JOIN sqlite_scan('{path}', 'StringIds') ON id = name GROUP BY value ORDER BY total DESC
"""


class Median:
    """The mean of the two middle values."""

    def __init__(self) -> None:
        """No values yet."""
        self.values: list[int] = []

    def step(self, value: int) -> None:
        """One more value."""
        self.values.append(value)

    def finalize(self) -> float:
        """The median of all."""
        return float(statistics.median(self.values))


class Deviation:
    """The sample's standard deviation, by Welford's method."""

    def __init__(self) -> None:
        """No values yet."""
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def step(self, value: int) -> None:
        """One more value."""
        self.count += 1
        off = value - self.mean
        self.mean += off / self.count
        self.squares += off * (value - self.mean)

    def finalize(self) -> float:
        """The deviation of all; 0 for one."""
        return float((self.squares / (self.count - 1)) ** 0.5) if self.count > 1 else 0.0


def main() -> None:
    """Print the summary."""
    way, path = sys.argv[1:]
    rows = _duckdb(path) if way == "duckdb" else _sqlite(path, way)
    for total, count, middle, *others in rows:
        print(total, count, f"{middle:.1f}", *others, sep="\t")


def _sqlite(path: str, way: str) -> list[tuple[object, ...]]:
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    database.create_aggregate("median", 1, Median)
    database.create_aggregate("stdev", 1, Deviation)
    return database.execute(_WINDOW if way == "window" else _AGGREGATES).fetchall()


def _duckdb(path: str) -> list[tuple[object, ...]]:
    import duckdb
    import duckdb_extension_sqlite_scanner as wheel  # type: ignore[import-not-found]

    extension = next(Path(wheel.__file__).parent.rglob("*.duckdb_extension"))
    database = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    database.execute(f"LOAD '{extension}'")
    return database.execute(_DUCKDB.format(path=path)).fetchall()


if __name__ == "__main__":
    main()
