"""Views of what work waits for or takes: collectives, launches, memory, the critical path, ranks side by side."""

from typing import TYPE_CHECKING

from ..record.units import show_bytes, show_count, show_rate
from .tables import NO, Column, Table
from .trace_columns import DEVICE, RANK, by_rank, count, data, named, times

if TYPE_CHECKING:
    from ..analyzers.trace_result import TraceReport


def fsdp(report: "TraceReport") -> Table:
    """FSDP2's collectives by layer."""
    return by_rank(
        ((rank.rank, row) for rank in report.ranks for row in rank.fsdp),
        title="FSDP's collectives by layer",
        columns=[
            RANK,
            Column(name="phase", heading="phase", right=False),
            Column(name="count", heading="count", show=show_count, less=1),
            *times(("comm_ns", "time"), ("exposed_ns", "exposed"), ("overlapped_ns", "hidden")),
            Column(name="bytes", heading="size", show=show_bytes, less=2),
            named("layer", "layer"),
            *data("host_ns"),
        ],
        note="Exposed: while no compute kernel runs. Size: what one rank hands in.",
    )


def collectives(report: "TraceReport") -> Table:
    """Collectives with sizes and bandwidths."""
    return by_rank(
        ((rank.rank, row) for rank in report.ranks for row in rank.communication),
        title="Collectives, waiting for other ranks included",
        columns=[
            RANK,
            Column(name="collective", heading="collective", right=False),
            count(),
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
            count(),
            *times(("total_ns", "time"), ("median_ns", "median"), ("queued_median_ns", "then queued")),
            count("activities", "work launched"),
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
    return by_rank(
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
            count("last_in", "last in"),
            *times(("waited_ns", "waited"), ("offset_ns", "clock"), ("spread_ns", "±")),
            *data("process", "steps", "comm_exposed_pct"),
        ],
        note="Last in: collectives that it entered last. Waited: in collectives, for the last one to come.",
    )
