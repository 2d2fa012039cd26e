"""Medians with honest intervals: how far a run's steps, and runs among themselves, let one trust a median.

The statistic is the median of all timed steps of all repeats. Its 95 % interval is a two-stage bootstrap: runs are
drawn with replacement, then within each run blocks of ⌈m^⅓⌉ consecutive steps (circular), so that slow drifts count.
The deviations, in logarithms, are widened for few runs by √(n/(n−1)), and by Student's t for the part of the variance
that lies between runs. With a single run the interval covers only the noise of its steps; nobody can know more from one
run. Seeded by the caller: the same data give the same interval.
"""

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

DRAWS = 2000
_LARGE = 20_000  # above this many steps, fewer draws suffice and keep it under a second
_NORMAL = 1.959964
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom (standard table)."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A median and its 95 % interval, in the unit of the field that holds it."""

    median: float
    ci95: tuple[float, float] | None
    """None where there are too few values (fewer than 3) to say anything."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.ci95 is not None and (self.ci95[0] > 0 or self.ci95[1] < 0)


class Draws(msgspec.Struct, frozen=True, kw_only=True):
    """A median with its bootstrap replicates, for combining with another's."""

    median: float
    replicates: Values | None

    def estimate(self) -> Estimate:
        """The median and the interval that its replicates span."""
        return Estimate(median=self.median, ci95=interval(self.replicates))


def interval(replicates: Values | None) -> tuple[float, float] | None:
    """The central 95 % of the replicates."""
    if replicates is None:
        return None
    low, high = np.percentile(replicates, [2.5, 97.5])
    return float(low), float(high)


def median_draws(runs: list[Values], seed: int) -> Draws | None:
    """The pooled median of positive values, one array per run; None without any value."""
    runs = [values for values in runs if len(values)]
    if not runs:
        return None
    median = float(np.median(np.concatenate(runs)))
    total = sum(map(len, runs))
    if total < 3:
        return Draws(median=median, replicates=None)
    generator = np.random.default_rng(seed)
    count = DRAWS if total <= _LARGE else DRAWS // 4
    within = [_block_medians(values, generator, count) for values in runs]
    drawn = within[0] if len(runs) == 1 else _two_stage(runs, generator, count)
    deviations = np.log(drawn) - math.log(median)
    return Draws(median=median, replicates=median * np.exp(_widening(runs, within) * deviations))


def change_pct(part: Draws, whole: Draws) -> Estimate:
    """(part / whole − 1) · 100 with the interval of the quotient of two independent medians."""
    value = (part.median / whole.median - 1) * 100
    if part.replicates is None or whole.replicates is None:
        return Estimate(median=value, ci95=None)
    count = min(len(part.replicates), len(whole.replicates))
    # Replicates are in random order already, so pairing them by position keeps the two sides independent.
    return Estimate(median=value, ci95=interval((part.replicates[:count] / whole.replicates[:count] - 1) * 100))


def _block_length(values: Values) -> int:
    return max(1, math.ceil(math.cbrt(len(values))))


def _blocks(values: Values, generator: np.random.Generator, count: int) -> Values:
    """`count` resamples of one run, shape (count, len(values))."""
    size, length = len(values), _block_length(values)
    starts = generator.integers(size, size=(count, -(-size // length)))[:, :, None]
    places = (starts + np.arange(length)).reshape(count, -1)[:, :size] % size
    return np.asarray(values[places])


def _block_medians(values: Values, generator: np.random.Generator, count: int) -> Values:
    slices = max(1, count * len(values) // 4_000_000)  # bounds memory at some 32 MB per slice
    parts = [_blocks(values, generator, len(part)) for part in np.array_split(np.empty(count), slices)]
    return np.concatenate([np.median(part, axis=1) for part in parts])


def _two_stage(runs: list[Values], generator: np.random.Generator, count: int) -> Values:
    picks = generator.integers(len(runs), size=(count, len(runs)))
    return np.array([np.median(np.concatenate([_blocks(runs[i], generator, 1)[0] for i in row])) for row in picks])


def _widening(runs: list[Values], within: list[Values]) -> float:
    """By how much to stretch deviations so that few runs, or few blocks of one run, don't look certain."""
    if len(runs) == 1:
        blocks = len(runs[0]) // _block_length(runs[0])
        return _student(blocks - 1) / _NORMAL * math.sqrt(blocks / (blocks - 1)) if blocks > 1 else _student(1)
    count = len(runs)
    between = float(np.var([math.log(np.median(values)) for values in runs], ddof=1))
    noise = float(np.mean([np.var(np.log(medians)) for medians in within]))
    share = max(0.0, 1 - noise / between) if between > 0 else 0.0
    return math.sqrt(count / (count - 1)) * (1 + share * (_student(count - 1) / _NORMAL - 1))


def _student(freedom: int) -> float:
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL + 2.4 / freedom
