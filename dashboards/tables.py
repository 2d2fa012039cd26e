"""Tables as values, and the three ways every command shows them: on a terminal, as CSV, as JSON.

Rows carry raw values; a column knows how to show them. CSV and JSON get the raw values (a missing one is an empty
field or null), the terminal gets the shown text (a missing one is `not measured`). Nothing is computed here.
"""

import csv
import io
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from ..record.units import NOT_MEASURED

if TYPE_CHECKING:  # slow to load, and CSV has no need of it
    from rich.console import Console
    from rich.text import Text

Format = Literal["table", "csv", "json"]
"""`table` for people, `csv` and `json` for machines (a contract: fields are added, never renamed)."""

LEAST_NAME = 28
"""Characters of a name that are always shown, wider than the terminal if need be."""

_GAP, _TIGHT = 3, 2
"""What the table's lines take beside each column; the second where columns would have to go else."""

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
    less: int = 0
    """Above 0: the column is left out where the terminal is too narrow for all, the highest first."""
    data: bool = False
    """For CSV and JSON alone; not drawn."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A titled table; `note` says how to read it."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    note: str | None = None

    @classmethod
    def of(cls, found: Iterable[object], *, title: str, columns: Sequence[Column], note: str | None = None) -> "Table":
        """One row for each thing found: its attributes that the columns are named after."""
        return cls(title=title, columns=columns, rows=[cells(one, columns) for one in found], note=note)

    def shown(self) -> list[list[str]]:
        """The rows as people read them."""
        return [[shown(cell, column) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows]

    def without(self, *names: str) -> "Table":
        """The table without the columns of these names."""
        kept = [at for at, column in enumerate(self.columns) if column.name not in names]
        rows = [[row[at] for at in kept] for row in self.rows]
        return replace(self, columns=[self.columns[at] for at in kept], rows=rows)


def cells(one: object, columns: Iterable[Column]) -> tuple[Cell, ...]:
    """The attributes that columns are named after."""
    return tuple(getattr(one, column.name) for column in columns)


def shown(cell: Cell, column: Column) -> str:
    """One cell as people read it."""
    if cell is None:
        return NOT_MEASURED
    return column.show(cell) if column.show else str(cell)


def terminal(*, width: int | None = None, file: Any = None) -> "Console":
    """A console for stdout, as wide as the terminal or as $COLUMNS says; in a pipe nothing is cut."""
    from rich.console import Console

    out = file or sys.stdout
    fits = out.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(file=out, width=width or (None if fits else 100_000), highlight=False, soft_wrap=False)


NO = "–"
"""Where a value does not apply, which is not that it was not measured."""


def or_no(show: Callable[[Any], str]) -> Callable[[Any], str]:
    """How a column shows its values beside `NO`, and other words."""
    return lambda cell: cell if isinstance(cell, str) else show(cell)


def limited(top: int | None, fitting: int) -> int | None:
    """How many rows to show: those that fit where nobody asked, all (None) where `top` is 0."""
    return fitting if top is None else top or None


def share_pct(part: float, whole: float) -> float | None:
    """`part` in % of `whole`; None where there is no whole."""
    return 100 * part / whole if whole else None


def first_of(shown: int, there_are: int) -> str:
    """What a title says where a table has not all its rows."""
    return f": the first {shown} of {there_are}" if shown < there_are else ""


def print_all(parts: Iterable[Table | str], console: "Console") -> None:
    """Tables and lines of text, and at the end which columns the terminal is too narrow for."""
    from rich.text import Text

    left_out: dict[str, None] = {}
    for is_text, group in groupby(parts, lambda part: isinstance(part, str)):
        for part in group:
            if isinstance(part, Table):
                left_out |= dict.fromkeys(print_table(part, console))
            else:
                print_text(part, console)
        if is_text:
            console.print()
    if left_out:
        told = f"Too narrow for: {', '.join(left_out)} (in a pipe nothing is cut).\n"
        print_text(Text(told, style="dim"), console)


def print_table(table: Table, console: "Console") -> list[str]:
    """Draw one table; text from inputs is never read as markup. Only a `fold` column is cut to fit, with `…`.

    Of one that is too wide even so, columns that matter `less` are left out; their headings are returned. One that
    begins with a name, and has none of those, is drawn in several parts, one below the other, each with that name.
    """
    from rich.cells import cell_len
    from rich.text import Text

    table = table.without(*(column.name for column in table.columns if column.data))
    texts = [[printable(cell) for cell in row] for row in table.shown()]
    widths = [
        max([len(column.heading), *(cell_len(row[index]) for row in texts)])
        for index, column in enumerate(table.columns)
    ]
    shown, gap = _fitting(table.columns, widths, console.width)
    print_text(Text(table.title, style="bold"), console)
    for number, part in enumerate(_parts(table.columns, widths, shown, console.width, gap)):
        columns = [(table.columns[at], widths[at]) for at in part]
        lines = _drawn(columns, [[row[at] for at in part] for row in texts], console, gap)
        console.file.write("".join(f"{line}\n" for line in lines[number > 0 :]))  # one empty line between parts
    if table.note:
        print_text(Text(table.note, style="dim"), console)
        console.print()
    return [column.heading for at, column in enumerate(table.columns) if at not in shown]


def print_text(text: "str | Text", console: "Console") -> None:
    """Words as they are but for what would steer a terminal; broken between words where the console is one."""
    from rich.text import Text

    if isinstance(text, str):
        text = Text("\n".join(map(printable, text.split("\n"))))
    for line in text.wrap(console, console.width):
        line.rstrip()  # a space that hangs over the edge is a line of its own on some terminals
        console.print(line)


def _fitting(columns: Sequence[Column], widths: Sequence[int], width: int) -> tuple[list[int], int]:
    """Which columns are drawn, and the gap between them: a tight one before any column goes."""
    shown = list(range(len(columns)))
    least = [_least(column, wide) for column, wide in zip(columns, widths, strict=True)]
    droppable = sorted((at for at in shown if columns[at].less), key=lambda at: (columns[at].less, at))
    if not droppable or sum(least[at] + _GAP for at in shown) <= width:
        return shown, _GAP
    while droppable and sum(least[at] + _TIGHT for at in shown) > width:
        shown.remove(droppable.pop())
    return shown, _TIGHT


def _parts(columns: Sequence[Column], widths: Sequence[int], shown: list[int], width: int, gap: int) -> list[list[int]]:
    """Which of the columns are drawn beside each other."""
    needed = {at: _least(columns[at], widths[at]) + gap for at in shown}
    first, *others = shown or [0]
    if sum(needed.values()) <= width or columns[first].right or columns[first].fold:
        return [shown]
    parts = [[first]]
    for index in others:
        if len(parts[-1]) > 1 and sum(needed[at] for at in [*parts[-1], index]) > width:
            parts.append([first])
        parts[-1].append(index)
    return parts


def _drawn(
    columns: Sequence[tuple[Column, int]], texts: Sequence[Sequence[str]], console: "Console", gap: int
) -> list[str]:
    """The lines of a part of a table, from columns with their full widths and the texts of their cells."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    room = console.width - sum(width + gap for _, width in columns)
    needed = sum(_least(column, width) + gap for column, width in columns)
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=gap == _TIGHT)
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
    """The table as CSV with a header of column names; empty where nothing was measured or nothing applies."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in table.columns])
    writer.writerows(["" if cell is None or cell == NO else cell for cell in row] for row in table.rows)
    return out.getvalue()


def json_text(value: Any) -> str:
    """Any result value as JSON, indented; NaN and infinity cannot occur in our results and would become null."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def printable(text: str) -> str:
    """The text with what would steer a terminal as `·`."""
    return "".join(char if char.isprintable() else "·" for char in text)
