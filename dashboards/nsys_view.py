"""The default view of `analyze-nsys`: one screen of what an export says beyond the official reports."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Console

from ..record.units import NOT_MEASURED, show_bytes, show_count, show_ns, show_pct
from .tables import Cell, Column, Table, print_table

if TYPE_CHECKING:
    from ..analyzers.nsys.answers import NsysRank, NsysReport

KERNELS, SHORT = 8, 4
"""Rows of the long and the short tables where nobody asked for a number."""


def show(report: "NsysReport", console: Console, top: int | None) -> None:
    """Print the report; `top` rows of each table (0: all), or as many as fit a screen."""
    for part in _parts(report, top):
        if isinstance(part, Table):
            print_table(part, console)
        else:
            console.print(part + "\n", markup=False, soft_wrap=True)
    for finding in report.findings:
        console.print(f"{finding.severity}: {finding.text}", markup=False, soft_wrap=True)


def _parts(report: "NsysReport", top: int | None) -> Iterator[Table | str]:
    """What is shown, the most telling first: tables, and lines of text."""
    if any(rank.devices for rank in report.ranks):
        yield _devices(report)
    for rank in report.ranks:
        if rank.devices:
            yield _kinds(rank)
            yield _kernels(rank, top)
        if rank.transfers:
            yield _transfers(rank, top)
        elif rank.transfers is None and rank.devices:
            yield f"Copies and sets{_place(rank)}: {NOT_MEASURED}; the export has no table of them"


def _devices(report: "NsysReport") -> Table:
    parts = ("compute_ns", "comm_exposed_ns", "memory_ns", "idle_ns")
    headings = ("compute", "exposed comm.", "copies", "idle")
    return Table(
        title="Devices: the span in four parts",
        columns=[
            Column(name="rank", heading="rank"),
            Column(name="device", heading="GPU"),
            Column(name="span_ns", heading="span", show=show_ns),
            *(Column(name=part, heading=heading) for part, heading in zip(parts, headings, strict=True)),
            Column(name="comm_overlapped_ns", heading="hidden comm.", show=show_ns),
            Column(name="fp8_gemm_pct", heading="FP8 of GEMM time"),
        ],
        rows=[
            (
                rank.rank,
                device.device,
                device.span_ns,
                *(_of_span(getattr(device, part), device.span_ns) for part in parts),
                device.comm_overlapped_ns,
                "no GEMM" if device.fp8_gemm_pct is None else show_pct(device.fp8_gemm_pct),
            )
            for rank in report.ranks
            for device in rank.devices
        ],
    )


def _kinds(rank: "NsysRank") -> str:
    told = (f"{row.kind} {show_pct(row.share_pct)}" for row in rank.kinds)
    return f"Kinds of work{_place(rank)}, of the span: {', '.join(told)}"


def _kernels(rank: "NsysRank", top: int | None) -> Table:
    span = sum(device.span_ns for device in rank.devices)
    rows = rank.kernels[: _limit(top, KERNELS)]
    return Table(
        title=f"Kernels{_place(rank)}{_of(len(rows), len(rank.kernels))}; shares are of the span",
        columns=[
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="share_pct", heading="share", show=show_pct),
            Column(name="count", heading="count", show=show_count),
            Column(name="mean_ns", heading="mean", show=show_ns),
            Column(name="median_ns", heading="median", show=show_ns),
            Column(name="p95_ns", heading="p95", show=show_ns),
            Column(name="kind", heading="kind", right=False),
            Column(name="name", heading="kernel", right=False, fold=True),
        ],
        rows=[
            (
                row.total_ns,
                _share(row.total_ns, span),
                row.count,
                row.mean_ns,
                row.median_ns,
                row.p95_ns,
                row.kind,
                row.name,
            )
            for row in rows
        ],
    )


def _transfers(rank: "NsysRank", top: int | None) -> Table:
    found = rank.transfers or []
    rows = found[: _limit(top, SHORT)]
    return Table(
        title=f"Copies and sets{_place(rank)}{_of(len(rows), len(found))}",
        columns=[
            Column(name="direction", heading="direction", right=False),
            Column(name="memory", heading="memory", right=False),
            Column(name="device", heading="GPU"),
            Column(name="count", heading="count", show=show_count),
            Column(name="total_ns", heading="time", show=show_ns),
            Column(name="bytes", heading="size", show=show_bytes),
            Column(name="bytes_per_s", heading="rate", show=_rate),
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


def _rate(bytes_per_s: float) -> str:
    return f"{show_bytes(bytes_per_s)}/s"


def _limit(top: int | None, fitting: int) -> int | None:
    return fitting if top is None else top or None


def _share(part: float, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _of_span(part: int, span: int) -> Cell:
    return f"{show_ns(part)} {show_pct(100 * part / span) if span else ''}".rstrip()


def _place(rank: "NsysRank") -> str:
    return f", rank {rank.rank}" if rank.rank else ""


def _of(shown: int, there_are: int) -> str:
    return f": the first {shown} of {there_are}" if shown < there_are else ""
