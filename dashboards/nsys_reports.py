"""The reports of `analyze-nsys` on a terminal, as CSV, as JSON, and in files."""

import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from ..record.errors import UserError
from .tables import Cell, Column, Table, print_table, terminal

if TYPE_CHECKING:
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.reports import Asked, Report, ReportColumn, Row

TimeUnit = Literal["nsec", "usec", "msec", "seconds"]

_UNITS = {"nsec": ("ns", 1, 0), "usec": ("us", 10**3, 3), "msec": ("ms", 10**6, 6), "seconds": ("s", 10**9, 9)}
"""Abbreviation, ns in it, and the decimals that keep every ns."""


@dataclass(frozen=True, kw_only=True)
class Printer:
    """An export, the reports wanted of it, and how."""

    export: "Export"
    reports: list["Report"]
    asked: "Asked"
    unit: TimeUnit = "nsec"

    def csv(self) -> None:
        """To stdout, one after the other with an empty line between, as `nsys stats` does.

        UserError where the export can answer none.
        """
        missing = [line for report in self.reports if (line := self._lacking(report))]
        if len(missing) == len(self.reports):
            raise UserError(missing[0])
        between = ""
        for report, rows in self._answered():
            sys.stdout.write(between)
            _write_csv(sys.stdout, self._columns(report), self._in_unit(report, rows))
            between = "\n"
        for line in missing:
            sys.stderr.write(f"skipped: {line}\n")

    def json(self) -> None:
        """To stdout as stepscope.nsys-reports/1, row by row."""
        import msgspec

        out = sys.stdout
        out.write('{"schema": "stepscope.nsys-reports/1", "reports": [')
        for place, report in enumerate(self.reports):
            columns = self._columns(report)
            about = {"report": report.label, "title": report.title, "columns": [c.heading for c in columns]}
            out.write("," if place else "")
            out.write("\n " + msgspec.json.encode(about | {"missing": self._lacking(report)}).decode()[:-1])
            rows = report.stream(self.export, self.asked)
            if rows is None:
                out.write(', "rows": null}')
                continue
            separator = ', "rows": ['
            for row in self._in_unit(report, rows):
                values = {c.heading: _rounded(value, c) for c, value in zip(columns, row, strict=True)}
                out.write(f"{separator}\n  {msgspec.json.encode(values).decode()}")
                separator = ","
            out.write("]}" if separator == "," else f"{separator}]}}")
        out.write("]}\n")

    def tables(self, top: int) -> None:
        """To stdout for people, `top` rows of each (0: all)."""
        console = terminal()
        for report in self.reports:
            rows = report.stream(self.export, self.asked)
            if rows is None:
                text = f"{report.title}: not measured; {self._lacking(report)}\n"
                console.print(text, markup=False, soft_wrap=True)
            else:
                print_table(self._table(report, rows, top), console)

    def files(self, folder: Path, *, force: bool) -> None:
        """Each into a CSV of its own, named as nsys does. UserError where one exists and must not be overwritten."""
        paths = {report.label: folder / f"{self.export.path.stem}_{report.label}.csv" for report in self.reports}
        taken = [str(path) for path in paths.values() if path.exists()]
        if taken and not force:
            raise UserError(f"{', '.join(taken)}: exists; add --force to overwrite")
        folder.mkdir(parents=True, exist_ok=True)
        for report in self.reports:
            if line := self._lacking(report):
                sys.stderr.write(f"skipped {report.label}: {line}\n")
        for report, rows in self._answered():
            with paths[report.label].open("w", encoding="utf-8", newline="") as file:
                _write_csv(file, self._columns(report), self._in_unit(report, rows))
            sys.stdout.write(f"{paths[report.label]}\n")

    def _answered(self) -> Iterator[tuple["Report", Iterable["Row"]]]:
        for report in self.reports:
            rows = report.stream(self.export, self.asked)
            if rows is not None:
                yield report, rows

    def _lacking(self, report: "Report") -> str | None:
        words = report.lacks(self.export)
        return words and f"{self.export.path.name} does not contain {words}"

    def _columns(self, report: "Report") -> list["ReportColumn"]:
        """The report's columns, those of times in the unit."""
        short, _, decimals = _UNITS[self.unit]
        if self.unit == "nsec":
            return list(report.columns)
        return [
            replace(column, heading=column.heading.replace("(ns)", f"({short})"), decimals=decimals)
            if column.heading.endswith("(ns)")
            else column
            for column in report.columns
        ]

    def _in_unit(self, report: "Report", rows: Iterable["Row"]) -> Iterable["Row"]:
        """The rows, their times in the unit."""
        if self.unit == "nsec":
            return rows
        scales = [_UNITS[self.unit][1] if column.heading.endswith("(ns)") else 1 for column in report.columns]
        return (
            tuple(
                value / scale if scale != 1 and isinstance(value, int | float) else value
                for value, scale in zip(row, scales, strict=True)
            )
            for row in rows
        )

    def _table(self, report: "Report", rows: Iterable["Row"], top: int) -> Table:
        columns = self._columns(report)
        last = len(columns) - 1
        kept = list(islice(rows, top or None))
        is_cut = len(rows) > len(kept) if isinstance(rows, list) else len(kept) == top
        of = f" of {len(rows)}" if isinstance(rows, list) else ""
        return Table(
            title=f"{report.title} ({report.label})" + (f": the first {top}{of}" if is_cut else ""),
            columns=[
                Column(name=column.heading, heading=column.heading, right=index != last, fold=index == last)
                for index, column in enumerate(columns)
            ],
            rows=[
                [
                    column.none if value is None else _text(value, column)
                    for value, column in zip(row, columns, strict=True)
                ]
                for row in self._in_unit(report, kept)
            ],
            note=None if kept else "Nothing of it lies in the part of the capture that was asked for.",
        )


def answerable(export: "Export", reports: Iterable["Report"]) -> Table:
    """All reports, and whether an export can answer each."""
    rows = [(report, report.lacks(export)) for report in reports]
    return Table(
        title=f"Reports that {export.path.name} can answer ({export.format})",
        columns=[
            Column(name="report", heading="report", right=False),
            Column(name="answer", heading="can it?", right=False),
            Column(name="title", heading="what it is", right=False),
        ],
        rows=[(report.name, f"no {lacks}" if lacks else "yes", report.title) for report, lacks in rows],
    )


def _write_csv(out: TextIO, columns: list["ReportColumn"], rows: Iterable["Row"]) -> None:
    """What has decimals is put into text; the writer knows the rest, and leaves a field without a value empty."""
    rounded = [(index, column) for index, column in enumerate(columns) if column.decimals is not None]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.heading for column in columns])
    for row in rows:
        fields = list(row)
        for index, column in rounded:
            fields[index] = _text(fields[index], column)
        writer.writerow(fields)


def _text(value: Cell, column: "ReportColumn") -> str:
    """A value with the decimals that nsys prints; nothing where there is none."""
    if value is None:
        return ""
    return str(value) if column.decimals is None else f"{value:.{column.decimals}f}"


def _rounded(value: Cell, column: "ReportColumn") -> Cell:
    """A value as `_text` has it, numbers as numbers."""
    return value if column.decimals is None or not isinstance(value, int | float) else round(value, column.decimals)
