"""Intervals of medians: what they hold, how wide they may be, and where there is none."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyzers.medians import LEAST_STEPS, Estimate, Values, change_pct, median_of

STEPS = st.lists(st.integers(100, 300), min_size=1, max_size=30)


def of(*runs: list[int]) -> Estimate:
    found = median_of([np.array(run, dtype=float) for run in runs])
    assert found is not None
    return found


def coverage(make: Callable[[], list[Values]], truth: float, trials: int = 300) -> float:
    held = 0
    for _ in range(trials):
        found = median_of(make())
        assert found is not None
        assert found.ci95 is not None
        held += found.ci95[0] <= truth <= found.ci95[1]
    return held / trials


def drifting(generator: np.random.Generator, count: int) -> Values:
    """Around 100; each step keeps six tenths of the last one's deviation."""
    noise = np.zeros(count + 20)
    for index in range(1, len(noise)):
        noise[index] = 0.6 * noise[index - 1] + generator.normal()
    return 100 + noise[20:]


def test_the_interval_of_one_run_is_its_order_statistics() -> None:
    """Nine steps: P(fewer than 2 below the median) = 10 / 512 = 2.0 %, fewer than 3: 46 / 512 = 9.0 %."""
    assert of([9, 3, 7, 1, 8, 2, 6, 4, 5]).ci95 == (2, 8)
    assert of([6, 1, 4, 2, 5, 3]).ci95 == (1, 6)


def test_under_six_steps_there_is_no_interval() -> None:
    assert of([1, 2, 3, 4, 5]) == Estimate(median=3, ci95=None)
    assert of([1, 2, 3], [4, 5]).ci95 is None
    assert LEAST_STEPS == 6
    assert change_pct(of([1] * 5), of([1] * 6)) == Estimate(median=0, ci95=None)


@pytest.mark.parametrize("count", [6, 9, 20, 200, 2000])
def test_an_interval_of_steps_holds_the_true_median_as_often_as_it_says(count: int) -> None:
    generator = np.random.default_rng(count)
    assert coverage(lambda: [generator.normal(100, 5, count)], 100) >= 0.93
    assert coverage(lambda: [generator.lognormal(0, 1, count)], 1) >= 0.93


def test_steps_that_drift_count_as_fewer() -> None:
    generator = np.random.default_rng(0)
    assert coverage(lambda: [drifting(generator, 200)], 100) >= 0.90
    shuffled = np.random.default_rng(1).permutation(100).tolist()
    assert of(shuffled).ci95 == (39, 60)
    assert of(sorted(shuffled)).ci95 == (16, 83)


@pytest.mark.parametrize("count", [3, 5, 10])
def test_an_interval_of_runs_holds_the_true_median_though_runs_differ(count: int) -> None:
    generator = np.random.default_rng(count)
    make = lambda: [generator.normal(100, 5, 20) + generator.normal(0, 3) for _ in range(count)]  # noqa: E731
    assert coverage(make, 100) >= 0.92


def test_three_runs_are_judged_by_their_medians() -> None:
    """ln 90, ln 100, ln 110: mean 4.6018, deviation 0.1004; t(2) = 4.303; so exp(4.6018 ± 4.303 · 0.1004 / √3)."""
    found = of([90] * 3, [100] * 3, [110] * 3)
    assert found.median == 100
    assert found.ci95 == pytest.approx((77.7, 127.9), abs=0.1)


def test_two_runs_span_both_medians_and_no_more_than_was_seen() -> None:
    assert of([100] * 9, [140] * 3).ci95 == (100, 140)


@given(STEPS, STEPS)
def test_with_one_run_or_two_an_interval_lies_within_the_steps_and_holds_the_median(
    one: list[int], other: list[int]
) -> None:
    for runs in ([one], [one, other]):
        found, steps = of(*runs), [value for run in runs for value in run]
        if found.ci95 is None:
            assert len(steps) < LEAST_STEPS
        else:
            assert min(steps) <= found.ci95[0] <= found.median <= found.ci95[1] <= max(steps)


def test_a_quotients_interval_holds_the_truth_and_combines_both_distances() -> None:
    """Below: √(ln(100/90)² + ln(120/100)²) = 0.2106; above: √(ln(110/100)² + ln(100/80)²) = 0.2426."""
    part, whole = Estimate(median=100, ci95=(90, 110)), Estimate(median=100, ci95=(80, 120))
    assert change_pct(part, whole).ci95 == pytest.approx(
        (100 * (np.exp(-0.21065) - 1), 100 * (np.exp(0.24264) - 1)), 1e-3
    )
    generator = np.random.default_rng(5)
    held = 0
    for _ in range(300):
        runs = [median_of([generator.normal(100, 5, 12)]) for _ in range(2)]
        assert runs[0] is not None
        assert runs[1] is not None
        ci95 = change_pct(runs[0], runs[1]).ci95
        assert ci95 is not None
        held += ci95[0] <= 0 <= ci95[1]
    assert held >= 0.93 * 300


@given(STEPS)
def test_a_group_against_itself_differs_by_nothing(values: list[int]) -> None:
    change = change_pct(of(values), of(values))
    assert change.median == 0
    assert change.ci95 is None or change.ci95[0] <= 0 <= change.ci95[1]
