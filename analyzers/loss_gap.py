"""By how much a recipe's training loss lies above the baseline's, at equal step, equal tokens and equal wall clock.

gap % = (mean loss of the recipe / mean loss of the baseline − 1) · 100, over the last tenth of what both have in
common (as far as the shortest run goes), with six losses of each run at least. Runs that were stopped count as far as
they got.

The interval covers the noise of steps: where both have losses at the same places, that of the differences step by
step, as they saw the same data; else that of the losses about their straight line. With three runs or more in all it
also covers how runs vary (pooled Student's t on the runs' mean losses, in logarithms): the wider of the two. The band
of the baseline is the largest gap between two of its own repeats, over the same stretch.

Limits: 0.25 % is what DeepSeek-V3 reports of its FP8 training, 1 % a loose one. A gap is within a limit where the
whole interval is, either side of zero; it is beyond where none of it is.
"""

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal

import msgspec
import numpy as np

from .changes import LARGEST_LOG, around, reach_of_runs
from .medians import LEAST_STEPS, Values, dependence, student
from .runs import Run

STRICT_PCT, LOOSE_PCT = 0.25, 1.0
STRETCH = 0.1
"""Share of what the runs have in common over which losses are averaged."""

Axis = Literal["step", "tokens", "wall clock"]
Within = Literal["yes", "no", "cannot tell"]


