"""The reports of `analyze-nsys` on a terminal, as CSV, as JSON, and in files."""

import csv
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from ..record.atomic import beside
from ..record.errors import UserError
from ..record.units import NOT_MEASURED
from .tables import Cell, Column, Table, print_all, terminal

if TYPE_CHECKING:
    from ..analyzers.nsys.export import Export
    from ..analyzers.nsys.reports import Asked, Report, ReportColumn, Row

_NAMES = ("Name", "Operation", "Range", "NVTX Range", "Kernel Name", "API Name", "API Function", "Virtual Address")
_ASIDE = ("RangeStack", "NameTree", "Thread Name", "API Function")
"""Columns of texts that may be long; those of the second go first where a terminal is narrow."""
_GOES = (
    (0, r"Time \(%\)|Total (?:Proj )?(?:Time )?\(|^(?:Kernel |Projected )?(?:Start|Dur)|^Count|^Num Calls|Inst"),
    (4, "StdDev"),
    (3, "Min|Max"),
    (1, "Avg|Med|Strm|Bytes"),
)
"""How soon a column of numbers goes where a terminal is narrow (0: never), by what its heading has; others 2."""
TimeUnit = Literal["nsec", "usec", "msec", "seconds"]

_UNITS = {"nsec": ("ns", 1, 0), "usec": ("us", 10**3, 3), "msec": ("ms", 10**6, 6), "seconds": ("s", 10**9, 9)}
"""Abbreviation, ns in it, and the decimals that keep every ns."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One report, from wherever its rows come."""

    label: str
    """The report's name with its arguments, as nsys puts it into file names."""
    title: str
    columns: "Sequence[ReportColumn]"
    missing: str | None
    """Why there are no rows, in a sentence; None where there are."""
    rows: "Callable[[], Iterable[Row]]"
    """Rows in the unit of the columns; called only where nothing is missing."""


def of_export(export: "Export", reports: Iterable["Report"], asked: "Asked") -> list[Answer]:
    """What an export answers to reports."""
    found = []
    for report in reports:
        lacks = report.lacks(export)
        found.append(
            Answer(
                label=report.label,
                title=report.title,
                columns=report.columns,
                missing=lacks and f"{export.path.name} does not contain {lacks}",
                rows=partial(_rows, report, export, asked),
            )
        )
    return found


def _rows(report: "Report", export: "Export", asked: "Asked") -> Iterable["Row"]:
    return report.stream(export, asked) or []


