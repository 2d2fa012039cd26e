"""`analyze-nsys`: the summaries of `nsys stats` from a report or its export, where there is no nsys and no GUI."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..record.errors import ConfigError
from .nsys_reports import Printer, TimeUnit, answerable
from .tables import Format, Top, json_text, print_table, terminal

if TYPE_CHECKING:
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.reports import Asked


def analyze_nsys(
    file: Path,
    /,
    *,
    report: Annotated[list[str] | None, Parameter(negative="")] = None,
    format: Format = "table",
    top: Top = 15,
    output: Path | None = None,
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    list_reports: Annotated[bool, Parameter(name="--list", negative="", show_default=False)] = False,
    timeunit: TimeUnit = "nsec",
    filter_time: str | None = None,
    filter_nvtx: str | None = None,
    device: Annotated[list[int] | None, Parameter(negative="")] = None,
) -> None:
    """Summarise what Nsight Systems recorded: kernels, copies by time and by size, CUDA API calls, NVTX ranges.

    Example: `analyze-nsys traces/run.nsys-rep --report cuda_gpu_kern_sum --format csv`

    Parameters
    ----------
    file
        A .nsys-rep report with its export beside it (or nsys on this machine), the SQLite export itself, or
        the folder of a run that has one.
    report
        A report by its official name, such as cuda_gpu_kern_sum or cuda_gpu_kern_sum:base; may repeat.
        [default: sums of kernels, copies, API calls and NVTX ranges]
    format
        table; csv: as nsys stats prints it, with --report; json: the reports named, else stepscope.timeline/1.
    top
        Rows of each table to show; 0: all. CSV and JSON always have all.
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
        Only what ran on this GPU; may repeat.
    """
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.locate import locate_export
    from ..analyzers.nsys.reports import DEFAULT, REPORTS
    from ..analyzers.nsys.reports import report as report_called

    chosen = [report_called(name) for names in report or () for name in names.split(",")]
    if format == "csv" and not report and output is None:
        raise ConfigError("--format csv prints the reports named with --report; or write all of them with --output")
    if filter_time and filter_nvtx:
        raise ConfigError("--filter-time and --filter-nvtx: choose one of them")
    with tempfile.TemporaryDirectory(prefix="stepscope-") as scratch:
        path = locate_export(file, Path(scratch))
        if format == "json" and not chosen and output is None:
            _print_timeline(path)
            return
        with Export(path) as export:
            if list_reports:
                print_table(answerable(export, REPORTS), terminal())
                return
            asked = _asked(export, filter_time, filter_nvtx, device)
            everything = REPORTS if output else REPORTS[:DEFAULT]
            printer = Printer(export=export, reports=chosen or list(everything), asked=asked, unit=timeunit)
            if output is not None:
                printer.files(output, force=force)
            elif format == "csv":
                printer.csv()
            elif format == "json":
                printer.json()
            else:
                printer.tables(top)
                _warn_of_environment(export)


def _asked(export: "Export", filter_time: str | None, filter_nvtx: str | None, device: list[int] | None) -> "Asked":
    from ..analyzers.nsys.reports import Asked
    from ..analyzers.nsys.reports_filters import range_window, time_window

    window = time_window(filter_time) if filter_time else range_window(export, filter_nvtx) if filter_nvtx else None
    return Asked(window=window or (None, None), devices=frozenset(device or ()))


def _warn_of_environment(export: "Export") -> None:
    if export.carries_environment:
        sys.stderr.write(
            f"note: {export.path.name} carries the profiled program's environment variables; "
            f"before you send it on: stepscope scrub {export.path.name}\n"
        )


def _print_timeline(path: Path) -> None:
    from ..analyzers.breakdown import breakdown
    from ..analyzers.nsys.read import read_export

    sys.stdout.write(json_text(breakdown(read_export(path))))
