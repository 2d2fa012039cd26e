"""Columns that views of traces share.

Columns marked as data are for CSV and JSON alone: on a terminal the row has to fit beside a name.
"""

from collections.abc import Iterable, Sequence

from ..record.units import show_count, show_ns, show_pct
from .tables import Column, Table, cells, or_no

RANK = Column(name="rank", heading="rank")
DEVICE = Column(name="device", heading="GPU", show=lambda value: "CPU" if value == -1 else str(value))
NS = or_no(show_ns)


def times(*columns: tuple[str, str]) -> list[Column]:
    """Columns of ns, by name and heading."""
    return [Column(name=name, heading=heading, show=NS) for name, heading in columns]


def data(*names: str) -> list[Column]:
    """Columns for CSV and JSON alone."""
    return [Column(name=name, heading=name, data=True) for name in names]


def pct(name: str, heading: str) -> Column:
    """A column of percentages."""
    return Column(name=name, heading=heading, show=show_pct)


def count(name: str = "count", heading: str = "count") -> Column:
    """A column of numbers of things."""
    return Column(name=name, heading=heading, show=show_count)


def named(heading: str, name: str = "name") -> Column:
    """A column of names, which may be long."""
    return Column(name=name, heading=heading, right=False, fold=True)


def by_rank(
    found: Iterable[tuple[int, object]], *, title: str, columns: Sequence[Column], note: str | None = None
) -> Table:
    """`Table.of` things each with its rank, which is the first column."""
    rows = [(rank, *cells(one, columns[1:])) for rank, one in found]
    return Table(title=title, columns=columns, rows=rows, note=note)
