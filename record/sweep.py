"""`sweep.json`: the plan of a sweep, run by run, and how far it has come.

A sweep is one folder of runs that differ in the recipe, the wrapping, or in nothing (repeats). Each run's own
`run.json` has the last word on how it ended.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec

from .atomic import write_atomically
from .errors import TraceError

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
    """Write `sweep.json` atomically."""
    write_atomically(folder / FILE, msgspec.json.format(msgspec.json.encode(sweep), indent=2) + b"\n")


def read_sweep(folder: Path) -> Sweep:
    """Read `sweep.json`; TraceError where it is missing, cut, or of another schema."""
    path = folder / FILE
    try:
        sweep = msgspec.json.decode(path.read_bytes(), type=Sweep)
    except FileNotFoundError:
        raise TraceError(path, "no sweep here; a sweep's folder holds a sweep.json") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(path, f"is not the plan of a sweep ({error})") from None
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None
    if sweep.schema != SCHEMA:
        raise TraceError(path, f"is of schema {sweep.schema}, and this program reads {SCHEMA}; update stepscope")
    return sweep
