"""The views of `stepscope trace`: each a table of everything that was found, for the terminal, CSV or JSON.

Columns marked as data are for CSV and JSON alone: on a terminal the row has to fit beside a name.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ..record.units import show_bytes, show_count, show_ns, show_pct, show_rate
from .recipe_proof import proof_tables
from .tables import NO, Cell, Column, Table, cells, first_of, or_no, share_pct

if TYPE_CHECKING:
    from ..analyzers.answer import DeviceAnswer
    from ..analyzers.trace_result import TraceRank, TraceReport

ViewName = Literal[
    "devices", "steps", "idle", "phases", "kinds", "kernels", "operators", "modules", "ranges", "fsdp", "collectives",
    "launches", "memory", "path", "ranks", "precision",
]  # fmt: skip
RANK = Column(name="rank", heading="rank")
DEVICE = Column(name="device", heading="GPU", show=lambda value: "CPU" if value == -1 else str(value))


def times(*columns: tuple[str, str]) -> list[Column]:
    """Columns of ns, by name and heading."""
    return [Column(name=name, heading=heading, show=_ns) for name, heading in columns]


def data(*names: str) -> list[Column]:
    """Columns for CSV and JSON alone."""
    return [Column(name=name, heading=name, data=True) for name in names]


_ns = or_no(show_ns)


def _pct(name: str, heading: str) -> Column:
    return Column(name=name, heading=heading, show=show_pct)


def _count(name: str = "count", heading: str = "count") -> Column:
    return Column(name=name, heading=heading, show=show_count)


def _named(heading: str, name: str = "name") -> Column:
    return Column(name=name, heading=heading, right=False, fold=True)


def _by_rank(
    found: Iterable[tuple[int, object]], *, title: str, columns: Sequence[Column], note: str | None = None
) -> Table:
    """`Table.of` things each with its rank, which is the first column."""
    rows = [(rank, *cells(one, columns[1:])) for rank, one in found]
    return Table(title=title, columns=columns, rows=rows, note=note)


def places(report: "TraceReport") -> "Iterator[tuple[TraceRank, DeviceAnswer]]":
    """Each rank with each of its devices, or with its processor where it has none."""
    for rank in report.ranks:
        for device in rank.devices or ([rank.processor] if rank.processor else []):
            yield rank, device


PARTS = ("compute_ns", "comm_exposed_ns", "memory_ns", "idle_ns")
_SHARES = [
    _pct("compute_pct", "compute"),
    _pct("comm_exposed_pct", "exposed comm."),
    _pct("memory_pct", "copies"),
    _pct("idle_pct", "idle"),
]


def devices(report: "TraceReport") -> Table:
    """The span in four parts."""
    return Table(
        title="Devices: the span in four parts",
        columns=[
            RANK,
            DEVICE,
            *times(("span_ns", "span")),
            *_SHARES,
            *times(("comm_overlapped_ns", "hidden comm.")),
            *data("name", "busy_ns", *PARTS, "fp8_gemm_pct"),
        ],
        rows=[
            (
                rank.rank,
                device.device,
                device.span_ns,
                *(share_pct(getattr(device, part), device.span_ns) for part in PARTS),
                device.comm_overlapped_ns,
                device.name,
                device.busy_ns,
                *(getattr(device, part) for part in PARTS),
                device.fp8_gemm_pct,
            )
            for rank, device in places(report)
        ],
        note="Shares of the span, over all streams; they sum to 100 %. Hidden communication runs under compute.",
    )


def steps(report: "TraceReport") -> Table:
    """Every step on every device."""
    return Table(
        title="Steps: from the first thing a step starts on a device to the first of the next",
        columns=[
            RANK,
            DEVICE,
            *times(("span_ns", "span")),
            *_SHARES,
            Column(name="name", heading="step", right=False, fold=True),
            *data("process", "number", "start_ns", "host_ns", "launched_ns", "comm_overlapped_ns", *PARTS),
        ],
        rows=[
            (
                rank.rank,
                row.device,
                row.span_ns,
                *(share_pct(getattr(row, part), row.span_ns) for part in PARTS),
                row.name,
                *(getattr(row, name) for name in ("process", "number", "start_ns", "host_ns", "launched_ns")),
                row.comm_overlapped_ns,
                *(getattr(row, part) for part in PARTS),
            )
            for rank in report.ranks
            for row in rank.steps or []
        ],
    )


CAUSES = (
    ("host_bound_ns", "host busy"),
    ("synchronisation_ns", "waited for GPU"),
    ("communication_ns", "for comm."),
    ("data_ns", "for data"),
    ("after_launch_ns", "after launch"),
    ("unknown_ns", "unknown"),
)


def idle(report: "TraceReport") -> Table:
    """Idle time by cause."""
    return Table(
        title="Idle time by cause: what the launching thread did before it launched",
        columns=[
            RANK,
            DEVICE,
            *times(("idle_ns", "idle"), *CAUSES),
            *data("gaps", "before_launch_ns", "in_graph_ns"),
        ],
        rows=[
            (
                rank.rank,
                device.device,
                device.idle_ns,
                *(getattr(device.idle, name) for name, _ in CAUSES),
                device.idle.gaps,
                device.idle.before_launch_ns,
                device.idle.in_graph_ns,
            )
            for rank, device in places(report)
        ],
        note="They sum to the idle time. After launch: the launch's own latency, or waiting for another stream.",
    )


def phases(report: "TraceReport") -> Table:
    """Forward, backward, optimizer."""
    return Table(
        title="Phases: what launched the work",
        columns=[
            RANK,
            Column(name="phase", heading="phase", right=False),
            *times(("device_ns", "on devices"), ("host_ns", "on the host")),
        ],
        rows=[
            (rank.rank, row.phase, row.device_ns, NO if row.host_ns is None else row.host_ns)
            for rank in report.ranks
            for row in rank.phases
        ],
        note="Device times are summed; backward is autograd's, by the functions that launched it.",
    )


def kinds(report: "TraceReport") -> Table:
    """Kernels by what they do."""
    return _by_rank(
        ((rank.rank, row) for rank in report.ranks for row in rank.kinds),
        title="Kinds of work; durations summed, shares of the span",
        columns=[
            RANK,
            Column(name="kind", heading="kind", right=False),
            *times(("total_ns", "time")),
            _pct("share_pct", "share"),
            _count(),
        ],
    )


def kernels(report: "TraceReport") -> Table:
    """Kernels by name."""
    columns = [
        RANK,
        DEVICE,
        _named("kernel"),
        Column(name="kind", heading="kind", right=False, data=True),
        _count(),
        *times(("total_ns", "time")),
        *data("mean_ns"),
        *times(("median_ns", "median")),
        *data("min_ns", "max_ns", "p95_ns"),
        _pct("share_pct", "share"),
    ]
    return Table(
        title="Kernels; shares are of the span",
        columns=columns,
        rows=[
            (
                rank.rank,
                device.device,
                *cells(row, columns[2:-1]),
                share_pct(row.total_ns, device.span_ns),
            )
            for rank in report.ranks
            for device in rank.devices
            for row in device.kernels
        ],
    )


def operators(report: "TraceReport") -> Table:
    """Operators, by device time of their own where any was recorded, else by host time of their own."""
    rows = [(rank.rank, row) for rank in report.ranks for row in rank.operators]
    rows.sort(key=lambda entry: (entry[0], -(entry[1].device_self_ns or 0), -entry[1].self_ns, entry[1].name))
    by_shape = any(row.shapes for _, row in rows)
    on_devices = any(row.device_self_ns is not None for _, row in rows)
    linked = any(row.backward_ns is not None for _, row in rows)
    device = times(("device_self_ns", "GPU own"), ("device_total_ns", "GPU all"), ("backward_ns", "backward"))
    device[2] = replace(device[2], data=not linked)
    return _by_rank(
        rows,
        title="CPU operators",
        columns=[
            RANK,
            _named("operator"),
            _count(),
            Column(name="total_ns", heading="with callees", show=_ns, data=on_devices),
            *times(("self_ns", "host own")),
            *(device if on_devices else [replace(column, data=True) for column in device]),
            Column(name="shapes", heading="input shapes", right=False, fold=True, data=not by_shape),
        ],
        note="Own: without the operators that it calls. GPU times are what it launched, summed; backward: what the "
        "backward functions did that it made.",
    )


def modules(report: "TraceReport") -> Table:
    """nn.Modules."""
    linked = any(row.backward_ns is not None for rank in report.ranks for row in rank.modules)
    columns = [
        RANK,
        _named("module"),
        _count(),
        *times(("exclusive_ns", "GPU own"), ("inclusive_ns", "GPU all")),
        Column(name="backward_ns", heading="backward", show=_ns, data=not linked),
        *times(("host_ns", "host")),
    ]
    return Table(
        title="Modules; GPU times are what their calls launched, summed",
        columns=columns,
        rows=[
            (
                rank.rank,
                row.name.removeprefix("nn.Module: "),
                *cells(row, columns[2:]),
            )
            for rank in report.ranks
            for row in rank.modules
        ],
    )


def ranges(report: "TraceReport") -> Table:
    """Named ranges."""
    rows: list[tuple[Cell, ...]] = []
    for rank in report.ranks:
        told = {(row.name, row.style): row for row in rank.projection.ranges} if rank.projection else {}
        for row in rank.ranges:
            gpu = told.get((row.name, row.kind))
            on_devices = (gpu.inclusive_ns, gpu.exclusive_ns, gpu.by_time_ns, gpu.backward_ns) if gpu else (None,) * 4
            if row.kind != "module":
                rows.append(
                    (rank.rank, row.name, row.count, row.total_ns, row.mean_ns, row.max_ns, *on_devices, row.kind)
                )
    measured = any(row[6] is not None for row in rows)
    return Table(
        title="Named ranges",
        columns=[
            RANK,
            _named("range"),
            _count(),
            *times(("total_ns", "host")),
            Column(name="mean_ns", heading="mean", show=_ns, data=measured),
            Column(name="max_ns", heading="longest", show=_ns, data=measured),
            Column(name="inclusive_ns", heading="GPU, with inner", show=_ns, data=not measured),
            *data("exclusive_ns", "by_time_ns", "backward_ns", "style"),
        ],
        rows=rows,
        note="Ranges lie within one another; GPU times are what was launched in them, summed.",
    )


def fsdp(report: "TraceReport") -> Table:
    """FSDP2's collectives by layer."""
    return _by_rank(
        ((rank.rank, row) for rank in report.ranks for row in rank.fsdp),
        title="FSDP's collectives by layer",
        columns=[
            RANK,
            Column(name="phase", heading="phase", right=False),
            _count(),
            *times(("comm_ns", "time"), ("exposed_ns", "exposed"), ("overlapped_ns", "hidden")),
            Column(name="bytes", heading="size", show=show_bytes),
            _named("layer", "layer"),
            *data("host_ns"),
        ],
        note="Exposed: while no compute kernel runs. Size: what one rank hands in.",
    )


