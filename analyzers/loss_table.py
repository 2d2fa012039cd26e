"""The loss table of the FP8 studies, from one schema: max, min, average, final and standard deviation of losses.

Training losses are those of every step, held-out ones of every evaluation, of runs that came to their end. The standard
deviation has n − 1 in its denominator (ddof 1). A recipe's row is the mean of its runs' rows.

perplexity = exp(Σ NLL / Σ unmasked tokens) and token accuracy = correct / unmasked tokens, of the last evaluation.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

import msgspec
import numpy as np

from .runs import Run, last_eval

STATISTICS = {"max": "max", "min": "min", "average": "average", "final": "final", "std": "std"}
"""Field of `LossStatistics` → heading, in the order of every table."""
DDOF = 1


class LossStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Losses of one run, or their means over the runs of a recipe. None = not measured."""

    of: Literal["train", "held-out"]
    run: str | None
    """None: the mean over the recipe's runs."""
    points: int
    """Losses that the figures are of, all runs together."""
    max: float
    min: float
    average: float
    final: float | None
    """Of the last step, or the last evaluation; None where the last step has no loss."""
    std: float | None
    """None of a single loss."""
    ddof: int = DDOF
    first_step: int
    """The step of the first loss; of a mean, the earliest."""
    perplexity: float | None = None
    """Of the last evaluation, as is accuracy."""
    accuracy: float | None = None
    """0 to 1."""

    def __post_init__(self) -> None:
        """What holds of any losses; a column that has slipped breaks it."""
        slack = 1e-9 * max(abs(self.max), abs(self.min))
        for value in (self.average, self.final):
            assert value is None or self.min - slack <= value <= self.max + slack, self


def loss_statistics(runs: Sequence[Run]) -> list[LossStatistics]:
    """The recipe's rows (train, held-out), then each run's own; none of what no run has."""
    whole = sorted((run for run in runs if run.finished), key=lambda run: run.name)
    own = [row for run in whole for row in (_train(run), _held_out(run)) if row]
    means = [_mean([row for row in own if row.of == of]) for of in ("train", "held-out")]
    return [*(row for row in means if row), *own]


def _train(run: Run) -> LossStatistics | None:
    losses = [(step.step, step.loss) for step in run.steps if step.loss is not None]
    if not losses:
        return None
    return _of("train", run, losses, final=run.steps[-1].loss)


def _held_out(run: Run) -> LossStatistics | None:
    losses = [(step.step, step.eval_loss) for step in run.steps if step.eval_loss is not None]
    if not losses:
        return None
    final = losses[-1][1]
    perplexity = last_eval(run.steps, "eval_perplexity") or (math.exp(final) if final < 700 else None)
    row = _of("held-out", run, losses, final=final)
    accuracy = last_eval(run.steps, "eval_accuracy")
    return msgspec.structs.replace(row, perplexity=perplexity, accuracy=accuracy)


def _of(
    of: Literal["train", "held-out"], run: Run, losses: Sequence[tuple[int, float]], final: float | None
) -> LossStatistics:
    values = np.array([loss for _, loss in losses])
    return LossStatistics(
        of=of,
        run=run.name,
        points=len(values),
        max=float(values.max()),
        min=float(values.min()),
        average=float(values.mean()),
        final=final,
        std=float(values.std(ddof=DDOF)) if len(values) > DDOF else None,
        first_step=losses[0][0],
    )


def _mean(rows: Sequence[LossStatistics]) -> LossStatistics | None:
    if not rows:
        return None

    def mean(name: str) -> float | None:
        values = [getattr(row, name) for row in rows]
        return None if None in values else fmean(values)

    return LossStatistics(
        of=rows[0].of,
        run=None,
        points=sum(row.points for row in rows),
        max=fmean(row.max for row in rows),
        min=fmean(row.min for row in rows),
        average=fmean(row.average for row in rows),
        final=mean("final"),
        std=mean("std"),
        first_step=min(row.first_step for row in rows),
        perplexity=mean("perplexity"),
        accuracy=mean("accuracy"),
    )
