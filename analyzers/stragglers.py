"""Ranks, and repeats, that are slower than their like: what they cost is everybody's.

A rank straggles where its own time exceeds the median of the others' by 5 % or more in the median of the timed steps,
and is the slowest rank in four of five of them. Where all ranks wait for each other within a step, their times are
alike, and only traces tell who is waited for. A repeat straggles where its median step takes 5 % more than that of
the slowest other repeat, and no rank of it straggles; it takes three.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from .findings import Finding
from .medians import LEAST_STEPS
from .runs import Run

NOTABLE = 0.05
_MOSTLY = 0.8


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a run, or one run of its recipe."""

    kind: Literal["rank", "repeat"]
    run: str
    rank: int | None
    excess_pct: float
    """By how much its time exceeds the median of the other ranks, or the slowest other repeat."""


def stragglers(runs: Sequence[Run]) -> list[Straggler]:
    """Of the runs of one recipe, by run and rank."""
    ordered = sorted(runs, key=lambda run: run.name)
    ranks = [found for run in ordered if (found := _rank(run))]
    explained = {one.run for one in ranks}
    return [*ranks, *(one for one in _repeat(ordered) if one.run not in explained)]


def about_stragglers(name: str, found: Sequence[Straggler]) -> list[Finding]:
    """A finding for each."""
    texts = {
        "rank": "{run}: rank {rank} takes {excess:.0f} % longer than the others, and all wait for it: look at its "
        "GPU's clocks, its host, its data.",
        "repeat": "{run} is {excess:.0f} % slower than every other repeat of {name}: look at what else ran on its "
        "machine, or repeat it.",
    }
    return [
        Finding(
            code=f"straggling-{one.kind}",
            severity="warning",
            text=texts[one.kind].format(run=one.run, rank=one.rank, excess=one.excess_pct, name=name),
            evidence={"run": one.run, "rank": one.rank, "excess_pct": round(one.excess_pct, 1)},
        )
        for one in found
    ]


def _rank(run: Run) -> Straggler | None:
    times = [step.by_rank_ns for step in run.timed]
    if len(times) < LEAST_STEPS or len({len(row) for row in times}) > 1 or len(times[0]) < 2:
        return None
    by_rank = np.array(times, dtype=np.float64)
    slowest, count = Counter(by_rank.argmax(axis=1).tolist()).most_common(1)[0]
    others = np.delete(by_rank, slowest, axis=1)
    excess = float(np.median(by_rank[:, slowest] / np.median(others, axis=1))) - 1
    if count < _MOSTLY * len(times) or excess < NOTABLE:
        return None
    return Straggler(kind="rank", run=run.name, rank=run.ranks[slowest], excess_pct=100 * excess)


def _repeat(runs: Sequence[Run]) -> list[Straggler]:
    medians = {run.name: float(np.median([step.duration_ns for step in run.timed])) for run in runs if run.timed}
    if len(medians) < 3:
        return []
    *_, second, worst = sorted(medians, key=lambda name: medians[name])
    excess = medians[worst] / medians[second] - 1
    return [Straggler(kind="repeat", run=worst, rank=None, excess_pct=100 * excess)] if excess >= NOTABLE else []
