"""How recipes learned: loss statistics, gaps, spikes, divergence and layers to watch, by hand."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_runs import CONFIG, GPU

from stepscope.analyzers.changes import change_of_logs
from stepscope.analyzers.fp8_layers import layer_courses, operand_courses, to_watch
from stepscope.analyzers.learning import divergences, learning
from stepscope.analyzers.loss_gap import largest_gap, loss_gaps, within
from stepscope.analyzers.loss_table import LossStatistics, loss_statistics
from stepscope.analyzers.runs import Run, WorldStep, world_steps
from stepscope.analyzers.spikes import held_against, seven_sigma, spikes_of
from stepscope.record.manifest import Manifest, Outcome, World
from stepscope.record.numerics import OperandStatistics
from stepscope.record.recipes import recipe
from stepscope.record.steps import Step


def run(
    losses: list[float | None],
    *,
    name: str = "a",
    recipe_name: str = "bf16",
    tokens: int | None = 100,
    duration: int = 10,
    grad_norms: list[float] | None = None,
    numerics: tuple[OperandStatistics, ...] = (),
    steps: list[Step] | None = None,
    **manifest: Any,
) -> Run:
    made = Manifest(
        run=name,
        recipe=recipe(recipe_name),
        emulated=False,
        config=CONFIG,
        world=World(size=1, nodes=1, backend="nccl"),
        devices=[GPU],
        model={"name": "llama-1b"},
        versions={},
        argv=[],
        started_ns=1,
        outcome=Outcome(state="completed"),
    )
    rows = steps or [
        Step(
            step=at,
            rank=0,
            start_ns=(at - 1) * duration,
            duration_ns=duration,
            loss=loss,
            tokens=tokens,
            grad_norm=grad_norms[at - 1] if grad_norms else None,
        )
        for at, loss in enumerate(losses, start=1)
    ]
    joined: tuple[WorldStep, ...] = world_steps({0: rows})
    return Run(
        name=name,
        path=Path(name),
        manifest=msgspec.structs.replace(made, **manifest),
        steps=joined,
        telemetry={},
        traces=(),
        ranks=(0,),
        numerics=numerics,
    )


def test_loss_statistics_are_those_of_the_studies_table() -> None:
    [mean, own] = loss_statistics([run([4.0, 1.0, 2.0, 3.0])])
    assert (own.max, own.min, own.average, own.final, own.points, own.ddof) == (4.0, 1.0, 2.5, 3.0, 4, 1)
    assert own.std == pytest.approx(math.sqrt(5 / 3))  # squares 2.25 + 2.25 + 0.25 + 0.25, over n − 1
    assert (mean.run, own.run) == (None, "a")


def test_a_recipes_row_is_the_mean_of_its_whole_runs() -> None:
    stopped = run([9.0], name="c", outcome=Outcome(state="interrupted"))
    mean = loss_statistics([run([4.0, 2.0]), run([6.0, 5.0], name="b"), stopped])[0]
    assert (mean.max, mean.min, mean.final, mean.points) == (5.0, 3.5, 3.5, 4)


def test_held_out_losses_have_perplexity_and_accuracy_of_the_last_evaluation() -> None:
    steps = [
        Step(step=at, rank=0, start_ns=at, duration_ns=1, eval_loss=loss, eval_accuracy=accuracy)
        for at, loss, accuracy in ((5, 2.0, 0.1), (10, math.log(3), 0.4))
    ]
    [mean, _] = loss_statistics([run([], steps=steps)])
    assert (mean.of, mean.first_step, mean.accuracy) == ("held-out", 5, 0.4)
    assert mean.perplexity == pytest.approx(3.0)


def test_a_column_that_has_slipped_is_caught() -> None:
    with pytest.raises(AssertionError):
        LossStatistics(
            of="train",
            run="study 1",
            points=9,
            max=3.1235,
            min=0.7203,
            average=0.975,
            final=0.3344,
            std=0.7612,
            first_step=1,
        )  # the study's order: its final is another table's deviation, and lies below the minimum


def test_a_loss_that_is_missing_at_the_end_leaves_no_final() -> None:
    [mean, _] = loss_statistics([run([2.0, 1.0, None])])
    assert mean.final is None
    assert mean.points == 2


def gap(runs: list[Run], baseline: list[Run], axis: str = "step") -> Any:
    return next(found for found in loss_gaps(runs, baseline) if found.at_equal == axis)


def test_the_gap_is_that_of_mean_losses_over_the_last_tenth() -> None:
    base = [5.0] * 90 + [2.0] * 10
    found = gap([run([7.0] * 90 + [2.02] * 10)], [run(base)])
    assert found.points == 11  # steps 90 to 100
    assert found.gap_pct == pytest.approx(100 * ((7 + 20.2) / (5 + 20) - 1))
    assert found.covers == "steps"
    assert found.baseline_band_pct is None


def test_of_short_runs_six_losses_are_averaged_and_fewer_have_no_interval() -> None:
    found = gap([run([2.2] * 10)], [run([2.0] * 10)])
    assert (found.points, found.gap_pct) == (6, pytest.approx(10.0))
    assert found.ci95 == (pytest.approx(10.0), pytest.approx(10.0))  # the same at every step
    short = gap([run([2.2] * 5)], [run([2.0] * 5)])
    assert (short.points, short.ci95, short.within_loose) == (5, None, "cannot tell")


def test_the_noise_of_steps_is_that_of_their_differences() -> None:
    base = [2.0 + 0.5 * (at % 3) for at in range(20)]  # noise of data, the same for both
    ratios = [1.01, 1.03] * 10
    found = gap([run([loss * ratio for loss, ratio in zip(base, ratios, strict=True)])], [run(base)])
    logs = np.log(ratios[-6:])
    reach = 2.571 * logs.std(ddof=1) / math.sqrt(6)  # Student's t of five
    low, high = found.ci95
    assert (high - low) / 2 == pytest.approx(100 * 1.02 * reach, rel=0.01)


def test_three_runs_in_all_tell_how_runs_vary_and_two_of_the_baseline_its_band() -> None:
    found = gap([run([2.02] * 10)], [run([2.0] * 10, name="b"), run([2.01] * 10, name="c")])
    assert found.covers == "runs"
    assert found.baseline_band_pct == pytest.approx(0.5)
    spread = math.sqrt((math.log(2.01 / 2.0) ** 2) / 2 / 1 * (1 + 1 / 2))
    middle = math.log(2.02) - (math.log(2.0) + math.log(2.01)) / 2
    assert found.ci95[1] == pytest.approx(100 * math.expm1(middle + 12.706 * spread))


def test_at_equal_tokens_runs_of_other_batches_meet() -> None:
    """Twice the tokens a step: its steps 6 to 10 are the other's 11 to 20."""
    large = run([3.0] * 4 + [1.5] * 6, tokens=200)
    small = run([4.0] * 8 + [1.0] * 12, name="b")
    found = gap([large], [small], "tokens")
    assert (found.until, found.points) == (2000.0, 6)
    assert found.gap_pct == pytest.approx(50.0)
    assert gap([run([2.0] * 8, tokens=None)], [small], "tokens").missing == "a step does not tell its tokens"


