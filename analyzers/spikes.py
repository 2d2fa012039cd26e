"""Spikes of the training loss and of the gradient norm: where, how high, how long, and whether training recovered.

A value is a spike's where it lies above what came before by either measure, each told with its parameters:

- `7 sigma`: 7 standard deviations above the mean of the preceding 1,000 values, fewer at the start (OLMo 2's; its
  *spike score* is the share of such values);
- `robust z`: of the logarithm, 8 above the level before it, in units of 1.4826 · the median absolute deviation from a
  line through the medians of both halves of the preceding 100. The level is that line's, or the median of its last
  quarter where that is higher. So a loss that falls hides no spike.

Both need 32 values before them. A spread under 0.2 % of the level counts as that much, so that rounded values make no
spikes. A spike lasts until the value is back within 3 robust deviations of the level before it; what is flagged until
then belongs to it.
"""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from .changes import LARGEST_LOG
from .medians import Values
from .runs import Run

SIGMAS, ROLLING = 7.0, 1000
ROBUST_Z, RECENT = 8.0, 100
LEAST_BEFORE = 32
"""Values before a value that can be judged."""
TOGETHER = 2
"""Steps that two spikes of one cause may lie apart."""
_BACK = 3.0
_LEAST_SPREAD = 0.002
_MAD_TO_SIGMA = 1.4826
_ROWS = 20_000

Signal = Literal["loss", "grad_norm"]
SIGNALS: tuple[Signal, ...] = ("loss", "grad_norm")


class Spike(msgspec.Struct, frozen=True, kw_only=True):
    """One spike of one run."""

    run: str
    signal: Signal
    step: int
    """Where it begins."""
    level: float
    """What the preceding values let one expect."""
    peak: float
    width_steps: int
    """Values until it was back, or until the run's end."""
    recovered: bool
    """False: the run ended first."""
    found_by: list[str]
    beside_other_signal: bool = False
    """Whether the other signal has a spike too, within 2 steps."""
    in_baseline: bool | None = None
    """Whether a run of the baseline spikes there too, within 2 steps; None where both did not see the same data."""


class SpikeCount(msgspec.Struct, frozen=True, kw_only=True):
    """One signal over the runs of a recipe. None = not measured: `missing` says why."""

    signal: Signal
    spikes: int | None = None
    score_pct: float | None = None
    """Spike score: the share of judged values that are 7 sigma above."""
    judged: int = 0
    """Values with enough before them."""
    recovered: int | None = None
    in_baseline: int | None = None
    """How many the baseline has too."""
    missing: str | None = None


def spikes_of(runs: Sequence[Run]) -> tuple[list[Spike], list[SpikeCount]]:
    """The spikes of runs by name and step, and one count for each signal; none of them is held against others yet."""
    found: list[Spike] = []
    counts = []
    for signal in SIGNALS:
        own, scores, judged = [], 0, 0
        for run in sorted(runs, key=lambda run: run.name):
            steps, values = _series(run, signal)
            high = seven_sigma(values)
            own += _spikes(run.name, signal, steps, values, high)
            scores += int(high.sum())
            judged += max(0, len(values) - LEAST_BEFORE)
        found += own
        if judged:
            counts.append(
                SpikeCount(
                    signal=signal,
                    spikes=len(own),
                    score_pct=100 * scores / judged,
                    judged=judged,
                    recovered=sum(spike.recovered for spike in own),
                )
            )
        else:
            why = f"no run has more than {LEAST_BEFORE} steps with one"
            counts.append(SpikeCount(signal=signal, missing=why))
    return [_beside(spike, found) for spike in found], counts


def held_against(
    spikes: Sequence[Spike], counts: Sequence[SpikeCount], baseline: Sequence[Spike]
) -> tuple[list[Spike], list[SpikeCount]]:
    """The same, each spike with whether the baseline has it too. Only for runs that saw the same data at each step."""
    told = [msgspec.structs.replace(spike, in_baseline=_near(spike, baseline, spike.signal)) for spike in spikes]
    shared = {signal: sum(bool(spike.in_baseline) for spike in told if spike.signal == signal) for signal in SIGNALS}
    return told, [
        count if count.spikes is None else msgspec.structs.replace(count, in_baseline=shared[count.signal])
        for count in counts
    ]


