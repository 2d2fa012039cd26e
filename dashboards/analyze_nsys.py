"""`analyze-nsys`: what Nsight Systems recorded, and the reports of `nsys stats`, where there is no nsys and no GUI."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..record.errors import ConfigError
from .nsys_reports import Answer, Printer, TimeUnit, answerable, of_export
from .tables import Format, Top, json_text, print_table, terminal

if TYPE_CHECKING:
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.locate import Input
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
        a folder of Parquet files), what nsys stats printed (.csv, .txt), or a folder; several are several ranks.
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
    from ..analyzers.nsys.locate import locate

    names = [name for listed in report or () for name in listed.split(",")]
    part = _Part(filter_time=filter_time, filter_nvtx=filter_nvtx, devices=tuple(device or ()))
    wanted = _Wanted(names=names, format=format, top=top, unit=timeunit, output=output, force=force)
    if format == "csv" and not names and output is None:
        raise ConfigError("--format csv prints the reports named with --report; or write all of them with --output")
    if filter_time and filter_nvtx:
        raise ConfigError("--filter-time and --filter-nvtx: choose one of them")
    if (timeunit != "nsec" or part.options) and not (names or output):
        raise ConfigError("--timeunit, --filter-time, --filter-nvtx and --device are for reports; name one: --report")
    with tempfile.TemporaryDirectory(prefix="stepscope-") as scratch:
        inputs = locate(files, Path(scratch))
        if printed := next((one for one in inputs if one.stats), None):
            _of_text(inputs, printed, wanted, part, list_reports=list_reports)
        elif not (names or list_reports or output):
            _print_answers(inputs, format, top)
        elif len(inputs) > 1:
            raise ConfigError(f"--report, --list and --output take one file, not {len(inputs)}; name one")
        else:
            _of_export(inputs[0], wanted, part, list_reports=list_reports)


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """Which reports, and how."""

    names: list[str]
    format: Format
    top: int | None
    unit: TimeUnit
    output: Path | None
    force: bool

    def print(self, answers: list[Answer], stem: str) -> None:
        printer = Printer(answers=answers, unit=self.unit)
        if self.output is not None:
            printer.files(self.output, stem, force=self.force)
        elif self.format == "csv":
            printer.csv()
        elif self.format == "json":
            printer.json()
        else:
            printer.tables(_ROWS if self.top is None else self.top)


@dataclass(frozen=True, kw_only=True)
class _Part:
    """Which part of a capture."""

    filter_time: str | None
    filter_nvtx: str | None
    devices: tuple[int, ...]

    @property
    def options(self) -> list[str]:
        """Those that were given."""
        given = {"--filter-time": self.filter_time, "--filter-nvtx": self.filter_nvtx, "--device": self.devices}
        return [option for option, value in given.items() if value]

    def of(self, export: "Export") -> "Asked":
        """What reports are asked for, with the time of a range in this export."""
        from ..analyzers.nsys.reports import Asked

        window: tuple[int | None, int | None] = (None, None)
        if self.filter_time or self.filter_nvtx:
            from ..analyzers.nsys.reports_filters import range_window, time_window

            window = time_window(self.filter_time) if self.filter_time else range_window(export, self.filter_nvtx or "")
        return Asked(window=window, devices=frozenset(self.devices))


def _of_export(one: "Input", wanted: _Wanted, part: _Part, *, list_reports: bool) -> None:
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.reports import REPORTS
    from ..analyzers.nsys.reports import report as report_called

    assert one.export is not None
    chosen = [report_called(name) for name in wanted.names] or list(REPORTS)
    with Export(one.export) as export:
        if list_reports:
            lacking = [(report, report.lacks(export)) for report in REPORTS]
            rows = [(report.name, lacks and f"no {lacks}", report.title) for report, lacks in lacking]
            print_table(answerable(f"Reports that {export.path.name} can answer ({export.format})", rows), terminal())
            return
        wanted.print(of_export(export, chosen, part.of(export)), export.path.stem)
        if one.note:
            sys.stderr.write(f"warning: {one.note}\n")
        if wanted.output is None and wanted.format == "table" and export.carries_environment:
            sys.stderr.write(
                f"note: {export.path.name} carries the profiled program's environment variables; "
                f"before you send it on: stepscope scrub {export.path.name}\n"
            )


def _of_text(inputs: "list[Input]", one: "Input", wanted: _Wanted, part: _Part, *, list_reports: bool) -> None:
    """What nsys stats printed. ConfigError for what only the export can tell."""
    from ..analyzers.nsys.locate import stem_of_table
    from ..analyzers.nsys.printed import read_printed
    from .nsys_stats import of_text, show, show_list

    if len(inputs) > 1:
        raise ConfigError(f"{one.named} is what nsys stats printed; name it alone, or name the reports or exports only")
    if part.options:
        raise ConfigError(
            f"{one.named} is what nsys stats printed; {' and '.join(part.options)} needs the report or its export"
        )
    printed = read_printed(one.stats)
    if list_reports:
        show_list(printed)
    elif wanted.names or wanted.output is not None or wanted.format == "json":
        wanted.print(of_text(printed, wanted.names), stem_of_table(printed.path))
    else:
        show(printed, wanted.top)


def _print_answers(inputs: "list[Input]", format: Format, top: int | None) -> None:
    import msgspec

    from ..analyzers.findings import Finding
    from ..analyzers.nsys.answers import answers
    from .nsys_view import show

    found = answers([one.export for one in inputs if one.export])
    doubts = [Finding(code="export-in-doubt", severity="warning", text=one.note) for one in inputs if one.note]
    found = msgspec.structs.replace(found, findings=[*doubts, *found.findings])
    if format == "json":
        sys.stdout.write(json_text(found))
    else:
        show(found, terminal(), top)