def test_at_equal_wall_clock_emulated_fp8_has_no_gap() -> None:
    emulated = run([2.0] * 8, emulated=True)
    found = gap([emulated], [run([2.0] * 8, name="b")], "wall clock")
    assert (found.gap_pct, found.missing) == (None, "FP8 was emulated: its times say nothing")


def test_a_gap_is_within_a_limit_only_where_all_of_its_interval_is() -> None:
    assert within(1.0, (-0.2, 0.9)) == "yes"
    assert within(1.0, (0.9, 1.1)) == "cannot tell"
    assert within(1.0, (1.1, 1.2)) == within(1.0, (-3.0, -2.0)) == "no"
    assert within(1.0, None) == "cannot tell"


def test_the_largest_gap_is_told_with_its_step() -> None:
    base = [2.0] * 60
    found = largest_gap([run([2.0] * 30 + [2.2] * 6 + [2.0] * 24)], [run(base)])
    assert found is not None
    assert (found.over, found.step) == (6, 36)
    assert found.gap_pct == pytest.approx(10.0)


def noisy(count: int, seed: int = 0, spread: float = 0.01) -> list[float]:
    return (2.0 * np.exp(spread * np.random.default_rng(seed).standard_normal(count))).tolist()


def test_a_spike_has_its_step_height_width_and_recovery() -> None:
    losses: list[float | None] = [*noisy(200)]
    losses[149:153] = [4.0, 3.5, 3.0, 2.5]
    norms = noisy(200, seed=1)
    norms[150] = 20.0
    [spike, beside], counts = spikes_of([run(losses, grad_norms=norms)])
    assert (spike.signal, spike.step, spike.peak, spike.width_steps, spike.recovered) == ("loss", 150, 4.0, 4, True)
    assert spike.level == pytest.approx(2.0, rel=0.02)
    assert spike.found_by == ["7 sigma", "robust z"]
    assert spike.beside_other_signal
    assert beside.beside_other_signal
    assert beside.step == 151
    loss = counts[0]
    assert (loss.spikes, loss.recovered, loss.judged) == (1, 1, 168)  # 32 have too few before them
    assert loss.score_pct == pytest.approx(100 * 2 / 168)  # 4.0 and 3.5; then the deviation has grown


