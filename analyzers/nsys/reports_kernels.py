"""Kernels summed by more than their name: by grid and block, and by the ranges around their launch."""

from collections.abc import Iterable

import pyarrow as pa

from .export import Export
from .reports_asked import Asked, Row, largest_first, with_share
from .reports_engine import LONG, database, summed
from .reports_launches import kernels, range_names
from .reports_names import SHAPE, Names, kernel_column, xyz


def kernel_grid_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """By grid, block and name."""
    rows = kernel_rows(export, asked, SHAPE)
    folded = [(*row[:7], xyz(*row[7:10]), xyz(*row[10:13]), row[-1]) for row in rows]
    return with_share(largest_first(folded, names=3))


def kernel_rows(export: Export, asked: Asked, keys: tuple[str, ...]) -> list[Row]:
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
