"""What `nsys stats` printed, shown by `analyze-nsys` where that text is all there is."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..record.errors import ConfigError
from ..record.units import NOT_MEASURED, show_count, show_ns, show_pct
from .nsys_reports import Answer, answerable
from .tables import Column, Table, first_of, limited, print_all, print_table, share_pct, terminal

if TYPE_CHECKING:
    from ..analyzers.nsys.printed import Printed
    from ..analyzers.nsys.reports import Report, ReportColumn
    from ..analyzers.nsys.stats_text import StatsTable, Value

_ROWS = {"cuda_gpu_kern_sum": 8, "cuda_gpu_mem_time_sum": 4, "cuda_api_sum": 4, "nvtx_sum": 4}
"""The sums of the default view, most telling first, and their rows where nobody asked for a number."""
_TITLES = ("Kernels", "Copies and sets", "API calls", "NVTX ranges")
_NAMES = ("Name", "Operation", "Range")
_COUNTS = ("Instances", "Count", "Num Calls")


def show_list(printed: "Printed") -> None:
    """All reports, which of them the text holds, and why not the others."""
    from ..analyzers.nsys.reports import REPORTS

    titles = {report.name: report.title for report in REPORTS}
    others = {name: "" for name, table in printed.tables.items() if name not in titles and table.skipped is None}
    rows = [(name, _against(printed.tables.get(name)), title) for name, title in (titles | others).items()]
    print_table(answerable(f"Reports that {printed.path.name} holds (text of nsys stats)", rows), terminal())


def _against(table: "StatsTable | None") -> str | None:
    if table is None:
        return "not printed"
    return table.skipped and table.skipped.replace("does not contain", "no")


def show(printed: "Printed", top: int | None) -> None:
    """The default view: kinds of work, and the most telling sums; `top` rows of each (0: all)."""
    print_all(_parts(printed, top), terminal())


def _parts(printed: "Printed", top: int | None) -> Iterator[Table | str]:
    yield (
        f"{printed.path.name} is what nsys stats printed. It has sums only: the span, idle time, exposed communication "
        "and steps need the report or its export."
    )
    kinds = printed.kinds()
    whole = sum(row.total_ns for row in kinds)
    if kinds:
        told = ", ".join(f"{row.kind} {show_pct(share_pct(row.total_ns, whole))}" for row in kinds)
        yield f"Kinds of work, of the time of kernels: {told}"
    yield from _sums(printed, top)


def of_text(printed: "Printed", names: Iterable[str]) -> list[Answer]:
    """What a text says of reports; of all that it holds where no name is given. ConfigError for one there is not."""
    from ..analyzers.nsys.reports import REPORTS, report, todays_name

    known = {report.name: report for report in REPORTS}
    found = []
    for name in map(todays_name, names or printed.tables):
        table = printed.tables.get(name)
        if table is None and report(name).arguments:
            raise ConfigError(
                f"--report: {name}: {printed.path.name} is what nsys stats printed, and its arguments are as they were "
                "then; name the report or its export"
            )
        found.append(_answer(printed, name, table, known.get(table.report if table and table.report else name)))
    return found


def _answer(printed: "Printed", name: str, table: "StatsTable | None", known: "Report | None") -> Answer:
    if table is None:
        missing = f"{printed.path.name} does not hold it; where nsys is: nsys stats --report {name}"
    elif table.skipped is not None:
        missing = f"nsys stats skipped {name}: the capture {table.skipped}"
    else:
        missing = None
    return Answer(
        label=name,
        title=known.title if known else name,
        columns=_columns(table, known),
        missing=missing,
        rows=lambda: table.rows if table else [],
    )


def _columns(table: "StatsTable | None", known: "Report | None") -> list["ReportColumn"]:
    """The columns that were printed, with the decimals that the report has today."""
    from ..analyzers.nsys.reports import ReportColumn

    if table is None or table.skipped is not None:
        return list(known.columns) if known else []
    today = {column.heading: column for column in known.columns} if known else {}
    return [today.get(heading, ReportColumn(heading=heading)) for heading in table.headings]


def _sums(printed: "Printed", top: int | None) -> Iterator[Table | str]:
    for (report, fitting), title in zip(_ROWS.items(), _TITLES, strict=True):
        table = printed.tables.get(report)
        if table is None or table.skipped is not None:
            why = "not printed" if table is None else f"nsys stats skipped {report}: the capture {table.skipped}"
            yield f"{title}: {NOT_MEASURED}; {why}"
            continue
        rows = printed.rows(report)
        kept = rows[: limited(top, fitting)]
        yield _sum(f"{title}{first_of(len(kept), len(rows))}", kept, with_kind=report == "cuda_gpu_kern_sum")


def _sum(title: str, rows: "list[dict[str, Value]]", *, with_kind: bool) -> Table:
    from ..analyzers.kinds import kind_of

    kind = [Column(name="kind", heading="kind", right=False)] if with_kind else []
    names = [str(_first(row, _NAMES)) for row in rows]
    return Table(
        title=title,
        columns=[
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="share_pct", heading="share", show=show_pct),
            Column(name="count", heading="count", show=show_count),
            Column(name="mean_ns", heading="mean", show=show_ns, less=2),
            Column(name="median_ns", heading="median", show=show_ns, less=1),
            *kind,
            Column(name="name", heading="name", right=False, fold=True),
        ],
        rows=[
            (
                *(_number(row.get(heading)) for heading in ("Total Time (ns)", "Time (%)")),
                _number(_first(row, _COUNTS)),
                *(_number(row.get(heading)) for heading in ("Avg (ns)", "Med (ns)")),
                *([kind_of(name)] if with_kind else []),
                name,
            )
            for row, name in zip(rows, names, strict=True)
        ],
    )


def _first(row: "dict[str, Value]", headings: Iterable[str]) -> "Value":
    return next((row[heading] for heading in headings if heading in row), None)


def _number(value: "Value") -> float | None:
    """A cell that is a number; None where it was empty, or words."""
    return value if isinstance(value, int | float) else None
