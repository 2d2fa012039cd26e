"""What `nsys stats` printed, read back: CSV, TSV and console tables of every version, whatever lines stand around them.

Headings become those of today, times nanoseconds, sizes MB of 10⁶ bytes, as `nsys stats` has them by default. A number
may carry thousands separators and a decimal comma, as the console tables of some languages do. What nsys skipped keeps
its reason. A column that a version did not print is not there.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from ...record.errors import TraceError
from .reports import REPORTS, todays_name

Value = str | int | float | None

_WORDS = {
    "average": "Avg",
    "minimum": "Min",
    "maximum": "Max",
    "median": "Med",
    "operations": "Count",
    "calls": "Num Calls",
}
_TIMES = {"ns": 1, "nsec": 1, "us": 1_000, "μs": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "sec": 1_000_000_000}
_SIZES = {"B": 1, "KB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20, "GB": 10**9, "GiB": 2**30}
_TEXT_COLUMNS = {"name", "operation", "range", "style", "category", "nametree", "rangestack", "device", "gridxyz",
                 "blockxyz", "grdxyz", "blkxyz", "strm", "srcmemkd", "dstmemkd", "api function", "kernel name",
                 "api name", "nvtx range", "result", "pid:tid"}  # fmt: skip
_PROCESSING = re.compile(r"^(?:Processing|Running) \[.*?([A-Za-z_0-9]+)\.py(?:\]| )")
_TITLE = re.compile(r"^\s*\*\*\s.*\(([A-Za-z_0-9]+)\)(?:\s*\(.*\))?:?\s*$")
_TITLE_OF_2020 = re.compile(r"^(?:CUDA|NVTX|OS|Operating)\b[\w /]* Statistics \((\w+)\)\s*$")
_UNITS_OF_2020 = {"nanoseconds": "ns", "nsec": "ns"}
_WITHOUT_UNIT = {"total time", "total", "avg", "min", "max", "med", "stddev"}
_SKIPPED = re.compile(r"^SKIPPED:\s*(.*)$")
_CELL = re.compile(r"[-+]?[\d.,' \u00a0\u202f]*\d(?:[.,]\d+)?|[-+]?\d+(?:\.\d+)?[eE][-+]?\d+")
_MOST_DIGITS = 30
"""More is no time and no size."""
_EMPTY = (
    "is empty: nsys stats printed nothing, or it went elsewhere; give analyze-nsys the report or its export instead"
)


@dataclass(frozen=True, kw_only=True)
class StatsTable:
    """One report that nsys stats printed, or skipped."""

    report: str | None
    """Today's name of the report, where the text or the file's name tells it."""
    headings: tuple[str, ...] = ()
    rows: list[tuple[Value, ...]] = field(default_factory=list)
    """Numbers in ns and MB; None where the cell was empty."""
    skipped: str | None = None
    """Why nsys had nothing to show, in its words: not measured, which is not 0."""


def read_stats(path: Path) -> list[StatsTable]:
    """All reports in a file. TraceError where it holds none, or is no text."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None
    if not raw.strip():
        raise TraceError(path, _EMPTY)
    if b"\x00" in raw[:4096] and raw[:2] not in (b"\xff\xfe", b"\xfe\xff"):
        raise TraceError(path, "is no text, and so nothing that nsys stats printed")
    text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig", "replace")
    try:
        tables = list(_tables(text.splitlines(), _named_by_file(path)))
    except csv.Error as error:
        raise TraceError(path, f"is no CSV as nsys stats prints it ({error})") from None
    if not tables:
        raise TraceError(path, "holds no table as nsys stats prints them; give the .nsys-rep report or its export")
    return tables


def _named_by_file(path: Path) -> str | None:
    """cuda_gpu_kern_sum for run_cuda_gpu_kern_sum.csv."""
    known = sorted((name for report in REPORTS for name in (report.name, *report.old_names)), key=len, reverse=True)
    found = next((name for name in known if re.search(rf"(?:^|[_.-]){name}$", path.stem)), None)
    return _today(found)


def _tables(lines: list[str], usual: str | None) -> Iterator[StatsTable]:
    report, unit, at = usual, "ns", 0
    while at < len(lines):
        line = lines[at]
        if found := _PROCESSING.match(line) or _TITLE.match(line):
            report = _today(found[1])
        elif found := _TITLE_OF_2020.match(line):
            report, unit = None, _UNITS_OF_2020.get(found[1], found[1])
        elif found := _SKIPPED.match(line):
            yield StatsTable(report=report, skipped=_without_place(found[1]))
        elif at + 1 < len(lines) and _is_rule(lines[at + 1]):
            end = _end(lines, at + 2)
            yield _table(report, unit, *_columns(line, lines[at + 1], lines[at + 2 : end]))
            at = end
        elif (mark := _separator(line)) is not None:
            end = _end(lines, at + 1)
            header, *rows = csv.reader(lines[at:end], delimiter=mark)
            yield _table(report, unit, header, [row for row in rows if len(row) == len(header)])
            at = end
        at += 1


def _today(name: str | None) -> str | None:
    return todays_name(name) if name else None


def _without_place(reason: str) -> str:
    """The reason without the name of a file, which may be a path of somebody's."""
    return re.sub(r"^\S.*? (?=does not contain)", "", reason).rstrip(".")


def _is_rule(line: str) -> bool:
    """Whether a line is the dashes under a table's heading."""
    return len(line.split()) > 1 and set(line.strip()) <= {"-", " "}


def _separator(line: str) -> str | None:
    """What separates the cells of a heading; None where the line is none."""
    for mark in (",", "\t"):
        cells = next(csv.reader([line], delimiter=mark), [])
        names = {_plain(cell) for cell in cells}
        if len(cells) > 2 and names & _TEXT_COLUMNS and any(_NUMBERS.search(cell) for cell in cells):
            return mark
    return None


