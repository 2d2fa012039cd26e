"""`analyze-nsys`: the summaries of `nsys stats` from a report or its export, where there is no nsys and no GUI."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..record.errors import ConfigError, UserError
from .tables import Column, Format, Table, Top, csv_text, json_text, print_table, terminal

if TYPE_CHECKING:
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.reports import Report, ReportColumn, Row


def analyze_nsys(
    files: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    report: Annotated[list[str] | None, Parameter(negative="")] = None,
    format: Format = "table",
    top: Top | None = None,
    output: Path | None = None,
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    list_reports: Annotated[bool, Parameter(name="--list", negative="", show_default=False)] = False,
) -> None:
    """Say where the time went in what Nsight Systems recorded, or print the summaries of `nsys stats`.

    Example: `analyze-nsys traces/run.nsys-rep --report cuda_gpu_kern_sum --format csv`

    Parameters
    ----------
    files
        A .nsys-rep report with its export beside it (or nsys on this machine), the SQLite export itself, or
        a folder with one; several are several ranks.
    report
        Print this report instead, by its official name, such as cuda_gpu_kern_sum; may repeat.
    format
        table; csv: as nsys stats prints it, for one --report; json: everything, as stepscope.timeline/1.
    top
        Rows of each table to show; 0: all. CSV and JSON always have all. [default: what fits a screen; 15 of a report]
    output
        Folder to write each report into as CSV, instead of printing.
    force
        Overwrite files in --output.
    list_reports
        List the reports, and whether this file can answer each.
    """
    from ..analyzers.nsys.answers import answers
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.find import find_files
    from ..analyzers.nsys.locate import locate_export
    from ..analyzers.nsys.reports import REPORTS
    from ..analyzers.nsys.reports import report as report_called
    from .nsys_view import show

    chosen = [report_called(name) for name in report] if report else list(REPORTS)
    if format == "csv" and not report and output is None:
        raise ConfigError("--format csv prints the reports named with --report; or write all of them with --output")
    with tempfile.TemporaryDirectory(prefix="stepscope-") as scratch:
        paths = [locate_export(path, Path(scratch)) for path in find_files(files)]
        if not (report or list_reports or output):
            found = answers(paths)
            if format == "json":
                sys.stdout.write(json_text(found))
            else:
                show(found, terminal(), top)
            return
        if len(paths) > 1:
            raise ConfigError(f"--report, --list and --output take one file, not {len(paths)}; name one")
        with Export(paths[0]) as export:
            if list_reports:
                print_table(_answerable(export, REPORTS), terminal())
            elif output is not None:
                _write(export, chosen, output, force=force)
            elif format == "csv":
                _print_csv(export, chosen)
            elif format == "json":
                raise ConfigError("--format json prints everything; leave --report out, or ask for csv")
            else:
                _print_tables(export, chosen, 15 if top is None else top)


def _print_csv(export: "Export", reports: list["Report"]) -> None:
    """One after the other, with an empty line between, as `nsys stats` does."""
    found = [(report, report.rows(export)) for report in reports]
    missing = [_lacking(export, report) for report, rows in found if rows is None]
    if len(missing) == len(found):
        raise UserError(missing[0])
    sys.stdout.write("\n".join(csv_text(_rounded(report, rows)) for report, rows in found if rows is not None))
    for line in missing:
        sys.stderr.write(f"skipped: {line}\n")


def _print_tables(export: "Export", reports: list["Report"], top: int) -> None:
    console = terminal()
    for report in reports:
        rows = report.rows(export)
        if rows is None:
            console.print(f"{report.title}: not measured; {_lacking(export, report)}\n", markup=False, soft_wrap=True)
        else:
            print_table(_shown(report, rows, top), console)
    if export.carries_environment:
        sys.stderr.write(
            f"note: {export.path.name} carries the profiled program's environment variables; "
            f"before you send it on: stepscope scrub {export.path.name}\n"
        )


def _write(export: "Export", reports: list["Report"], folder: Path, *, force: bool) -> None:
    files = {report.name: folder / f"{export.path.stem}_{report.name}.csv" for report in reports}
    taken = [str(path) for path in files.values() if path.exists()]
    if taken and not force:
        raise UserError(f"{', '.join(taken)}: exists; add --force to overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    for report in reports:
        rows = report.rows(export)
        if rows is None:
            sys.stderr.write(f"skipped {report.name}: {_lacking(export, report)}\n")
            continue
        files[report.name].write_text(csv_text(_rounded(report, rows)), encoding="utf-8")
        sys.stdout.write(f"{files[report.name]}\n")


def _answerable(export: "Export", reports: tuple["Report", ...]) -> Table:
    return Table(
        title=f"Reports that {export.path.name} can answer ({export.format})",
        columns=[
            Column(name="report", heading="report", right=False),
            Column(name="answer", heading="can it?", right=False),
            Column(name="title", heading="what it is", right=False),
        ],
        rows=[
            (report.name, f"no {report.lacks}" if report.rows(export) is None else "yes", report.title)
            for report in reports
        ],
    )


def _lacking(export: "Export", report: "Report") -> str:
    return f"{export.path.name} does not contain {report.lacks}"


def _rounded(report: "Report", rows: list["Row"]) -> Table:
    """Numbers as text with the decimals that nsys prints."""
    return Table(
        title=report.name,
        columns=[Column(name=column.heading, heading=column.heading) for column in report.columns],
        rows=[[_fixed(value, column) for value, column in zip(row, report.columns, strict=True)] for row in rows],
    )


def _shown(report: "Report", rows: list["Row"], top: int) -> Table:
    kept = _rounded(report, rows[: top or None]).rows
    last = len(report.columns) - 1
    of = f": the first {top} of {len(rows)}" if 0 < top < len(rows) else ""
    return Table(
        title=f"{report.title} ({report.name}){of}",
        columns=[
            Column(name=column.heading, heading=column.heading, right=index != last, fold=index == last)
            for index, column in enumerate(report.columns)
        ],
        rows=kept,
    )


def _fixed(value: str | int | float, column: "ReportColumn") -> str | int | float:
    return value if column.decimals is None else f"{value:.{column.decimals}f}"