def test_a_loss_that_falls_hides_no_spike_from_robust_z() -> None:
    losses: list[float | None] = [2 + 8 * math.exp(-at / 60) for at in range(150)]
    losses[100] = losses[100] * 1.5 if losses[100] else None
    [spike], counts = spikes_of([run(losses)])
    assert (spike.step, spike.found_by) == (101, ["robust z"])
    assert counts[0].score_pct == 0


@pytest.mark.parametrize("seed", range(5))
def test_noise_a_fall_and_rounding_make_no_spike(seed: int) -> None:
    falling = [loss * (1 + 4 * math.exp(-at / 30)) for at, loss in enumerate(noisy(400, seed))]
    rounded = [round(value, 1) for value in noisy(400, seed, spread=0.001)]
    assert spikes_of([run(falling, grad_norms=rounded)])[0] == []  # type: ignore[arg-type]


def test_a_rise_that_stays_is_one_spike_that_did_not_recover() -> None:
    losses: list[float | None] = [*noisy(300)]
    losses[200:] = [3.0] * 100
    [spike], _ = spikes_of([run(losses)])
    assert (spike.step, spike.recovered, spike.width_steps) == (201, False, 100)


def test_seven_sigma_counts_only_values_with_enough_before_them() -> None:
    values = np.array([1.0, 1.2] * 16 + [1.85, 1.75])  # mean 1.1, deviation 0.1016: the limit is 1.811
    assert np.flatnonzero(seven_sigma(values)).tolist() == [32]
    assert not seven_sigma(values[:32]).any()


def test_short_runs_have_no_count_of_spikes_and_it_is_said_why() -> None:
    _, [loss, _] = spikes_of([run([2.0] * 20)])
    assert (loss.spikes, loss.missing) == (None, "no run has more than 32 steps with one")


def test_spikes_are_shared_with_the_baseline_only_within_two_steps_of_the_same_data() -> None:
    def spiking(at: int, name: str, **settings: Any) -> Run:
        losses: list[float | None] = [*noisy(120)]
        losses[at - 1] = 5.0
        return run(losses, name=name, **settings)

    base = [spiking(60, "b")]
    found = spikes_of([spiking(62, "a"), spiking(90, "c")])
    told, counts = held_against(*found, spikes_of(base)[0])
    assert [spike.in_baseline for spike in told] == [True, False]
    assert counts[0].in_baseline == 1
    other = learning([spiking(60, "a", config=CONFIG | {"seed": 7})], base, [])
    assert other.spikes[0].in_baseline is None


def test_steps_without_a_loss_and_steps_not_recorded_are_counted() -> None:
    steps = [
        Step(step=at, rank=0, start_ns=at, duration_ns=1, loss=loss) for at, loss in ((1, 2.0), (2, None), (5, 1.0))
    ]
    found = learning([run([], steps=steps)], [], [])
    assert (found.steps_without_loss, found.steps_skipped) == (1, 2)