def collectives(report: "TraceReport") -> Table:
    """Collectives with sizes and bandwidths."""
    return _by_rank(
        ((rank.rank, row) for rank in report.ranks for row in rank.communication),
        title="Collectives, waiting for other ranks included",
        columns=[
            RANK,
            Column(name="collective", heading="collective", right=False),
            _count(),
            *times(("total_ns", "time")),
            *data("median_ns"),
            Column(name="bytes", heading="size", show=show_bytes),
            Column(name="bus_bytes_per_s", heading="bus", show=show_rate),
            Column(name="dtype", heading="type", right=False),
            *data("group", "group_size", "algorithm", "protocol", "min_ns", "alg_bytes_per_s"),
        ],
        note="Size: what one rank hands in, summed. Bus bandwidth as nccl-tests define it, a lower bound.",
    )


def launches(report: "TraceReport") -> Table:
    """API calls that launched work."""
    return Table(
        title="Launches",
        columns=[
            RANK,
            Column(name="call", heading="call", right=False),
            _count(),
            *times(("total_ns", "time"), ("median_ns", "median"), ("queued_median_ns", "then queued")),
            _count("activities", "work launched"),
            *data("mean_ns"),
        ],
        rows=[
            (
                rank.rank,
                row.call,
                row.count,
                row.total_ns,
                row.median_ns,
                NO if row.queued_median_ns is None else row.queued_median_ns,
                row.activities,
                row.mean_ns,
            )
            for rank in report.ranks
            for row in rank.launches or []
        ],
    )


