"""What `nsys stats` printed of one capture: its reports by today's names, and its kernels by kind of work."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..breakdown import KindTime
from ..kinds import kind_of
from ..work_kinds import work_kind
from .stats_text import StatsTable, Value, read_stats

KERNELS = "cuda_gpu_kern_sum"
_TOTAL = "Total Time (ns)"


@dataclass(frozen=True, kw_only=True)
class Printed:
    """The tables in one or several files of the same capture."""

    path: Path
    """The first of the files."""
    tables: dict[str, StatsTable]
    """By today's name of the report; one of the same name again has `_2` after it, one without a name is `table`."""

    def rows(self, report: str) -> list[dict[str, Value]]:
        """The rows of a report by their headings; none where it was not printed, or skipped."""
        table = self.tables.get(report)
        return [dict(zip(table.headings, row, strict=True)) for row in table.rows] if table else []

    def kinds(self) -> list[KindTime]:
        """The kernels by what their names say, GEMMs by precision, largest first; empty without a kernel summary."""
        totals: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for row in self.rows(KERNELS):
            name, total, count = str(row.get("Name")), row.get(_TOTAL), row.get("Instances")
            if isinstance(total, int | float):
                kind = work_kind(name, kind_of(name))
                totals[kind] += round(total)
                counts[kind] += round(count) if isinstance(count, int | float) else 0
        return [KindTime(kind=kind, count=counts[kind], total_ns=total) for kind, total in totals.most_common()]


def read_printed(paths: Sequence[Path]) -> Printed:
    """The tables in all files of one capture. TraceError where one is empty or holds none."""
    tables: dict[str, StatsTable] = {}
    for path in paths:
        for table in read_stats(path):
            name = table.report or "table"
            known = tables.get(name)
            if known and known.skipped and not table.skipped:
                del tables[name]  # printed after all, in another file
            elif known and table.skipped:
                continue
            tables[_free(name, tables)] = replace(table, report=name)
    return Printed(path=paths[0], tables=tables)


def _free(name: str, taken: dict[str, StatsTable]) -> str:
    number = 2
    label = name
    while label in taken:
        label, number = f"{name}_{number}", number + 1
    return label
