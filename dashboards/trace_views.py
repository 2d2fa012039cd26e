"""The views of `stepscope trace`: each a table of everything that was found, for the terminal, CSV or JSON."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from . import trace_waits, trace_work
from .recipe_proof import proof_tables
from .tables import Column, Table, first_of
from .trace_columns import RANK, by_rank

if TYPE_CHECKING:
    from ..analyzers.timeline import Timeline
    from ..analyzers.trace_answers import Part
    from ..analyzers.trace_result import TraceReport

ViewName = Literal[
    "devices", "steps", "idle", "phases", "kinds", "kernels", "operators", "modules", "ranges", "fsdp", "collectives",
    "launches", "memory", "path", "ranks", "precision",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class View:
    """One view: what it is, how it is made, and what to say where there is nothing to show."""

    build: "Callable[[TraceReport], Table]"
    absent: str
    needs: "tuple[Part, ...]" = ()
    """What it is made of, beside devices, steps and kernels, which every report has."""
    draw: "Callable[[TraceReport, int], list[Table]] | None" = None
    """What a terminal shows in place of that table, where it has more to show; the number is of rows (0: all)."""


def precision(report: "TraceReport") -> Table:
    """Multiplications by role and precision; `recipe_proof.proof_tables` draws more."""
    names = ("role", "dtype", "emulated", "count", "flops", "time_ns")
    return by_rank(
        ((rank.rank, row) for rank in (report.precision.ranks if report.precision else []) for row in rank.gemms),
        title="Multiplications by role and precision",
        columns=[RANK, *(Column(name=name, heading=name) for name in names)],
    )


VIEWS: dict[ViewName, View] = {
    "devices": View(build=trace_work.devices, absent="neither device work nor operators were recorded"),
    "steps": View(
        build=trace_work.steps, absent="no step was recorded; call step() of the profiler, or put each in a range"
    ),
    "idle": View(build=trace_work.idle, absent="neither device work nor operators were recorded"),
    "phases": View(build=trace_work.phases, absent="neither ranges nor operators were recorded", needs=("phases",)),
    "kinds": View(build=trace_work.kinds, absent="no device work was recorded"),
    "kernels": View(build=trace_work.kernels, absent="no kernels were recorded"),
    "operators": View(
        build=trace_work.operators,
        absent="no operators were recorded; profile with ProfilerActivity.CPU",
        needs=("operators",),
    ),
    "modules": View(
        build=trace_work.modules,
        absent="no calls of modules were recorded; profile with with_stack=True",
        needs=("operators",),
    ),
    "ranges": View(build=trace_work.ranges, absent="no named ranges were recorded", needs=("operators",)),
    "fsdp": View(build=trace_waits.fsdp, absent="no ranges of FSDP2 were recorded", needs=("fsdp",)),
    "collectives": View(build=trace_waits.collectives, absent="no collectives were recorded", needs=("communication",)),
    "launches": View(build=trace_waits.launches, absent="no launches were recorded", needs=("launches",)),
    "memory": View(
        build=trace_waits.memory, absent="memory was not recorded; profile with profile_memory=True", needs=("memory",)
    ),
    "path": View(
        build=trace_waits.path,
        absent="it takes steps, launches and device work, and not all were recorded",
        needs=("paths",),
    ),
    "ranks": View(
        build=trace_waits.ranks,
        absent="there is one rank only; name the traces of several, or their folder",
        needs=("ranks",),
    ),
    "precision": View(
        build=precision,
        absent="no multiplications were recorded; profile with record_shapes=True",
        needs=("precision",),
        draw=lambda report, top: proof_tables(report.precision, top) if report.precision else [],
    ),
}


def default_view(timeline: "Timeline") -> ViewName:
    """What CSV has where no view was asked for: kernels, or operators without device work."""
    from ..analyzers.activities import activities_of

    return "kernels" if len(activities_of(timeline.activities)) else "operators"


def cut(table: Table, rows: int | None) -> Table:
    """The first rows of a table, with a title that says so; None: all."""
    if rows is None or rows >= len(table.rows):
        return table
    return replace(table, title=f"{table.title}{first_of(rows, len(table.rows))}", rows=table.rows[:rows])
