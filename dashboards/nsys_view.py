"""The default view of `analyze-nsys`: one screen of what an export says beyond the official reports."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console

from ..record.units import NOT_MEASURED, show_bytes, show_count, show_ns, show_pct, show_rate
from .rank_text import kinds, place, steps
from .tables import NO, Cell, Column, Table, first_of, limited, or_no, print_all, print_text, share_pct

if TYPE_CHECKING:
    from ..analyzers.answer import DeviceAnswer
    from ..analyzers.nsys.result import DevicesTotal, NsysRank, NsysReport
    from ..analyzers.projection import Projection
    from ..analyzers.skew import Skew

LONG, SHORT = 5, 3
"""Rows of the long and the short tables where nobody asked for a number."""


def show(report: "NsysReport", console: Console, top: int | None) -> None:
    """Print the report; `top` rows of each table (0: all), or as many as fit a screen."""
    print_all(_parts(report, top), console)
    for finding in report.findings:
        print_text(f"{finding.severity}: {finding.text}", console)


def _parts(report: "NsysReport", top: int | None) -> Iterator[Table | str]:
    """What is shown, the most telling first: tables, and lines of text."""
    if any(rank.devices for rank in report.ranks):
        yield _devices(report)
    if report.skew and (report.skew.collectives or report.skew.steps):
        yield from _skew(report.skew)
    yield from (_host_ranges(rank, top) for rank in report.ranks if rank.ranges and not rank.devices)
    measured = [rank for rank in report.ranks if rank.devices]
    # One screen: of several exports all are in the first tables, and the first is looked into.
    for rank in measured[: None if top == 0 else 1]:
        yield _kinds(rank)
        yield _kernels(rank, top)
        yield from _idle(rank, top)
        yield from _ranges(rank, top)
        yield _steps(rank)
        yield _launches(rank)
        if rank.collectives:
            yield _collectives(rank)
        yield _metrics(rank)
        yield (
            _transfers(rank, top)
            if rank.transfers
            else f"Copies and sets{place(rank)}: {NOT_MEASURED}; -t cuda has them"
        )


def _devices(report: "NsysReport") -> Table:
    parts = ("compute_ns", "comm_exposed_ns", "memory_ns", "idle_ns")
    headings = ("compute", "exposed comm.", "copies", "idle")
    table = Table(
        title="Devices: the span in four parts",
        columns=[
            Column(name="rank", heading="rank"),
            Column(name="device", heading="GPU"),
            Column(name="span_ns", heading="span", show=show_ns),
            *(Column(name=part, heading=heading) for part, heading in zip(parts, headings, strict=True)),
            Column(name="comm_overlapped_ns", heading="hidden comm.", show=show_ns, less=2),
            Column(name="fp8_gemm_pct", heading="FP8 of GEMM time", less=1),
        ],
        rows=[
            (
                rank,
                gpu,
                device.span_ns,
                *(_of_span(getattr(device, part), device.span_ns) for part in parts),
                device.comm_overlapped_ns,
                "no GEMM" if device.fp8_gemm_pct is None else show_pct(device.fp8_gemm_pct),
            )
            for rank, gpu, device in _rows_of_devices(report)
        ],
    )
    return table.without("rank") if len(report.ranks) == 1 else table


def _rows_of_devices(report: "NsysReport") -> Iterator[tuple[Cell, Cell, "DeviceAnswer | DevicesTotal"]]:
    """Each with its rank and number, and where there are several what they sum to."""
    for rank in report.ranks:
        yield from ((rank.rank, device.device, device) for device in rank.devices)
    if report.total and report.total.devices > 1:
        yield "", "all", report.total


def _kinds(rank: "NsysRank") -> str:
    return f"Kinds of work{place(rank)}, of the span: {kinds(rank)}"


def _kernels(rank: "NsysRank", top: int | None) -> Table:
    rows = rank.kernels[: limited(top, LONG)]
    table = Table(
        title=f"Kernels{place(rank)}{first_of(len(rows), len(rank.kernels))}; shares are of the span",
        columns=[
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="share_pct", heading="share", show=show_pct),
            Column(name="count", heading="count", show=show_count),
            Column(name="mean_ns", heading="mean", show=show_ns, less=2),
            Column(name="median_ns", heading="median", show=show_ns, less=1),
            Column(name="p95_ns", heading="p95", show=show_ns, less=3),
            Column(name="per_step_ns", heading="per step", show=or_no(show_ns)),
            Column(name="kind", heading="kind", right=False),
            Column(name="name", heading="kernel", right=False, fold=True),
        ],
        rows=[
            (
                row.total_ns,
                row.share_pct,
                row.count,
                row.mean_ns,
                row.median_ns,
                row.p95_ns,
                NO if row.per_step_ns is None else row.per_step_ns,
                row.kind,
                row.name,
            )
            for row in rows
        ],
    )
    return table if rank.steps else table.without("per_step_ns")


def _idle(rank: "NsysRank", top: int | None) -> Iterator[Table | str]:
    whole = sum(device.idle.idle_ns for device in rank.devices)
    before = sum(device.idle.before_launch_ns for device in rank.devices)
    after = sum(device.idle.after_launch_ns for device in rank.devices)
    if all(device.idle.causes is None for device in rank.devices):
        yield f"Idle {show_ns(whole)}{place(rank)}: why is {NOT_MEASURED}; -t cuda records API calls"
        return
    causes = [(device.device, cause) for device in rank.devices for cause in device.idle.causes or []]
    causes.sort(key=lambda entry: -entry[1].total_ns)
    rows = causes[: limited(top, SHORT)]
    table = Table(
        title=f"Idle {show_ns(whole)}{place(rank)}: {show_ns(before)} before the next launch, "
        f"{show_ns(after)} after{first_of(len(rows), len(causes))}",
        columns=[
            Column(name="device", heading="GPU"),
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="share_pct", heading="of idle", show=show_pct, less=1),
            Column(name="count", heading="gaps", show=show_count),
            Column(name="longest_ns", heading="longest", show=show_ns, less=2),
            Column(name="call", heading="API call", right=False),
            Column(name="range", heading="NVTX range", right=False, fold=True),
        ],
        rows=[
            (
                device,
                cause.total_ns,
                share_pct(cause.total_ns, whole),
                cause.count,
                cause.longest_ns,
                cause.call or "none",
                cause.range or "none",
            )
            for device, cause in rows
        ],
    )
    yield table.without("device") if len(rank.devices) == 1 else table


def _ranges(rank: "NsysRank", top: int | None) -> Iterator[Table | str]:
    found = rank.projection
    if found is None:
        yield f"NVTX ranges{place(rank)}: {NOT_MEASURED}; name parts of the program and profile with -t cuda,nvtx"
        return
    rows = found.ranges[: limited(top, LONG)]
    whole = found.gpu_ns
    table = Table(
        title=f"GPU time of NVTX ranges{place(rank)}{first_of(len(rows), len(found.ranges))}; "
        f"{show_pct(share_pct(whole - found.attributed_ns, whole))} of {show_ns(whole)} not attributed{_why(found)}",
        columns=[
            Column(name="inclusive_ns", heading="with inner", show=show_ns),
            Column(name="exclusive_ns", heading="own", show=or_no(show_ns)),
            Column(name="by_time_ns", heading="by time", show=show_ns, less=2),
            Column(name="backward_ns", heading="its backward", show=or_no(show_ns), less=1),
            Column(name="count", heading="count", show=show_count),
            Column(name="host_ns", heading="host", show=show_ns, less=2),
            Column(name="name", heading="range", right=False, fold=True),
        ],
        rows=[
            (
                row.inclusive_ns,
                NO if row.exclusive_ns is None else row.exclusive_ns,
                row.by_time_ns,
                NO if row.backward_ns is None else row.backward_ns,
                row.count,
                row.host_ns,
                row.name,
            )
            for row in rows
        ],
    )
    empty = {
        "by_time_ns": not any(row.by_time_ns for row in rows),
        "backward_ns": all(row.backward_ns is None for row in rows),
    }
    yield table.without(*(name for name, is_so in empty.items() if is_so))


def _why(found: "Projection") -> str:
    parts = ((found.outside_ns, "launched outside of ranges"), (found.unlaunched_ns, "without a launch"))
    told = ", ".join(f"{show_ns(time)} {words}" for time, words in parts if time)
    return f" ({told})" if told else ""


def _host_ranges(rank: "NsysRank", top: int | None) -> Table:
    """Where nothing of a GPU was recorded."""
    rows = rank.ranges[: limited(top, LONG)]
    return Table.of(
        rows,
        title=f"NVTX ranges on the host{place(rank)}{first_of(len(rows), len(rank.ranges))}",
        columns=[
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="count", heading="count", show=show_count),
            Column(name="mean_ns", heading="mean", show=show_ns),
            Column(name="max_ns", heading="longest", show=show_ns),
            Column(name="name", heading="range", right=False, fold=True),
        ],
    )


def _steps(rank: "NsysRank") -> str:
    if not rank.step_summary:
        return f"Steps{place(rank)}: {NOT_MEASURED}; put each in an NVTX range called step"
    return "\n".join(
        f"Steps{place(rank)}, process {row.process}, GPU {row.device}: {steps(row)}" for row in rank.step_summary
    )


def _launches(rank: "NsysRank") -> str:
    if rank.launches is None:
        return f"Launch overhead{place(rank)}: {NOT_MEASURED}; profile with -t cuda"
    told = (
        f"{show_count(row.count)} {row.call} of {show_ns(row.median_ns)}"
        + (f", then {show_ns(row.queued_median_ns)} queued" if row.queued_median_ns is not None else "")
        for row in rank.launches[:3]
    )
    return f"Launches{place(rank)} (medians): {'; '.join(told) or 'none'}"


def _collectives(rank: "NsysRank") -> str:
    told = (
        f"{show_count(row.count)} {row.collective} of {show_ns(row.median_ns)} (95 % below {show_ns(row.p95_ns)})"
        + (f", {show_bytes(row.bytes)}" if row.bytes is not None else "")
        + (f", {show_rate(row.bytes_per_s)}" if row.bytes_per_s is not None else "")
        for row in rank.collectives
    )
    sizes = (
        ""
        if any(row.bytes is not None for row in rank.collectives)
        else f"; sizes {NOT_MEASURED} (-t nvtx, NCCL 2.26+)"
    )
    return f"Collectives{place(rank)} (medians): {'; '.join(told)}{sizes}"


def _metrics(rank: "NsysRank") -> str:
    if not rank.metrics:
        return f"GPU metrics{place(rank)}: {NOT_MEASURED}; --gpu-metrics-devices=all samples them"
    told = (f"{row.metric} {row.mean:.1f} (most {row.max:.0f})" for row in rank.metrics[:LONG])
    return f"GPU metrics{place(rank)}, means over the capture: {', '.join(told)}"


def _skew(skew: "Skew") -> Iterator[Table | str]:
    yield Table.of(
        skew.workers,
        title=f"Ranks side by side; {show_count(skew.collectives)} collectives matched",
        columns=[
            Column(name="rank", heading="rank"),
            Column(name="process", heading="process", less=1),
            Column(name="device", heading="GPU"),
            Column(name="step_median_ns", heading="step (median)", show=show_ns),
            Column(name="comm_exposed_ns", heading="exposed comm.", show=show_ns, less=2),
            Column(name="last_in", heading="last to enter", show=show_count),
            Column(name="waited_ns", heading="waited for the last", show=show_ns),
            Column(name="offset_ns", heading="clock", show=show_ns, less=3),
            Column(name="spread_ns", heading="±", show=show_ns, less=3),
        ],
    )
    if skew.steps:
        worst = max(skew.steps, key=lambda row: row.longest_ns - row.shortest_ns)
        yield (
            f"Skew of steps: step {worst.number} most, {show_ns(worst.shortest_ns)} to {show_ns(worst.longest_ns)} "
            f"(rank {worst.slowest_rank}, process {worst.slowest_process} slowest)"
        )


def _transfers(rank: "NsysRank", top: int | None) -> Table:
    found = rank.transfers or []
    rows = found[: limited(top, SHORT)]
    table = Table(
        title=f"Copies and sets{place(rank)}{first_of(len(rows), len(found))}",
        columns=[
            Column(name="direction", heading="direction", right=False),
            Column(name="memory", heading="memory", right=False),
            Column(name="device", heading="GPU"),
            Column(name="count", heading="count", show=show_count, less=1),
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="bytes", heading="size", show=show_bytes),
            Column(name="bytes_per_s", heading="rate", show=show_rate, less=2),
        ],
        rows=[
            (
                row.direction,
                " → ".join(filter(None, (row.source, row.destination))) or None,
                row.device,
                row.count,
                row.total_ns,
                row.bytes,
                row.bytes_per_s,
            )
            for row in rows
        ],
    )
    return table.without("device") if len(rank.devices) == 1 else table


def _of_span(part: int, span: int) -> Cell:
    return f"{show_ns(part)} {show_pct(100 * part / span) if span else ''}".rstrip()
