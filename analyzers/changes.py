"""What a recipe changes against the baseline, in percent, each figure with what is known of its noise.

(value / baseline's − 1) · 100, so that more of a cost is positive. Step time and tokens/s are medians of timed steps,
with the intervals of `medians.py`. Of what a run has one value of (a wall clock, an energy, a held-out loss) the
geometric means of the runs are compared; their interval is Student's t on the logarithms, repeats of both recipes
taken to vary alike, and takes three runs in all. An allocator's peak is exact: its interval is
the range over pairs of runs. Resident memory is not: of single runs it has none.
"""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from .costs import energy_per_token, peak_memory
from .medians import Estimate, change_pct, student
from .runs import Run, last_eval

LARGEST_LOG = 700.0
"""Beyond it, e to its power is no number."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """In percent of the baseline's. None = not measured on both sides."""

    step_time_pct: Estimate | None = None
    tokens_per_s_pct: Estimate | None = None
    wall_clock_pct: Estimate | None = None
    peak_memory_pct: Estimate | None = None
    energy_per_token_pct: Estimate | None = None
    eval_loss_pct: Estimate | None = None


def changes(
    runs: Sequence[Run],
    baseline: Sequence[Run],
    times: tuple[Estimate | None, Estimate | None],
    rates: tuple[Estimate | None, Estimate | None],
) -> Changes:
    """`times` and `rates` are the step times and tokens/s of the recipe and of the baseline."""
    whole, base = ([run for run in group if run.finished] for group in (runs, baseline))
    return Changes(
        step_time_pct=change_pct(times[0], times[1]) if times[0] and times[1] else None,
        tokens_per_s_pct=change_pct(rates[0], rates[1]) if rates[0] and rates[1] else None,
        wall_clock_pct=_of_runs(whole, base, lambda run: run.wall_clock_ns),
        peak_memory_pct=_of_peaks(runs, baseline),
        energy_per_token_pct=_of_runs(whole, base, energy_per_token),
        eval_loss_pct=_of_runs(whole, base, lambda run: last_eval(run.steps, "eval_loss")),
    )


def _of_runs(runs: Sequence[Run], baseline: Sequence[Run], value: Callable[[Run], float | None]) -> Estimate | None:
    values = [[found for run in group if (found := value(run)) is not None] for group in (runs, baseline)]
    if not all(values) or min(map(min, values)) <= 0:
        return None
    logs = [np.log(found) for found in values]
    return change_of_logs(logs[0].tolist(), logs[1].tolist())


def change_of_logs(values: Sequence[float], baseline: Sequence[float]) -> Estimate:
    """The change of geometric means in percent, from one logarithm a run; no interval with fewer than three in all."""
    middle = float(np.mean(values) - np.mean(baseline))
    reach = reach_of_runs(values, baseline)
    return Estimate(median=100 * math.expm1(middle), ci95=None if reach is None else around(middle, reach))


def reach_of_runs(values: Sequence[float], baseline: Sequence[float]) -> float | None:
    """How far the 95 % interval of a difference of means reaches: pooled Student's t; None under three runs in all."""
    freedom = len(values) + len(baseline) - 2
    if freedom < 1:
        return None
    squares = sum(float(np.sum((np.asarray(group) - np.mean(group)) ** 2)) for group in (values, baseline))
    return student(freedom) * math.sqrt(squares / freedom * (1 / len(values) + 1 / len(baseline)))


def around(middle: float, reach: float) -> tuple[float, float]:
    """An interval of logarithms in percent of change."""
    return 100 * math.expm1(middle - reach), 100 * math.expm1(min(middle + reach, LARGEST_LOG))


def _of_peaks(runs: Sequence[Run], baseline: Sequence[Run]) -> Estimate | None:
    found = [[peak_memory([run]) for run in group] for group in (runs, baseline)]
    kinds = {kind for group in found for _, kind, _ in group}
    peaks = [[peak for peak, _, _ in group if peak] for group in found]
    if not all(peaks) or len(kinds) > 1:
        return None
    ratio = max(peaks[0]) / max(peaks[1])
    least, most = min(peaks[0]) / max(peaks[1]), max(peaks[0]) / min(peaks[1])
    exact = kinds == {"cuda allocator"} or min(map(len, peaks)) > 1
    return Estimate(median=100 * (ratio - 1), ci95=(100 * (least - 1), 100 * (most - 1)) if exact else None)
