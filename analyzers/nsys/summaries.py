"""Count, total, mean, median, least, most and deviation of a number by name, over tables of millions of rows.

Rows are counted by name and value while they stream out of the export, so that what stays in memory grows with the
number of different values and not with the rows. A large table is read in several stretches of row numbers at once,
each by a thread of its own: DuckDB would read the streams of one query one after the other. Sums are exact; a median is
the mean of the two middle values; a deviation is the sample's (n − 1), 0 for a single row.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import duckdb

from .export import Export

UNKNOWN = "?"
"""In place of a name that the export does not have."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The statistics of one name, in the unit of the values."""

    name: str
    count: int
    total: int
    mean: float
    median: float
    least: int
    most: int
    deviation: float


def summarise(
    export: Export,
    table: str,
    *,
    name_id: str,
    value: str,
    where: str = "true",
    at_least: int | None = None,
    shown: Callable[[str], str] = str,
    texts: Mapping[int, str] | None = None,
) -> list[Summary]:
    """What `value` is for each name, largest total first, then by name.

    `name_id`, `value` and `where` are SQL over the columns of `table`; the first two answer integers. A value below
    `at_least` counts in nothing, and it costs less to say so there than in `where`. Rows whose names are `shown` the
    same are one group; ids without a text are `?`. Texts are `texts`, or else those of the export.
    """
    rows = f'SELECT {name_id} AS name, {value} AS value FROM "{table}" WHERE {where}'
    kept = "value IS NOT NULL" if at_least is None else f"value >= {at_least}"
    with duckdb.connect() as database:
        _count(export, database, [f"{rows} AND {stretch.where}" for stretch in export.stretches(table)], kept)
        ids = [row[0] for row in database.execute("SELECT DISTINCT name FROM counted").fetchall()]
        known = export.texts(ids) if texts is None else texts
        names = {id: shown(str(known.get(id, UNKNOWN))) for id in ids}
        labels = sorted(set(names.values()))
        number = {label: index for index, label in enumerate(labels)}
        columns = [list(names), [number[name] for name in names.values()]]
        database.execute("CREATE TABLE known AS SELECT unnest($1::BIGINT[]) AS id, unnest($2::INT[]) AS label", columns)
        found = database.execute(_STATISTICS).fetchall()
    return [_summary(labels[label], *row) for label, *row in found]


def _count(export: Export, database: duckdb.DuckDBPyConnection, queries: Sequence[str], kept: str) -> None:
    """Make `counted`: how often each pair of name and value comes in the rows of all queries."""

    def count(part: int) -> None:
        with database.cursor() as cursor, export.integers(queries[part], ("name", "value")) as stream:
            cursor.register("given", stream)
            cursor.execute(_COUNTED.format(part=part, kept=kept))

    parts = range(len(queries))
    with ThreadPoolExecutor(len(queries)) as readers:
        list(readers.map(count, parts))
    together = " UNION ALL ".join(f"SELECT * FROM counted{part}" for part in parts)
    database.execute(f"CREATE VIEW counted AS {together}")


_COUNTED = "CREATE TABLE counted{part} AS SELECT name, value, count(*) AS n FROM given WHERE {kept} GROUP BY ALL"
_STATISTICS = """
WITH named AS (
    SELECT label, value, sum(n)::BIGINT AS n FROM counted JOIN known ON id IS NOT DISTINCT FROM name GROUP BY ALL
),
ordered AS (
    SELECT *, sum(n) OVER (PARTITION BY label ORDER BY value)::BIGINT AS reached,
        sum(n) OVER (PARTITION BY label)::BIGINT AS rows,
        sum(value::DOUBLE * n) OVER (PARTITION BY label) / rows AS near
    FROM named
)
SELECT label, any_value(rows), sum(value::HUGEINT * n) AS total, min(value), max(value),
    min(value) FILTER (reached >= (rows + 1) // 2), min(value) FILTER (reached >= (rows + 2) // 2),
    sum(n * (value - near) * (value - near))
FROM ordered GROUP BY label ORDER BY total DESC, label
"""
# `near` is the mean as a float: what is left of it in a sum of squared distances is far below the last digit shown.


def _summary(
    name: str, count: int, total: int, least: int, most: int, lower: int, upper: int, squares: float
) -> Summary:
    return Summary(
        name=name,
        count=count,
        total=total,
        mean=total / count,
        median=(lower + upper) / 2,
        least=least,
        most=most,
        deviation=(squares / (count - 1)) ** 0.5 if count > 1 else 0.0,
    )
