"""`analyze-nsys`: what Nsight Systems recorded, and the reports of `nsys stats`, where there is no nsys and no GUI."""

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..record.errors import ConfigError
from .nsys_reports import Printer, TimeUnit, answerable
from .tables import Format, Top, json_text, print_table, terminal

if TYPE_CHECKING:
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.reports import Asked

_ROWS = 15
"""Rows of a report on a terminal where nobody asked for a number."""


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
    timeunit: TimeUnit = "nsec",
    filter_time: str | None = None,
    filter_nvtx: str | None = None,
    device: Annotated[list[int] | None, Parameter(negative="")] = None,
) -> None:
    """Say where the time went in what Nsight Systems recorded, or print the reports of `nsys stats`.

    Example: `analyze-nsys traces/run.nsys-rep --report cuda_gpu_kern_sum --format csv`

    Parameters
    ----------
    files
        A .nsys-rep report with its export beside it (or nsys on this machine), the export itself (SQLite, or
        a folder of Parquet files), or a folder with one; several are several ranks.
    report
        Print this report instead, by its official name, such as cuda_gpu_kern_sum or cuda_gpu_kern_sum:base;
        may repeat.
    format
        table; csv: as nsys stats prints it, with --report; json: the reports named, else stepscope.timeline/1.
    top
        Rows of each table to show; 0: all. CSV and JSON always have all. [default: what fits a screen; 15 of a report]
    output
        Folder to write each report into as CSV, instead of printing. Without --report: all of them.
    force
        Overwrite files in --output.
    list_reports
        List the reports, and whether this file can answer each, or what it lacks.
    timeunit
        Unit of the reports' times: nsec, usec, msec, seconds.
    filter_time
        START/END of the part to report on, ns or with units, such as 1s200ms/2s; either may be missing.
    filter_nvtx
        NVTX range to report on, NAME[@DOMAIN][/INDEX]; the first of that name, or the one of INDEX from 0.
    device
        Report only what ran on this GPU; may repeat.
    """
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.find import find_files
    from ..analyzers.nsys.locate import with_doubt
    from ..analyzers.nsys.reports import REPORTS
    from ..analyzers.nsys.reports import report as report_called

    chosen = [report_called(name) for names in report or () for name in names.split(",")]
    if format == "csv" and not chosen and output is None:
        raise ConfigError("--format csv prints the reports named with --report; or write all of them with --output")
    if filter_time and filter_nvtx:
        raise ConfigError("--filter-time and --filter-nvtx: choose one of them")
    if (timeunit != "nsec" or filter_time or filter_nvtx or device) and not (chosen or output):
        raise ConfigError("--timeunit, --filter-time, --filter-nvtx and --device are for reports; name one: --report")
    with tempfile.TemporaryDirectory(prefix="stepscope-") as scratch:
        located = [with_doubt(path, Path(scratch)) for path in find_files(files)]
        paths = [path for path, _ in located]
        _say(doubt for _, doubt in located if doubt)
        if not (chosen or list_reports or output):
            _print_answers(paths, format, top)
            return
        if len(paths) > 1:
            raise ConfigError(f"--report, --list and --output take one file, not {len(paths)}; name one")
        with Export(paths[0]) as export:
            if list_reports:
                print_table(answerable(export, REPORTS), terminal())
                return
            _say(filter(None, [export.doubt]))
            asked = _asked(export, filter_time, filter_nvtx, device)
            printer = Printer(export=export, reports=chosen or list(REPORTS), asked=asked, unit=timeunit)
            if output is not None:
                printer.files(output, force=force)
            elif format == "csv":
                printer.csv()
            elif format == "json":
                printer.json()
            else:
                printer.tables(_ROWS if top is None else top)
                _warn_of_environment(export)


def _say(notes: Iterable[str]) -> None:
    """Each on stderr, so that what is on stdout stays what a program may read."""
    for note in notes:
        sys.stderr.write(f"note: {note}\n")


def _print_answers(paths: list[Path], format: Format, top: int | None) -> None:
    from ..analyzers.nsys.answers import answers
    from .nsys_view import show

    found = answers(paths)
    if format == "json":
        sys.stdout.write(json_text(found))
    else:
        show(found, terminal(), top)


def _asked(export: "Export", filter_time: str | None, filter_nvtx: str | None, device: list[int] | None) -> "Asked":
    from ..analyzers.nsys.reports import Asked

    window: tuple[int | None, int | None] = (None, None)
    if filter_time or filter_nvtx:
        from ..analyzers.nsys.reports_filters import range_window, time_window

        window = time_window(filter_time) if filter_time else range_window(export, filter_nvtx or "")
    return Asked(window=window, devices=frozenset(device or ()))


def _warn_of_environment(export: "Export") -> None:
    if export.carries_environment:
        name = export.path.name
        carries = f"{name} carries the profiled program's environment variables"
        _say([f"{carries}; before you send it on: stepscope scrub {name}"])
