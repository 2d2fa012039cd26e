"""Views of what worked and when nothing did: devices, steps, idle time, phases, kernels, operators, modules, ranges."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from .tables import NO, Cell, Column, Table, cells, share_pct
from .trace_columns import DEVICE, NS, RANK, by_rank, count, data, named, pct, times

if TYPE_CHECKING:
    from ..analyzers.answer import DeviceAnswer
    from ..analyzers.trace_result import TraceRank, TraceReport


def places(report: "TraceReport") -> "Iterator[tuple[TraceRank, DeviceAnswer]]":
    """Each rank with each of its devices, or with its processor where it has none."""
    for rank in report.ranks:
        for device in rank.devices or ([rank.processor] if rank.processor else []):
            yield rank, device


PARTS = ("compute_ns", "comm_exposed_ns", "memory_ns", "idle_ns")
_SHARES = [
    pct("compute_pct", "compute"),
    pct("comm_exposed_pct", "exposed comm."),
    pct("memory_pct", "copies"),
    pct("idle_pct", "idle"),
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
    return by_rank(
        ((rank.rank, row) for rank in report.ranks for row in rank.kinds),
        title="Kinds of work; durations summed, shares of the span",
        columns=[
            RANK,
            Column(name="kind", heading="kind", right=False),
            *times(("total_ns", "time")),
            pct("share_pct", "share"),
            count(),
        ],
    )


def kernels(report: "TraceReport") -> Table:
    """Kernels by name."""
    columns = [
        RANK,
        DEVICE,
        named("kernel"),
        Column(name="kind", heading="kind", right=False, data=True),
        count(),
        *times(("total_ns", "time")),
        *data("mean_ns"),
        *times(("median_ns", "median")),
        *data("min_ns", "max_ns", "p95_ns"),
        pct("share_pct", "share"),
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
    return by_rank(
        rows,
        title="CPU operators",
        columns=[
            RANK,
            named("operator"),
            count(),
            Column(name="total_ns", heading="with callees", show=NS, data=on_devices),
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
        named("module"),
        count(),
        *times(("exclusive_ns", "GPU own"), ("inclusive_ns", "GPU all")),
        Column(name="backward_ns", heading="backward", show=NS, data=not linked),
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
            named("range"),
            count(),
            *times(("total_ns", "host")),
            Column(name="mean_ns", heading="mean", show=NS, data=measured),
            Column(name="max_ns", heading="longest", show=NS, data=measured),
            Column(name="inclusive_ns", heading="GPU, with inner", show=NS, data=not measured),
            *data("exclusive_ns", "by_time_ns", "backward_ns", "style"),
        ],
        rows=rows,
        note="Ranges lie within one another; GPU times are what was launched in them, summed.",
    )
