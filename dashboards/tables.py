"""Tables as values, and the three ways every command shows them: on a terminal, as CSV, as JSON.

Rows carry raw values; a column knows how to show them. CSV and JSON get the raw values (a missing one is an empty
field or null), the terminal gets the shown text (a missing one is `not measured`). Nothing is computed here.
"""

import csv
import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from cyclopts.validators import Number
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ..record.units import NOT_MEASURED

Format = Literal["table", "csv", "json"]
"""`table` for people, `csv` and `json` for machines (a contract: fields are added, never renamed)."""

LEAST_NAME = 28
"""Characters of a name that are always shown, wider than the terminal if need be."""

_GAP = 3
"""What the table's lines take beside each column."""

Top = Annotated[int, Parameter(validator=Number(gte=0))]
"""How many rows of a long table to show; 0: all."""

Cell = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: its CSV name (snake_case with the unit), its heading, how a value is shown, how it is set."""

    name: str
    heading: str
    show: Callable[[Any], str] | None = None
    right: bool = True
    fold: bool = False
    """Whether a long text may be cut with `…` to fit the terminal; numbers never are."""
    data: bool = False
    """For CSV and JSON alone; not drawn."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A titled table; `note` says how to read it."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str | None = None

    def shown(self) -> list[list[str]]:
        """The rows as people read them."""
        return [[shown(cell, column) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows]


def shown(cell: Cell, column: Column) -> str:
    """One cell as people read it."""
    if cell is None:
        return NOT_MEASURED
    return column.show(cell) if column.show else str(cell)


def terminal(*, width: int | None = None, file: Any = None) -> Console:
    """A console for stdout, as wide as the terminal or as $COLUMNS says; in a pipe nothing is cut."""
    out = file or sys.stdout
    fits = out.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(file=out, width=width or (None if fits else 100_000), highlight=False, soft_wrap=False)


def share_pct(part: float, whole: float) -> float | None:
    """`part` in % of `whole`; None where there is no whole."""
    return 100 * part / whole if whole else None


def first_of(shown: int, there_are: int) -> str:
    """What a title says where a table has not all its rows."""
    return f": the first {shown} of {there_are}" if shown < there_are else ""


def print_table(table: Table, console: Console) -> None:
    """Draw one table; text from inputs is never read as markup. Only a `fold` column is cut to fit, with `…`.

    A table that begins with a name and is too wide is drawn in several parts, one below the other, each with that name.
    """
    drawn = [at for at, column in enumerate(table.columns) if not column.data]
    table = replace(
        table,
        columns=[table.columns[at] for at in drawn],
        rows=[[row[at] for at in drawn] for row in table.rows],
    )
    texts = [[_printable(cell) for cell in row] for row in table.shown()]
    widths = [
        max([len(column.heading), *(cell_len(row[index]) for row in texts)])
        for index, column in enumerate(table.columns)
    ]
    print_text(Text(table.title, style="bold"), console)
    for number, part in enumerate(_parts(table.columns, widths, console.width)):
        columns = [(table.columns[at], widths[at]) for at in part]
        lines = _drawn(columns, [[row[at] for at in part] for row in texts], console)
        console.file.write("".join(f"{line}\n" for line in lines[number > 0 :]))  # one empty line between parts
    if table.note:
        print_text(Text(table.note, style="dim"), console)
        console.print()


def print_text(text: str | Text, console: Console) -> None:
    """Words as they are, broken between words where the console is a terminal."""
    console.print(text, markup=False)


def _parts(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[list[int]]:
    """Which columns are drawn beside each other."""
    needed = [_least(column, wide) + _GAP for column, wide in zip(columns, widths, strict=True)]
    if sum(needed) <= width or not columns or columns[0].right or columns[0].fold:
        return [list(range(len(columns)))]
    parts = [[0]]
    for index in range(1, len(columns)):
        if len(parts[-1]) > 1 and sum(needed[at] for at in [*parts[-1], index]) > width:
            parts.append([0])
        parts[-1].append(index)
    return parts


def _drawn(columns: Sequence[tuple[Column, int]], texts: Sequence[Sequence[str]], console: Console) -> list[str]:
    """The lines of a part of a table, from columns with their full widths and the texts of their cells."""
    room = console.width - sum(width + _GAP for _, width in columns)
    needed = sum(_least(column, width) + _GAP for column, width in columns)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, width in columns:
        fitting = max(len(column.heading), _least(column, width), width + min(0, room)) if column.fold else width
        drawn.add_column(
            Text(column.heading),
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=fitting,
        )
    for row in texts:
        drawn.add_row(*map(Text, row))
    width, console.width = console.width, max(console.width, needed)
    with console.capture() as captured:
        console.print(drawn, crop=False, no_wrap=True)  # wider than the terminal rather than with numbers cut
    console.width = width
    lines = captured.get().splitlines()
    return [line if console.is_terminal else line.rstrip() for line in lines]


def _least(column: Column, width: int) -> int:
    return min(width, LEAST_NAME) if column.fold else width


def csv_text(table: Table) -> str:
    """The table as CSV with a header of column names."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows(["" if cell is None else cell for cell in row] for row in table.rows)
    return out.getvalue()


def json_text(value: Any) -> str:
    """Any result value as JSON, indented; NaN and infinity cannot occur in our results and would become null."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "·" for char in text)
