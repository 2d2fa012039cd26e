"""`sweep.json`: the plan of a sweep, run by run, and how far it has come.

A sweep is one folder of runs that differ in the recipe, the wrapping, or in nothing (repeats). Each run's own
`run.json` has the last word on how it ended.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from .document import read_document, write_document
from .manifest import homeless

SCHEMA = "stepscope.sweep/1"
FILE = "sweep.json"

CellState = Literal["planned", "running", "completed", "interrupted", "failed"]


class Cell(msgspec.Struct, kw_only=True):
    """One run of a sweep."""

    run: str
    """The run's folder, relative to the sweep's."""
    recipe: str
    wrap: str
    repeat: int
    """Counted from 1."""
    state: CellState = "planned"
    message: str | None = None
    """For `failed` and `interrupted`: why, in one line."""


class Sweep(msgspec.Struct, kw_only=True):
    """The whole of `sweep.json`."""

    schema: str = SCHEMA
    settings: dict[str, Any]
    """Every setting that was asked for, before it was resolved for each run."""
    cells: list[Cell]
    """In the order in which they run."""
    argv: list[str]
    started_ns: int
    """Unix time, ns."""
    ended_ns: int | None = None


def write_sweep(folder: Path, sweep: Sweep) -> None:
    """Write `sweep.json`, with the home directory written as `~` in all of it."""
    plain = msgspec.to_builtins(sweep)
    write_document(folder / FILE, msgspec.convert(homeless(plain), Sweep))


def read_sweep(folder: Path) -> Sweep:
    """Read `sweep.json`; TraceError where it is missing, cut, or of another schema."""
    return read_document(folder / FILE, Sweep, SCHEMA, what="sweep's plan", where="a sweep's folder")