def test_runs_that_a_loss_ended_are_divergences_and_other_failures_are_none() -> None:
    said = "the gradient norm is inf at step 12 and training cannot go on from there; lower --lr"
    failed = run([2.0], name="x", outcome=Outcome(state="failed", message=f"rank 0: {said}"))
    other = run([2.0], name="y", outcome=Outcome(state="failed", message="the disk is full"))
    [found] = divergences([other, failed])
    assert (found.run, found.what, found.value, found.step) == ("x", "gradient norm", "inf", 12)


def statistics(step: int, layer: str, **figures: Any) -> OperandStatistics:
    return OperandStatistics(
        step=step, layer=layer, operand="input", dtype="float8_e4m3fn", granularity="tensorwise", values=100, **figures
    )


def test_layers_to_watch_say_why() -> None:
    fine = [statistics(step, f"fine{at}", amax=1.0, sqnr_db=31.0, kurtosis=3.0) for at in range(3) for step in (1, 2)]
    lines = [
        *fine,
        statistics(1, "bad", amax=1.0, sqnr_db=31.0, kurtosis=3.0, saturated_share=0.0, underflowed_share=0.0),
        statistics(2, "bad", amax=20.0, sqnr_db=24.9, kurtosis=40.0, saturated_share=0.001, underflowed_share=0.02),
    ]
    runs = [run([], numerics=tuple(lines))]
    courses = layer_courses(runs)
    [watched] = to_watch(courses)
    assert watched.watch == [
        "0.1 % saturated",
        "2 % underflowed",
        "SQNR 24.9 dB, of all layers 31.0",
        "amax 1 → 20",
        "kurtosis 3 → 40",
    ]
    [operand] = operand_courses(courses, runs)
    assert (operand.layers, operand.samples, operand.to_watch, operand.sqnr_least_db) == (4, 2, 1, 24.9)
    assert (operand.sqnr_first_db, operand.sqnr_last_db) == (31.0, 31.0)


def test_figures_that_no_sample_has_are_none() -> None:
    runs = [run([], numerics=(statistics(1, "zeros"),))]
    [course] = layer_courses(runs)
    assert course.sqnr_db is None
    assert course.watch == []
    assert operand_courses([course], runs)[0].sqnr_least_db is None


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_the_losses_are_figures_are_numbers_and_nothing_breaks(data: st.DataObject) -> None:
    value = st.one_of(st.none(), st.floats(-10, 1e308), st.floats(0.1, 10))
    runs = [
        run(
            data.draw(st.lists(value, max_size=60)),
            name=name,
            tokens=data.draw(st.sampled_from([None, 0, 100])),
            duration=data.draw(st.sampled_from([0, 10])),
        )
        for name in "abc"
    ]
    found = learning(runs[:1], runs[1:], [])
    for gap in found.gaps:
        assert gap.gap_pct is None or math.isfinite(gap.gap_pct)
        assert (gap.gap_pct is None) == (gap.missing is not None)
        if gap.ci95 is not None and gap.gap_pct is not None:
            assert gap.ci95[0] <= gap.gap_pct + 1e-6 * abs(gap.gap_pct)
            assert gap.ci95[1] >= gap.gap_pct - 1e-6 * abs(gap.gap_pct)
    for spike in found.spikes:
        assert math.isfinite(spike.level)
        assert spike.peak <= max(step.loss or 0 for step in runs[0].steps)


@pytest.mark.parametrize("losses", [[1.0, 0.0, 0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]])
def test_steps_that_do_not_advance_are_one_place_with_the_last_loss(losses: list[float]) -> None:
    runs = [run(losses, name=name, tokens=0, duration=0) for name in "ab"]
    gaps = {gap.at_equal: gap for gap in learning(runs[:1], runs[1:], []).gaps}
    for axis in ("tokens", "wall clock"):
        assert (gaps[axis].gap_pct, gaps[axis].points, gaps[axis].ci95) == (0.0, 1, None)


def test_the_change_of_single_runs_has_no_interval_and_of_three_students() -> None:
    assert change_of_logs([math.log(3)], [math.log(2)]).ci95 is None
    found = change_of_logs([math.log(3)], [math.log(2), math.log(2)])
    assert found.ci95 == (pytest.approx(50.0), pytest.approx(50.0))
