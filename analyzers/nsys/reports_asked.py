"""What is asked of the reports, what an export must have for them, and what their rows are.

An event counts where it ends no earlier than it starts. `--filter-time` and `--filter-nvtx` keep an event, whole, where
any part of it lies in the window.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .export import Export

Value = str | int | float | None
Row = tuple[Value, ...]
KernelName = Literal["full", "base", "mangled"]

PUSH_POP, START_END = 59, 60
"""The types of NVTX events that are ranges."""


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
        return f"WHERE {end} >= start AND {self.part(columns, end=end)}"

    def part(self, columns: Iterable[str] = (), *, end: str = '"end"') -> str:
        """The same for rows that are known to end no earlier than they start, without the word WHERE."""
        first, last = self.window
        conditions = []
        if first is not None:
            conditions.append(f"{end} >= {first}")
        if last is not None:
            conditions.append(f"start <= {last}")
        if self.devices and "deviceId" in columns:
            conditions.append(f"deviceId IN ({', '.join(map(str, sorted(self.devices)))})")
        return " AND ".join(conditions) or "true"


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