@dataclass(frozen=True, kw_only=True)
class Printer:
    """Reports and how to print them."""

    answers: Sequence[Answer]
    unit: TimeUnit = "nsec"

    def csv(self) -> None:
        """To stdout, one after the other with an empty line between, as `nsys stats` does.

        UserError where none has rows.
        """
        missing = [answer.missing for answer in self.answers if answer.missing]
        if len(missing) == len(self.answers):
            raise UserError(missing[0])
        between = ""
        for answer in self._answered():
            sys.stdout.write(between)
            _write_csv(sys.stdout, self._columns(answer), self._in_unit(answer, answer.rows()))
            between = "\n"
        for line in missing:
            sys.stderr.write(f"skipped: {line}\n")

    def json(self) -> None:
        """To stdout as stepscope.nsys-reports/1, row by row."""
        import msgspec

        out = sys.stdout
        out.write('{"schema": "stepscope.nsys-reports/1", "reports": [')
        for place, answer in enumerate(self.answers):
            columns = self._columns(answer)
            about = {"report": answer.label, "title": answer.title, "columns": [c.heading for c in columns]}
            out.write("," if place else "")
            out.write("\n " + msgspec.json.encode(about | {"missing": answer.missing}).decode()[:-1])
            if answer.missing:
                out.write(', "rows": null}')
                continue
            separator = ', "rows": ['
            for row in self._in_unit(answer, answer.rows()):
                values = {c.heading: _rounded(value, c) for c, value in zip(columns, row, strict=True)}
                out.write(f"{separator}\n  {msgspec.json.encode(values).decode()}")
                separator = ","
            out.write("]}" if separator == "," else f"{separator}]}}")
        out.write("]}\n")

    def tables(self, top: int) -> None:
        """To stdout for people, `top` rows of each (0: all)."""
        parts = (
            f"{answer.title}: {NOT_MEASURED}; {answer.missing}"
            if answer.missing
            else self._table(answer, answer.rows(), top)
            for answer in self.answers
        )
        print_all(parts, terminal())

    def files(self, folder: Path, stem: str, *, force: bool) -> None:
        """Each into a CSV of its own, named as nsys does. UserError where one exists and must not be overwritten.

        No file of an earlier time stays where there is no answer: it would be taken for this one's.
        """
        paths = {answer.label: folder / f"{stem}_{answer.label}.csv" for answer in self.answers}
        taken = [str(path) for path in paths.values() if path.exists()]
        if taken and not force:
            raise UserError(f"{', '.join(taken)}: exists; add --force to overwrite")
        folder.mkdir(parents=True, exist_ok=True)
        for answer in self.answers:
            if answer.missing:
                sys.stderr.write(f"skipped {answer.label}: {answer.missing}\n")
            paths[answer.label].unlink(missing_ok=True)
        for answer in self._answered():
            path = paths[answer.label]
            with beside(path) as part, part.open("w", encoding="utf-8", newline="") as file:
                _write_csv(file, self._columns(answer), self._in_unit(answer, answer.rows()))
            sys.stdout.write(f"{path}\n")

    def _answered(self) -> list[Answer]:
        return [answer for answer in self.answers if not answer.missing]

    def _columns(self, answer: Answer) -> list["ReportColumn"]:
        """The report's columns, those of times in the unit."""
        short, _, decimals = _UNITS[self.unit]
        if self.unit == "nsec":
            return list(answer.columns)
        return [
            replace(column, heading=column.heading.replace("(ns)", f"({short})"), decimals=decimals)
            if column.heading.endswith("(ns)")
            else column
            for column in answer.columns
        ]

    def _in_unit(self, answer: Answer, rows: Iterable["Row"]) -> Iterable["Row"]:
        """The rows, their times in the unit."""
        if self.unit == "nsec":
            return rows
        scales = [_UNITS[self.unit][1] if column.heading.endswith("(ns)") else 1 for column in answer.columns]
        return (
            tuple(
                value / scale if scale != 1 and isinstance(value, int | float) else value
                for value, scale in zip(row, scales, strict=True)
            )
            for row in rows
        )

    def _table(self, answer: Answer, rows: Iterable["Row"], top: int) -> Table:
        columns = self._columns(answer)
        texts = {*_NAMES, *_ASIDE}
        kept = list(islice(rows, top or None))
        is_cut = len(rows) > len(kept) if isinstance(rows, list) else len(kept) == top
        of = f" of {len(rows)}" if isinstance(rows, list) else ""
        return Table(
            title=f"{answer.title} ({answer.label})" + (f": the first {top}{of}" if is_cut else ""),
            columns=[
                Column(
                    name=column.heading,
                    heading=column.heading,
                    right=column.heading not in texts,
                    fold=column.heading in texts,
                    less=_less(column.heading),
                )
                for column in columns
            ],
            rows=[
                [
                    column.none if value is None else _text(value, column)
                    for value, column in zip(row, columns, strict=True)
                ]
                for row in self._in_unit(answer, kept)
            ],
            note=None if kept else "Nothing of it lies in the part of the capture that was asked for.",
        )


def _less(heading: str) -> int:
    if heading in _ASIDE:
        return 5
    return 0 if heading in _NAMES else next((soon for soon, words in _GOES if re.search(words, heading)), 2)


def answerable(title: str, rows: Iterable[tuple[str, str | None, str]]) -> Table:
    """Reports by name, what speaks against each, or None, and what each is."""
    return Table(
        title=title,
        columns=[
            Column(name="report", heading="report", right=False),
            Column(name="answer", heading="can it?", right=False),
            Column(name="title", heading="what it is", right=False, less=1),
        ],
        rows=[(name, against or "yes", what) for name, against, what in rows],
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
    return f"{value:.{column.decimals}f}" if column.decimals is not None and not isinstance(value, str) else str(value)


def _rounded(value: Cell, column: "ReportColumn") -> Cell:
    """A value as `_text` has it, numbers as numbers."""
    return value if column.decimals is None or not isinstance(value, int | float) else round(value, column.decimals)