def memory(report: "TraceReport") -> Table:
    """The curves of allocated memory."""
    return Table(
        title="Allocated memory over time",
        columns=[
            RANK,
            DEVICE,
            Column(name="time_ns", heading="time (ns)"),
            Column(name="allocated_bytes", heading="allocated", show=show_bytes),
        ],
        rows=[
            (rank.rank, curve.device, point.time_ns, point.allocated_bytes)
            for rank in report.ranks
            for curve in rank.memory
            for point in curve.points
        ],
    )


_PATH = ("compute_ns", "communication_ns", "memory_ns", "launch_ns", "waiting_ns", "host_ns", "synchronisation_ns")


def path(report: "TraceReport") -> Table:
    """The critical path of each step."""
    headings = ("compute", "comm.", "copies", "launch", "waiting", "host", "sync.")
    return _by_rank(
        ((rank.rank, row) for rank in report.ranks for row in rank.critical_paths),
        title="Critical path of each step",
        columns=[
            RANK,
            DEVICE,
            Column(name="number", heading="step"),
            *times(("span_ns", "length"), *zip(_PATH, headings, strict=True)),
        ],
        note="The chain that the step's end hangs on, told by times; its parts sum to its length.",
    )


def ranks(report: "TraceReport") -> Table:
    """Ranks side by side."""
    found = report.skew.workers if report.skew else []
    matched = report.skew.collectives if report.skew else 0
    return Table.of(
        found,
        title=f"Ranks side by side; {show_count(matched)} collectives matched",
        columns=[
            RANK,
            DEVICE,
            *times(("step_median_ns", "step"), ("comm_exposed_ns", "exposed comm.")),
            _count("last_in", "last in"),
            *times(("waited_ns", "waited"), ("offset_ns", "clock"), ("spread_ns", "±")),
            *data("process", "steps", "comm_exposed_pct"),
        ],
        note="Last in: collectives that it entered last. Waited: in collectives, for the last one to come.",
    )


