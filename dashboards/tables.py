"""Tables as values, and the three ways every command shows them: on a terminal, as CSV, as JSON.

Rows carry raw values; a column knows how to show them. CSV and JSON get the raw values (a missing one is an empty
field or null), the terminal gets the shown text (a missing one is `not measured`). Nothing is computed here.
"""

import csv
import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


def print_table(table: Table, console: Console) -> None:
    """Draw one table; text from inputs is never read as markup. Only a `fold` column is cut to fit, with `…`."""
    texts = [[_printable(cell) for cell in row] for row in table.shown()]
    widths = [
        max([len(column.heading), *(cell_len(row[index]) for row in texts)])
        for index, column in enumerate(table.columns)
    ]
    room = console.width - sum(widths) - 3 * len(widths)
    needed = sum(min(width, LEAST_NAME) if c.fold else width for c, width in zip(table.columns, widths, strict=True))
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for column, width in zip(table.columns, widths, strict=True):
        fitting = max(len(column.heading), min(width, LEAST_NAME), width + min(0, room)) if column.fold else width
        drawn.add_column(
            Text(column.heading),
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=fitting,
        )
    for row in texts:
        drawn.add_row(*map(Text, row))
    console.print(Text(table.title, style="bold"), soft_wrap=True)
    width, console.width = console.width, max(console.width, needed + 3 * len(widths))
    with console.capture() as captured:
        console.print(drawn, crop=False, no_wrap=True)  # wider than the terminal rather than with numbers cut
    console.width = width
    lines = captured.get().splitlines()
    console.file.write("".join((line if console.is_terminal else line.rstrip()) + "\n" for line in lines))
    if table.note:
        console.print(Text(table.note, style="dim"), soft_wrap=True)
        console.print()


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
