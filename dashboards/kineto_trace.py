"""`stepscope trace`: where the time of torch.profiler traces went, and why."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ..record.errors import ConfigError, UserError, plain_reason
from .tables import Format, Top, csv_text, json_text, print_all, print_table, terminal
from .trace_views import VIEWS, ViewName, cut, default_view

if TYPE_CHECKING:
    from rich.progress import TaskID

    from ..analyzers.timeline import Timeline
    from ..analyzers.trace_result import TraceReport


def trace(
    paths: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    view: ViewName | None = None,
    top: Top | None = None,
    format: Format = "table",
    by_shape: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    perfetto: Path | None = None,
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> None:
    """Say where the time of torch.profiler (Kineto) traces went, and why, on one screen.

    Without device activities, as in a CPU run, operators stand in for kernels.

    Example: `stepscope trace traces/sample/mxtw --view fsdp`

    Parameters
    ----------
    paths
        Traces (.json or .json.gz, one a rank), a run's folder, or a folder with one trace a rank.
    view
        Show all of one part instead: devices, steps, idle (by cause), phases (forward, backward, optimizer), kinds and
        kernels of work, operators, modules, ranges, fsdp (collectives by layer), collectives, launches, memory,
        path (the critical one), ranks (side by side), precision (of GEMMs, and whether the recipe was kept).
    top
        Rows to show of each table; 0: all. CSV and JSON always have all. [default: what fits a screen; all of a view]
    format
        table; csv: the view, else all kernels, or operators without any; json: everything, as stepscope.timeline/1.
    by_shape
        Tell operators apart by the shapes of their inputs, where recorded (record_shapes).
    perfetto
        Write the traces to this file instead (.json or .json.gz; of several ranks one each, with .rank0 … before the
        ending), such that ui.perfetto.dev shows them whole: work that overlaps has lanes of its own.
    force
        Overwrite the file of --perfetto.
    """
    from ..analyzers.kineto.find import find_traces
    from ..analyzers.kineto.read import read_traces
    from ..analyzers.trace_answers import answers

    with _progress() as progress:
        timeline = read_traces(find_traces(paths), progress)
    if perfetto:
        _write(timeline, perfetto, force=force)
        return
    if format == "csv":
        view = view or default_view(timeline)
    if view and format != "json":
        report = answers(timeline, by_shape=by_shape, only=VIEWS[view].needs)
        if format == "csv":
            sys.stdout.write(csv_text(VIEWS[view].build(report)))
        else:
            _show_view(report, view, top)
        return
    report = answers(timeline, by_shape=by_shape)
    if format == "json":
        sys.stdout.write(json_text(report))
        return
    from .trace_screen import show

    show(report, terminal(), top)


def _write(timeline: "Timeline", path: Path, *, force: bool) -> None:
    from ..analyzers.kineto.write import write_trace

    ending = next((ending for ending in (".json.gz", ".json") if path.name.endswith(ending)), None)
    if ending is None:
        raise ConfigError(f"--perfetto {path}: name a file that ends in .json or .json.gz")
    ranks = [source.rank for source in timeline.sources]
    stem = path.name.removesuffix(ending)
    files = {rank: path.with_name(f"{stem}.rank{rank}{ending}") if len(ranks) > 1 else path for rank in ranks}
    if taken := [str(file) for file in files.values() if file.exists() and not force]:
        raise UserError(f"{', '.join(taken)}: exists; add --force to overwrite")
    for rank, file in files.items():
        try:
            write_trace(timeline.of_rank(rank), file)
        except OSError as error:
            raise UserError(f"{file}: {plain_reason(error)}") from None
        sys.stderr.write(f"wrote {file}\n")


def _show_view(report: "TraceReport", view: ViewName, top: int | None) -> None:
    table = VIEWS[view].build(report)
    if not table.rows:
        raise UserError(f"--view {view}: {VIEWS[view].absent}")
    if draw := VIEWS[view].draw:
        print_all(draw(report, top or 0), terminal())
        return
    if len(report.ranks) == 1:
        table = table.without("rank")
    print_table(cut(table, top or None), terminal())


@contextmanager
def _progress() -> Iterator[Callable[[Path, int, int], None]]:
    """Bars on stderr, one a file, while the block runs; nothing where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    bars = Progress(
        TextColumn("reading {task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    tasks: dict[Path, TaskID] = {}

    def show(path: Path, read: int, size: int) -> None:
        if path not in tasks:
            tasks[path] = bars.add_task(path.name, total=size)
        bars.update(tasks[path], completed=read)

    with bars:
        yield show