@dataclass(frozen=True, kw_only=True)
class View:
    """One view: what it is, how it is made, and what to say where there is nothing to show."""

    build: "Callable[[TraceReport], Table]"
    absent: str
    draw: "Callable[[TraceReport, int], list[Table]] | None" = None
    """What a terminal shows in place of that table, where it has more to show; the number is of rows (0: all)."""


def precision(report: "TraceReport") -> Table:
    """Multiplications by role and precision; `recipe_proof.proof_tables` draws more."""
    names = ("role", "dtype", "emulated", "count", "flops", "time_ns")
    return _by_rank(
        ((rank.rank, row) for rank in (report.precision.ranks if report.precision else []) for row in rank.gemms),
        title="Multiplications by role and precision",
        columns=[RANK, *(Column(name=name, heading=name) for name in names)],
    )


VIEWS: dict[ViewName, View] = {
    "devices": View(build=devices, absent="neither device work nor operators were recorded"),
    "steps": View(build=steps, absent="no step was recorded; call step() of the profiler, or put each in a range"),
    "idle": View(build=idle, absent="neither device work nor operators were recorded"),
    "phases": View(build=phases, absent="neither ranges nor operators were recorded"),
    "kinds": View(build=kinds, absent="no device work was recorded"),
    "kernels": View(build=kernels, absent="no kernels were recorded"),
    "operators": View(build=operators, absent="no operators were recorded; profile with ProfilerActivity.CPU"),
    "modules": View(build=modules, absent="no calls of modules were recorded; profile with with_stack=True"),
    "ranges": View(build=ranges, absent="no named ranges were recorded"),
    "fsdp": View(build=fsdp, absent="no ranges of FSDP2 were recorded"),
    "collectives": View(build=collectives, absent="no collectives were recorded"),
    "launches": View(build=launches, absent="no launches were recorded"),
    "memory": View(build=memory, absent="memory was not recorded; profile with profile_memory=True"),
    "path": View(build=path, absent="it takes steps, launches and device work, and not all were recorded"),
    "ranks": View(build=ranks, absent="there is one rank only; name the traces of several, or their folder"),
    "precision": View(
        build=precision,
        absent="no multiplications were recorded; profile with record_shapes=True",
        draw=lambda report, top: proof_tables(report.precision, top) if report.precision else [],
    ),
}


def cut(table: Table, rows: int | None) -> Table:
    """The first rows of a table, with a title that says so; None: all."""
    if rows is None or rows >= len(table.rows):
        return table
    return replace(table, title=f"{table.title}{first_of(rows, len(table.rows))}", rows=table.rows[:rows])