def seven_sigma(values: Values) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which values lie 7 standard deviations above the mean of the up to 1,000 before them."""
    count = len(values)
    found = np.zeros(count, dtype=bool)
    if count <= LEAST_BEFORE:
        return found
    centre = float(values.mean())
    sums, squares = (np.concatenate(([0.0], np.cumsum((values - centre) ** power))) for power in (1, 2))
    at = np.arange(LEAST_BEFORE, count)
    since = np.maximum(0, at - ROLLING)
    before = at - since
    mean = (sums[at] - sums[since]) / before
    variance = np.maximum(0.0, (squares[at] - squares[since]) / before - mean**2) * before / (before - 1)
    spread = np.maximum(np.sqrt(variance), _LEAST_SPREAD * np.abs(mean + centre))
    found[LEAST_BEFORE:] = values[LEAST_BEFORE:] - centre > mean + SIGMAS * spread
    return found


def _robust(logs: Values) -> tuple[Values, Values]:
    """Level and robust deviation of the logarithms before each; not a number where too few are before."""
    level, spread = (np.full(len(logs), np.nan) for _ in range(2))
    for at in range(LEAST_BEFORE, min(RECENT, len(logs))):
        level[at : at + 1], spread[at : at + 1] = _lines(logs[None, :at])
    if len(logs) > RECENT:
        windows = np.lib.stride_tricks.sliding_window_view(logs[:-1], RECENT)
        for first in range(0, len(windows), _ROWS):
            part = windows[first : first + _ROWS]
            rows = slice(RECENT + first, RECENT + first + len(part))
            level[rows], spread[rows] = _lines(part)
    return level, np.maximum(_MAD_TO_SIGMA * spread, _LEAST_SPREAD)


def _lines(windows: NDArray[np.float64]) -> tuple[Values, Values]:
    """Of each row, the level that is to be expected after it and the median absolute deviation from its line."""
    count = windows.shape[1]
    half = count // 2
    early, late = (np.median(part, axis=1) for part in (windows[:, :half], windows[:, count - half :]))
    slope = (late - early) / (count - half)
    centre = count - (half + 1) / 2  # of the later half, as an index
    line = late[:, None] + slope[:, None] * (np.arange(count + 1) - centre)
    level = np.maximum(line[:, -1], np.median(windows[:, count - count // 4 :], axis=1))
    return level, np.median(np.abs(windows - line[:, :-1]), axis=1)


def _spikes(
    run: str, signal: Signal, steps: Sequence[int], values: Values, high: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> list[Spike]:
    if len(values) <= LEAST_BEFORE:
        return []
    logs = np.log(values)
    level, spread = _robust(logs)
    with np.errstate(invalid="ignore"):
        above = logs > level + ROBUST_Z * spread
    found, free = [], 0
    for first in np.flatnonzero(high | above).tolist():
        if first < free:
            continue
        back = np.flatnonzero(logs[first:] <= level[first] + _BACK * spread[first])
        free = first + int(back[0]) if len(back) else len(values)
        within = slice(first, max(free, first + 1))
        ways = [name for name, flags in (("7 sigma", high), ("robust z", above)) if flags[within].any()]
        found.append(
            Spike(
                run=run,
                signal=signal,
                step=steps[first],
                level=math.exp(min(float(level[first]), LARGEST_LOG)),
                peak=float(values[within].max()),
                width_steps=within.stop - first,
                recovered=bool(len(back)),
                found_by=ways,
            )
        )
    return found


def _series(run: Run, signal: Signal) -> tuple[list[int], Values]:
    """Steps and their values; without any that are not positive, which have no logarithm."""
    pairs = [(step.step, value) for step in run.steps if (value := getattr(step, signal)) is not None and value > 0]
    return [step for step, _ in pairs], np.array([value for _, value in pairs], dtype=np.float64)


def _beside(spike: Spike, all_spikes: Sequence[Spike]) -> Spike:
    other: Signal = "grad_norm" if spike.signal == "loss" else "loss"
    own = [found for found in all_spikes if found.run == spike.run]
    return msgspec.structs.replace(spike, beside_other_signal=_near(spike, own, other))


def _near(spike: Spike, others: Sequence[Spike], signal: Signal) -> bool:
    return any(other.signal == signal and abs(other.step - spike.step) <= TOGETHER for other in others)
