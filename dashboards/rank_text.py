"""What the one-screen views of `analyze-nsys` and `stepscope trace` say of a rank in the same words."""

from typing import TYPE_CHECKING

from ..record.units import show_ns, show_pct

if TYPE_CHECKING:
    from ..analyzers.answer import RankAnswer
    from ..analyzers.steps import StepSummary


def place(rank: "RankAnswer") -> str:
    """Which rank, behind a title; the first needs no saying."""
    return f", rank {rank.rank}" if rank.rank else ""


def kinds(rank: "RankAnswer") -> str:
    """Kinds of work with their shares of the span."""
    return ", ".join(f"{row.kind} {show_pct(row.share_pct)}" for row in rank.kinds)


def steps(row: "StepSummary") -> str:
    """How many steps of what length, and what they were spent on."""
    return (
        f"{row.count} of {show_ns(row.span_median_ns)} (median; {show_ns(row.span_min_ns)} to "
        f"{show_ns(row.span_max_ns)}): compute {show_pct(row.compute_pct)}, exposed communication "
        f"{show_pct(row.comm_exposed_pct)}, copies {show_pct(row.memory_pct)}, idle {show_pct(row.idle_pct)}"
    )