_NUMBERS = re.compile(r"Time ?\(%\)|Total|Start|Duration|Instances|Count|Num|Avg|Average|Bytes|Dur\b", re.IGNORECASE)


def _end(lines: list[str], start: int) -> int:
    """The first line after a table: an empty one, or one of nsys's own."""
    for at in range(start, len(lines)):
        if not lines[at].strip() or _PROCESSING.match(lines[at]) or _SKIPPED.match(lines[at]):
            return at
    return len(lines)


def _columns(heading: str, rule: str, lines: list[str]) -> tuple[list[str], list[list[str]]]:
    """Cells of a table that stands in columns, as the dashes under its heading cut it; the last takes what is left."""
    spans = [found.span() for found in re.finditer("-+", rule)]
    cuts = [(start, end) for start, end in spans[:-1]] + [(spans[-1][0], None)]
    return [heading[a:b].strip() for a, b in cuts], [[line[a:b].strip() for a, b in cuts] for line in lines]


def _table(report: str | None, unit: str, header: list[str], rows: list[list[str]]) -> StatsTable:
    units = [_heading(cell, unit) for cell in header]
    decimal = _decimal_mark(units, rows)
    headings = tuple(heading for heading, _ in units)
    found = [tuple(_value(cell, *unit, decimal) for cell, unit in zip(row, units, strict=True)) for row in rows]
    return StatsTable(report=report or _by_headings(headings, found), headings=headings, rows=found)


def _by_headings(headings: tuple[str, ...], rows: list[tuple[Value, ...]]) -> str | None:
    """The report that has such columns; None where several have."""
    has = set(headings)
    if {"Num Calls", "Name"} <= has and rows:
        calls = [str(row[headings.index("Name")]) for row in rows]
        return "cuda_api_sum" if all(call.startswith("cu") for call in calls) else None
    return next((report for columns, report in _COLUMNS if columns <= has), None)


_COLUMNS = (
    ({"Total (MB)", "Operation"}, "cuda_gpu_mem_size_sum"),
    ({"Total Time (ns)", "Category"}, "cuda_gpu_sum"),
    ({"Total Time (ns)", "Operation"}, "cuda_gpu_mem_time_sum"),
    ({"DurNonChild (ns)", "RangeStack"}, "nvtx_pushpop_trace"),
    ({"Total Time (ns)", "Style"}, "nvtx_sum"),
    ({"Total Time (ns)", "Instances", "GridXYZ"}, "cuda_gpu_kern_gb_sum"),
    ({"Total Time (ns)", "Instances", "Name"}, "cuda_gpu_kern_sum"),
    ({"CorrId", "Strm"}, "cuda_gpu_trace"),
)


def _plain(cell: str) -> str:
    return re.sub(r"\s*\(.*?\)\s*$", "", cell).strip().lower()


def _heading(cell: str, usual: str) -> tuple[str, Decimal | None]:
    """Today's heading of a column, and what its numbers have to be multiplied by; None for text.

    `usual` is the unit of statistics that name none, as before 2021.
    """
    found = re.fullmatch(r"\s*(.*?)\s*(?:\(([^()]*)\))?\s*", cell)
    name, unit = (found[1], found[2]) if found else (cell, None)
    if name.lower() in _TEXT_COLUMNS:
        return name, None
    name = _WORDS.get(name.lower(), name)
    if unit is None and name.lower() in _WITHOUT_UNIT:
        unit = usual
    if unit in _TIMES:
        return f"{name} (ns)", Decimal(_TIMES[unit])
    if unit in _SIZES:
        return f"{name} (MB)", Decimal(_SIZES[unit]) / 10**6
    return (f"{name} ({unit})" if unit else name), Decimal(1)


def _decimal_mark(units: Sequence[tuple[str, Decimal | None]], rows: list[list[str]]) -> str:
    """The decimal mark of a table, by what its cells show; a point where nothing shows it.

    Percentages have one decimal and MB have three. Of two marks in a cell the last is the decimal one. A mark that
    repeats, and one in front of other than three digits, tell too.
    """
    for column, (heading, factor) in enumerate(units):
        if factor is None:
            continue
        for cell in (row[column] for row in rows):
            marks = re.findall("[.,]", cell)
            if not marks or not _CELL.fullmatch(cell):
                continue
            after = len(cell) - 1 - cell.rfind(marks[-1])
            if len(set(marks)) == 2 or after != 3 or heading.endswith(("(MB)", "(%)")):
                return marks[-1] if marks.count(marks[-1]) == 1 else _other(marks[-1])
            if len(marks) > 1 or (len(marks) == 1 and cell.startswith("0")):
                return _other(marks[-1]) if len(marks) > 1 else marks[-1]
    return "."


def _other(mark: str) -> str:
    return "," if mark == "." else "."


def _value(cell: str, heading: str, factor: Decimal | None, decimal: str) -> Value:
    """A cell as a number in ns or MB, or as it is."""
    if factor is None:
        return cell
    if not cell:
        return None
    if not _CELL.fullmatch(cell):
        return cell
    digits = re.sub(rf"[^\d{re.escape(decimal)}eE+-]", "", cell).replace(decimal, ".")
    try:
        number = Decimal(digits) * factor
    except ArithmeticError:
        return cell
    if number.adjusted() > _MOST_DIGITS:
        return cell
    fractional = decimal in cell or (heading.endswith("(MB)") and number % 1 != 0)
    whole = not fractional or (heading.endswith("(ns)") and factor > 1 and number % 1 == 0)
    return int(number) if whole else float(number)
