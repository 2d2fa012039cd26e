"""The price list of capturing: costs worked out by hand from pairs, and one whole list on this machine."""

import csv
import io
import json
from collections.abc import Callable

import numpy as np
import pytest

from stepscope.dashboards.cli import main
from stepscope.trainer.price import Cost, PriceList, cost_of, in_words


def listed(*costs: Cost) -> PriceList:
    return PriceList(
        device="CPU, 2 cores", recipe="mxtw", emulated=True, model="tiny", seq_len=256, micro_batch=2,
        clock="cpu time", step_ns=200_000_000, costs=list(costs),
    )  # fmt: skip


def test_a_cost_is_the_median_difference_within_pairs_however_far_the_pairs_lie_apart() -> None:
    off = np.array([100.0, 200.0, 300.0, 400.0, 500.0])
    found = cost_of("a", "every step", off + np.array([2.0, 3.0, 4.0, 3.0, 3.0]), off)
    assert (found.cost_ns, found.ci95_ns, found.resolved, found.step_pct) == (3, (2, 4), True, 1.0)


def test_a_cost_whose_interval_holds_0_is_not_resolved_and_has_no_share() -> None:
    off = np.full(6, 1e9)
    found = cost_of("a", "every step", off + np.array([-3e6, -3e6, -3e6, 3e6, 3e6, 3e6]), off)
    assert (found.cost_ns, found.resolved) == (0, False)
    text = in_words(listed(found))
    assert "not resolved [-3.00 ms, 3.00 ms]" in text
    assert "+0.0 %" not in text


def test_what_is_paid_by_itself_has_no_step_to_be_a_share_of() -> None:
    found = cost_of("a", "a window", np.array([5e6, 5e6, 6e6, 7e6, 7e6]), None)
    assert (found.cost_ns, found.resolved, found.step_pct, found.pairs) == (6_000_000, True, None, 5)


def test_a_part_that_cannot_be_measured_says_why() -> None:
    missing = Cost(part="FP8 statistics", paid="a step with them", pairs=0, missing="recipe bf16 has no FP8")
    text = in_words(listed(missing, cost_of("a", "every step", np.full(5, 3.0), np.full(5, 2.0))))
    assert "FP8 statistics: not measured: recipe bf16 has no FP8" in text
    assert text.startswith("What capturing costs a step of 200 ms CPU time: mxtw, FP8 emulated, tiny, 2 rows of 256 ")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--price", "--", "true"], "--price runs our own trainer and no other program"),
        (["--steps", "9", "--", "true"], "--steps goes with --price"),
        (["--price", "--steps", "4"], "--steps: 5 pairs or more, not 4"),
        (["--price", "--recipe", "fp3"], "there is no recipe 'fp3'"),
    ],
)
def test_misuse_costs_one_line(words: list[str], says: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", *words]) == 2
    [line] = capfd.readouterr().err.splitlines()
    assert says in line


@pytest.fixture
def small(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A list of few and small steps, as text."""

    def ask(*flags: str) -> str:
        assert main(["capture", "--price", "--model", "pico", "--seq-len", "32", "--steps", "5", *flags]) == 0
        return capfd.readouterr().out

    return ask


@pytest.mark.slow
def test_every_part_has_its_price_and_the_dear_ones_are_resolved(small: Callable[..., str]) -> None:
    found = json.loads(small("--format", "json"))
    assert (found["schema"], found["recipe"], found["model"]) == ("stepscope.price/1", "mxtw", "pico")
    costs = {cost["part"]: cost for cost in found["costs"]}
    assert list(costs) == [
        "all that watches outside of windows", "of it: ranges and phase times", "telemetry every second",
        "ranges of modules", "torch.profiler", "FP8 statistics", "memory detail",
        "opening a torch.profiler window, writing its trace", "CPU time of a telemetry reading",
    ]  # fmt: skip
    assert all(cost["missing"] is None and cost["pairs"] == 5 for cost in costs.values())
    for part in ("FP8 statistics", "memory detail"):  # both about double a step
        assert costs[part]["resolved"]
        assert costs[part]["ci95_ns"][0] > 0
        assert costs[part]["step_pct"] > 10


@pytest.mark.slow
def test_without_fp8_there_are_no_statistics_to_pay_for(small: Callable[..., str]) -> None:
    rows = {row["part"]: row for row in csv.DictReader(io.StringIO(small("--recipe", "bf16", "--format", "csv")))}
    assert rows["FP8 statistics"]["cost_ns"] == ""
    assert rows["memory detail"]["cost_ns"] != ""
