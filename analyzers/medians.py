"""Medians of steps with 95 % intervals that claim no more than the data can bear.

The statistic is the median of all timed steps of all repeats. Its interval depends on the number of runs:

- one: two order statistics of its steps, without any assumption on their distribution (binomial: 6 steps at least).
  Where neighbouring steps lie on the same side of the median more often than chance has it, they count as fewer;
- two: that of the steps of both, stretched to hold both runs' medians. Two runs hardly tell how runs vary;
- three or more: Student's t over the logarithms of the runs' medians, stretched to hold the statistic.

With one run or two an interval lies within the observed values. Two medians are related by combining their intervals'
distances in logarithms (MOVER; Zou and Donner, 2008). Nothing here is random.
"""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

LEAST_STEPS = 6
"""The fewest values whose smallest and largest hold the true median in 95 of 100 cases: 1 − 2 / 2⁶ = 97 %."""
_TAIL = 0.025
_EXACT = 1000
"""Up to so many values the binomial is summed; above, its normal approximation is as good."""
_NORMAL = 1.959964
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom (standard table)."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A median and its 95 % interval, in the unit of the field that holds it."""

    median: float
    ci95: tuple[float, float] | None
    """None where there are too few values to say anything: under 6 of one run or two."""


def median_of(runs: list[Values]) -> Estimate | None:
    """The pooled median of positive values in time order, one array per run; None without any value."""
    runs = [values for values in runs if len(values)]
    if not runs:
        return None
    pooled = np.concatenate(runs)
    median = float(np.median(pooled))
    medians = [float(np.median(values)) for values in runs]
    if len(runs) > 2:
        between = _between_runs(medians)
        return Estimate(median=median, ci95=(min(between[0], median), max(between[1], median)))
    within = _order_statistics(pooled, max(map(dependence, runs)))
    return Estimate(median=median, ci95=within and (min(within[0], *medians), max(within[1], *medians)))


def change_pct(part: Estimate, whole: Estimate) -> Estimate:
    """(part / whole − 1) · 100 with the interval of the quotient of two independent medians."""
    value = (part.median / whole.median - 1) * 100
    if part.ci95 is None or whole.ci95 is None:
        return Estimate(median=value, ci95=None)
    middle = math.log(part.median / whole.median)
    below = math.hypot(math.log(part.median / part.ci95[0]), math.log(whole.ci95[1] / whole.median))
    above = math.hypot(math.log(part.ci95[1] / part.median), math.log(whole.median / whole.ci95[0]))
    return Estimate(median=value, ci95=(100 * math.expm1(middle - below), 100 * math.expm1(middle + above)))


def _order_statistics(values: Values, dependence: float) -> tuple[float, float] | None:
    """The k-th smallest and the k-th largest, k as 95 % allow; `dependence` widens it, at most to the ends."""
    count = len(values)
    rank = _rank(count)
    if not rank:
        return None
    half = ((count + 1) / 2 - rank) * math.sqrt(dependence)
    rank = max(1, math.floor((count + 1) / 2 - half))
    ordered = np.sort(values)
    return float(ordered[rank - 1]), float(ordered[count - rank])


def _rank(count: int) -> int:
    """The largest k with P(fewer than k of `count` values lie below the median) ≤ 2.5 %; 0: there is none."""
    if count > _EXACT:
        return math.floor((count - _NORMAL * math.sqrt(count)) / 2)
    rank, below = 0, 0
    while (below := below + math.comb(count, rank)) <= _TAIL * 2**count:
        rank += 1
    return rank


def dependence(values: Values) -> float:
    """By how much the count of values above the median varies more than that of independent ones; 1 or more."""
    above = np.sign(values - np.median(values))
    count = len(above)
    lags = range(1, math.ceil(math.cbrt(count)) + 1) if count >= LEAST_STEPS else ()
    alike = (float(above[lag:] @ above[:-lag]) / count for lag in lags)
    return max(1.0, 1 + 2 * sum(alike))


def student(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t for `freedom` ≥ 1 degrees of freedom."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL + 2.4 / freedom


def _between_runs(medians: list[float]) -> tuple[float, float]:
    logs = np.log(medians)
    reach = student(len(medians) - 1) * float(np.std(logs, ddof=1)) / math.sqrt(len(medians))
    middle = float(np.mean(logs))
    return math.exp(middle - reach), math.exp(middle + reach)
