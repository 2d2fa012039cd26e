"""`stepscope trace`: where the time of a torch.profiler trace went, in tables."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from ..record.units import show_count, show_ns, show_pct
from .recipe_proof import proof_tables
from .tables import (
    Cell,
    Column,
    Format,
    Table,
    Top,
    csv_text,
    first_of,
    json_text,
    print_all,
    print_text,
    share_pct,
    terminal,
)

if TYPE_CHECKING:
    from rich.progress import TaskID

    from ..analyzers.breakdown import DeviceTime, RankTime, TimelineReport


def trace(
    paths: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    top: Top = 15,
    format: Format = "table",
) -> None:
    """Say where the time went in torch.profiler (Kineto) traces: per device, by kind and by kernel.

    Without device activities, as in a CPU run, operators and named ranges stand in for kernels.

    Example: `stepscope trace traces/sample/mxtw`

    Parameters
    ----------
    paths
        Traces (.json or .json.gz, one a rank), a run's folder, or a folder with one trace a rank.
    top
        Rows to show of the long tables; 0: all.
    format
        table; json: everything, as stepscope.timeline/1; csv: all kernels, or operators where there are none.
    """
    from ..analyzers.breakdown import breakdown
    from ..analyzers.kineto.find import find_traces
    from ..analyzers.kineto.read import read_traces
    from ..analyzers.recipe_proof import manifest_beside, recipe_proof

    with _progress() as progress:
        timeline = read_traces(find_traces(paths), progress)
    proof = recipe_proof(timeline, manifest_beside(timeline))
    report = msgspec.structs.replace(breakdown(timeline), precision=proof)
    if format == "json":
        sys.stdout.write(json_text(report))
    elif format == "csv":
        sys.stdout.write(csv_text(all_names(report)))
    else:
        console = terminal()
        print_all(tables(report, top), console)
        for finding in report.findings:
            print_text(f"{finding.severity}: {finding.text}", console)


def tables(report: "TimelineReport", top: int) -> list[Table]:
    """What is shown on a terminal."""
    shown = [_devices(report)] if any(rank.devices for rank in report.ranks) else []
    for rank in report.ranks:
        for device in rank.devices:
            shown += [_kinds(rank, device), _kernels(rank, device, top)]
        if not rank.devices:
            shown += [_ranges(rank, top), _operators(rank, top)]
    return shown + (proof_tables(report.precision, top) if report.precision else [])


def all_names(report: "TimelineReport") -> Table:
    """Every kernel of every device or, without any, every operator, one row each; times in ns."""
    names: tuple[str, ...] = ("rank", "name", "count", "total_ns", "self_ns")
    rows: list[tuple[Cell, ...]] = [
        (rank.rank, row.name, row.count, row.total_ns, row.self_ns) for rank in report.ranks for row in rank.operators
    ]
    if any(rank.devices for rank in report.ranks):
        statistics = ("name", "kind", "count", "total_ns", "mean_ns", "median_ns", "min_ns", "max_ns")
        names = ("rank", "device", *statistics)
        rows = [
            (rank.rank, device.device, *(getattr(row, name) for name in statistics))
            for rank in report.ranks
            for device in rank.devices
            for row in device.kernels
        ]
    return Table(title="names", columns=[Column(name=name, heading=name) for name in names], rows=rows)


def _devices(report: "TimelineReport") -> Table:
    parts = ("compute_ns", "comm_exposed_ns", "memory_ns", "idle_ns")
    return Table(
        title="Devices: the span in four parts",
        columns=[
            Column(name="rank", heading="rank", less=1 if len(report.ranks) == 1 else 0),
            Column(name="device", heading="GPU"),
            Column(name="span_ns", heading="span", show=show_ns),
            *(
                Column(name=f"{part.removesuffix('_ns')}_pct", heading=heading, show=show_pct)
                for part, heading in zip(parts, ("compute", "exposed comm.", "copies", "idle"), strict=True)
            ),
            Column(name="comm_overlapped_ns", heading="hidden comm.", show=show_ns, less=2),
        ],
        rows=[
            (
                rank.rank,
                device.device,
                device.span_ns,
                *(share_pct(getattr(device, part), device.span_ns) for part in parts),
                device.comm_overlapped_ns,
            )
            for rank in report.ranks
            for device in rank.devices
        ],
        note="Shares of the span, over all streams; they sum to 100 %. Hidden communication runs under compute.",
    )


def _kinds(rank: "RankTime", device: "DeviceTime") -> Table:
    total = sum(row.total_ns for row in device.kinds)
    return Table(
        title=f"Kinds of work, {_place(rank, device)}",
        columns=[
            Column(name="kind", heading="kind", right=False),
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="share_pct", heading="share", show=show_pct),
            Column(name="count", heading="count", show=show_count),
        ],
        rows=[(row.kind, row.total_ns, share_pct(row.total_ns, total), row.count) for row in device.kinds],
        note="Durations summed; shares are of their sum. Work that runs at the same time counts each.",
    )


def _kernels(rank: "RankTime", device: "DeviceTime", top: int) -> Table:
    total = sum(row.total_ns for row in device.kernels)
    rows = device.kernels[: top or None]
    return Table(
        title=f"Kernels, {_place(rank, device)}{first_of(len(rows), len(device.kernels))}",
        columns=[
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="share_pct", heading="share", show=show_pct),
            Column(name="count", heading="count", show=show_count),
            Column(name="mean_ns", heading="mean", show=show_ns, less=2),
            Column(name="median_ns", heading="median", show=show_ns, less=1),
            Column(name="kind", heading="kind", right=False),
            Column(name="name", heading="kernel", right=False, fold=True),
        ],
        rows=[
            (row.total_ns, share_pct(row.total_ns, total), row.count, row.mean_ns, row.median_ns, row.kind, row.name)
            for row in rows
        ],
    )


def _ranges(rank: "RankTime", top: int) -> Table:
    rows = rank.ranges[: top or None]
    return Table(
        title=f"Named ranges, rank {rank.rank}{first_of(len(rows), len(rank.ranges))}",
        columns=[
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="count", heading="count", show=show_count),
            Column(name="mean_ns", heading="mean", show=show_ns, less=2),
            Column(name="max_ns", heading="longest", show=show_ns, less=1),
            Column(name="name", heading="range", right=False, fold=True),
        ],
        rows=[(row.total_ns, row.count, row.mean_ns, row.max_ns, row.name) for row in rows],
        note="Host time; ranges lie within one another.",
    )


def _operators(rank: "RankTime", top: int) -> Table:
    rows = rank.operators[: top or None]
    total = sum(row.self_ns for row in rank.operators)
    return Table(
        title=f"CPU operators, rank {rank.rank}{first_of(len(rows), len(rank.operators))}",
        columns=[
            Column(name="self_ns", heading="self time", show=show_ns),
            Column(name="share_pct", heading="share", show=show_pct),
            Column(name="total_ns", heading="with callees", show=show_ns),
            Column(name="count", heading="count", show=show_count),
            Column(name="name", heading="operator", right=False, fold=True),
        ],
        rows=[(row.self_ns, share_pct(row.self_ns, total), row.total_ns, row.count, row.name) for row in rows],
        note="Self time is an operator's own, without those it calls; shares are of its sum over all threads.",
    )


def _place(rank: "RankTime", device: "DeviceTime") -> str:
    name = f" ({device.name})" if device.name else ""
    return f"rank {rank.rank}, GPU {device.device}{name}"


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