class LossGap(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe against the baseline on one axis. None = not measured: `missing` says why."""

    at_equal: Axis
    gap_pct: float | None = None
    ci95: tuple[float, float] | None = None
    """None with fewer than six losses of a run."""
    covers: Literal["runs", "steps"] | None = None
    """What the interval covers: how runs vary too, or the noise of steps alone."""
    points: int | None = None
    """Losses averaged, of the run that has fewest."""
    until: float | None = None
    """Where the stretch ends: a step, tokens of all ranks, or ns."""
    baseline_band_pct: float | None = None
    """Largest gap between two repeats of the baseline; None of a single one."""
    within_strict: Within | None = None
    """Within 0.25 %; None at equal wall clock, where a faster recipe is to be better; also below."""
    within_loose: Within | None = None
    """Within 1 %."""
    missing: str | None = None


class Largest(msgspec.Struct, frozen=True, kw_only=True):
    """Where the gap at equal step, averaged over `over` steps, was largest after the first tenth of training."""

    gap_pct: float
    step: int
    """The last of those it is averaged over."""
    over: int


class _Curve(msgspec.Struct, frozen=True):
    at: Values
    loss: Values


def loss_gaps(runs: Sequence[Run], baseline: Sequence[Run]) -> list[LossGap]:
    """One for each axis; each missing one says why."""
    return [_gap(axis, runs, baseline) for axis in _PLACES]


def largest_gap(runs: Sequence[Run], baseline: Sequence[Run]) -> Largest | None:
    """None where fewer than six steps are in common."""
    steps, differences = _paired(*([_curve(run, _at_step) for run in group] for group in (runs, baseline)))
    over = max(LEAST_STEPS, len(steps) // 20)
    skipped = len(steps) // 10
    if len(steps) - skipped < over:
        return None
    sums = np.cumsum(np.concatenate(([0.0], differences[skipped:])))
    means = (sums[over:] - sums[:-over]) / over
    worst = int(np.argmax(np.abs(means)))
    step = int(steps[skipped + worst + over - 1])
    return Largest(gap_pct=100 * math.expm1(min(float(means[worst]), LARGEST_LOG)), step=step, over=over)


def within(limit: float, interval: tuple[float, float] | None) -> Within:
    """Whether all of an interval, or none of it, lies within ±`limit`."""
    if interval is None:
        return "cannot tell"
    if -limit <= interval[0] and interval[1] <= limit:
        return "yes"
    return "no" if interval[0] > limit or interval[1] < -limit else "cannot tell"


def _gap(axis: Axis, runs: Sequence[Run], baseline: Sequence[Run]) -> LossGap:
    groups = [[_curve(run, _PLACES[axis]) for run in group] for group in (runs, baseline)]
    curves = [curve for group in groups for curve in group if curve is not None]
    if why := _why_none(axis, runs, baseline, len(curves)):
        return LossGap(at_equal=axis, missing=why)
    end = min(float(curve.at[-1]) for curve in curves)
    known = [[_until(curve, end) for curve in group if curve is not None] for group in groups]
    begin = min([end * (1 - STRETCH), *(_last_few(curve) for group in known for curve in group)])
    cut = [[_from(curve, begin) for curve in group] for group in known]
    if not all(len(curve.at) for group in cut for curve in group):
        return LossGap(at_equal=axis, missing="the runs have no stretch in common")
    if min(float(curve.loss.mean()) for group in cut for curve in group) <= 0:
        return LossGap(at_equal=axis, missing="losses are not positive: no ratio says anything")
    logs = [[math.log(float(curve.loss.mean())) for curve in group] for group in cut]
    middle = float(np.mean(logs[0]) - np.mean(logs[1]))
    points = min(len(curve.at) for group in cut for curve in group)
    steps, between = _reach_of_steps(cut) if points >= LEAST_STEPS else None, reach_of_runs(logs[0], logs[1])
    interval = None if steps is None else around(middle, max(steps, between or 0.0))
    return LossGap(
        at_equal=axis,
        gap_pct=100 * math.expm1(min(middle, LARGEST_LOG)),
        ci95=interval,
        covers=None if interval is None else "steps" if between is None else "runs",
        points=points,
        until=end,
        baseline_band_pct=_band(logs[1]),
        within_strict=None if axis == "wall clock" else within(STRICT_PCT, interval),
        within_loose=None if axis == "wall clock" else within(LOOSE_PCT, interval),
    )


def _why_none(axis: Axis, runs: Sequence[Run], baseline: Sequence[Run], curves: int) -> str | None:
    if not baseline:
        return "no run of the baseline"
    if not all(any(step.loss is not None for step in run.steps) for run in (*runs, *baseline)):
        return "a run has no losses"
    if axis == "wall clock" and any(run.manifest.emulated for run in (*runs, *baseline)):
        return "FP8 was emulated: its times say nothing"
    if curves < len(runs) + len(baseline):
        return "a step does not tell its tokens"
    return None


def _at_step(run: Run) -> list[float] | None:
    return [float(step.step) for step in run.steps]


def _at_tokens(run: Run) -> list[float] | None:
    counts = [step.tokens for step in run.steps]
    return None if None in counts else np.cumsum(np.array(counts, dtype=np.float64)).tolist()


def _at_time(run: Run) -> list[float] | None:
    return [float(elapsed) for elapsed in run.elapsed_ns()]


_PLACES: dict[Axis, Callable[[Run], list[float] | None]] = {
    "step": _at_step,
    "tokens": _at_tokens,
    "wall clock": _at_time,
}


def _curve(run: Run, places: Callable[[Run], list[float] | None]) -> _Curve | None:
    at = places(run)
    if at is None:
        return None
    # A step without tokens, or of no time, does not advance: the later loss of a place is that place's.
    losses = {place: step.loss for place, step in zip(at, run.steps, strict=True) if step.loss is not None}
    return _Curve(np.array(list(losses)), np.array(list(losses.values()))) if losses else None


def _until(curve: _Curve, end: float) -> _Curve:
    count = int(np.searchsorted(curve.at, end, side="right"))
    return _Curve(curve.at[:count], curve.loss[:count])


def _from(curve: _Curve, begin: float) -> _Curve:
    first = int(np.searchsorted(curve.at, begin, side="left"))
    return _Curve(curve.at[first:], curve.loss[first:])


def _last_few(curve: _Curve) -> float:
    """From where on a curve has six points; infinity for a curve without any, which nothing helps."""
    return float(curve.at[-min(LEAST_STEPS, len(curve.at))]) if len(curve.at) else math.inf


def _reach_of_steps(groups: Sequence[Sequence[_Curve]]) -> float:
    """How far the noise of steps reaches, in logarithms."""
    places, differences = _paired(*groups)
    if len(places) >= LEAST_STEPS and len(places) == max(len(curve.at) for group in groups for curve in group):
        return _reach(differences)
    spread = [[_squared_error(curve) for curve in group] for group in groups]
    freedom = min(len(curve.at) - 2 for group in groups for curve in group)
    return student(freedom) * math.sqrt(sum(sum(group) / len(group) ** 2 for group in spread))


def _reach(differences: Values) -> float:
    count = len(differences)
    spread = float(np.std(differences, ddof=1)) * math.sqrt(dependence(differences) / count)
    return student(count - 1) * spread


def _squared_error(curve: _Curve) -> float:
    """Of a curve's mean loss, relative to it, its straight line taken off."""
    count = len(curve.at)
    line = np.polynomial.Polynomial.fit(curve.at, curve.loss, 1)
    left = curve.loss - line(curve.at)
    variance = float(left @ left) / (count - 2)
    return variance * dependence(left) / count / float(curve.loss.mean()) ** 2


def _paired(*groups: Sequence[_Curve | None]) -> tuple[Values, Values]:
    """The places that all runs have a positive loss at, and there the logarithm of the ratio of mean losses."""
    curves = [[curve for curve in group if curve is not None] for group in groups]
    if not all(curves):
        return np.array([]), np.array([])
    common = curves[0][0].at
    for curve in (curve for group in curves for curve in group):
        common = np.intersect1d(common, curve.at[curve.loss > 0], assume_unique=True)
    means = [np.mean([curve.loss[np.searchsorted(curve.at, common)] for curve in group], axis=0) for group in curves]
    return common, np.log(means[0]) - np.log(means[1])


def _band(logs: Sequence[float]) -> float | None:
    pairs = [abs(one - other) for one, other in combinations(logs, 2)]
    return 100 * math.expm1(min(max(pairs), LARGEST_LOG)) if pairs else None
