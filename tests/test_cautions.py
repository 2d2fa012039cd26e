"""What stands against a comparison: few steps, few runs, other models, other programs, other processes."""

import json
from pathlib import Path
from typing import Any

import pytest
from made_runs import Maker

from stepscope.analyzers.comparability import differences, shortened
from stepscope.analyzers.compare import compare
from stepscope.analyzers.other_load import other_load_pct
from stepscope.analyzers.results import Comparison
from stepscope.analyzers.runs import read_run, read_runs
from stepscope.dashboards.cli import main
from stepscope.record.manifest import Outcome
from stepscope.record.telemetry import HostSample

FAILED = Outcome(state="failed", message="rank 1 ended with exit code 1", exit_code=1)


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def compared(make: Maker) -> Comparison:
    return compare(*read_runs([make.parent]))


def said(make: Maker, code: str) -> list[str]:
    return [finding.text for finding in compared(make).findings if finding.code == code]


def model(name: str) -> dict[str, Any]:
    return {"model": {"name": name, "parameters": len(name), "hidden_size": len(name)}}


def test_too_few_steps_for_an_interval_are_counted(make: Maker) -> None:
    make("a", durations=[200] * 6)  # the first and the last one are marked
    assert said(make, "few-steps") == ["bf16 has no interval: too few timed steps: 4; 6 are needed. Train longer."]
    [row] = compared(make).recipes
    assert row.step_time_ns is not None
    assert row.step_time_ns.ci95 is None


def test_where_counts_are_mixed_the_recipes_of_one_run_and_of_two_are_named(make: Maker) -> None:
    for name, runs in (("bf16", 3), ("tensorwise", 1), ("mxtw", 2)):
        for repeat in range(runs):
            make(f"{name}-{repeat}", recipe_name=name)
    assert said(make, "single-runs") == [
        "One run of tensorwise: its interval covers the noise of steps, not that between runs. Repeat each to know "
        "more."
    ]
    assert said(make, "two-runs")[0].startswith("Two runs of mxtw: the interval spans both runs' medians")


def test_runs_of_other_models_have_rows_and_baselines_of_their_own(make: Maker) -> None:
    for name, duration in (("tiny", 100), ("large", 400)):
        make(f"bf16-{name}", durations=[duration] * 9, **model(name))
        make(f"mxtw-{name}", recipe_name="mxtw", durations=[duration // 2] * 9, **model(name))
    rows = compared(make).recipes
    assert [(row.name, row.runs) for row in rows] == [
        ("bf16, large", 1), ("mxtw, large", 1), ("bf16, tiny", 1), ("mxtw, tiny", 1)
    ]  # fmt: skip
    speeds = [row.speed_vs_baseline_pct.median for row in rows if row.speed_vs_baseline_pct]
    assert speeds == [pytest.approx(100), pytest.approx(100)]
    assert all(row.confounders == [] for row in rows)


def test_a_model_without_a_baseline_of_its_own_has_no_relative_speed(make: Maker) -> None:
    make("a", **model("tiny"))
    make("b", recipe_name="mxtw", **model("large"))
    assert [row.speed_vs_baseline_pct for row in compared(make).recipes] == [None, None]
    assert said(make, "no-baseline") == [
        "There is no run of bf16 with large: speed against it is not measured. Train one, or name another --baseline."
    ]


def test_what_follows_from_the_model_is_no_difference_of_its_own(make: Maker) -> None:
    runs = [read_run(make(name, **model(name))) for name in ("tiny", "large")]
    assert [difference.text for difference in differences(runs[:1], runs[1:])] == ["model: tiny vs large"]


def test_a_captured_program_tells_no_settings_and_that_is_one_difference(make: Maker) -> None:
    trained, captured = read_run(make("a")), make("b", recipe_name="mxtw")
    manifest = captured.manifest()
    manifest.config.clear()
    manifest.model.clear()
    captured.write_manifest(manifest)
    assert [found.text for found in differences([trained], [read_run(captured)])] == ["settings: told vs not told"]


def test_a_long_list_of_differences_names_what_matters_most_and_counts_the_rest() -> None:
    texts = [f"s{number}: 1 vs 2" for number in range(8)] + ["steps: 3 vs 4", "seq_len: 5 vs 6"]
    assert shortened(texts) == (
        "seq_len: 5 vs 6; steps: 3 vs 4; s0: 1 vs 2; s1: 1 vs 2; s2: 1 vs 2; and 5 more (--format json has all)"
    )
    assert "more" not in shortened(texts[:6])


def test_differences_among_repeats_and_from_the_baseline_are_told_apart(make: Maker) -> None:
    make("a", config={"steps": 24})
    for repeat, steps in enumerate((20, 24)):
        make(f"b{repeat}", recipe_name="mxtw", config={"steps": steps, "lr": 1.0})
    assert said(make, "confounded") == [
        "mxtw is confounded: its repeats differ in steps: 20 and 24. "
        "Besides the recipe it differs from bf16 in lr: none vs 1.0."
    ]


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_failed_runs_alone_are_one_line_and_exit_code_1(
    make: Maker, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    make("a", outcome=FAILED)
    assert main(["compare", str(make.parent), "--format", form]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "no run can be compared. a is left out: it failed (rank 1 ended with exit code 1)." in shown.err
    assert len(shown.err.splitlines()) == 1


def test_a_baseline_that_failed_is_said_to_be_there(make: Maker) -> None:
    make("a", outcome=FAILED)
    make("b", recipe_name="mxtw")
    assert said(make, "no-baseline")[0].startswith("No run of bf16 counts (a): speed against it is not measured.")


def test_what_other_processes_used_during_timed_steps_is_a_warning_from_a_tenth_on(make: Maker) -> None:
    """Steps 2 to 7 start at 2000, 3000, … and last 200 ns. Others have 30 % in the first three, 10 % in the rest."""
    samples = [
        HostSample(t_ns=1900),
        HostSample(t_ns=4900, cpu_pct=80.0, job_cpu_pct=50.0),
        HostSample(t_ns=7900, cpu_pct=60.0, job_cpu_pct=50.0),
        HostSample(t_ns=9900, cpu_pct=100.0, job_cpu_pct=0.0),  # in the last step, which evaluates
    ]
    run = read_run(make("a", telemetry=samples))
    assert other_load_pct(run) == pytest.approx(20)
    assert said(make, "other-load")[0].startswith("a: other processes used 20 % of the machine's CPUs")
    assert other_load_pct(read_run(make("b", telemetry=[HostSample(t_ns=2500, cpu_pct=90.0)]))) is None
    quiet = [HostSample(t_ns=1900), HostSample(t_ns=9000, cpu_pct=59.0, job_cpu_pct=50.0)]
    make("c", telemetry=quiet)
    assert len(said(make, "other-load")) == 1


def test_time_saved_has_an_interval_and_means_over_runs_are_said(
    make: Maker, capsys: pytest.CaptureFixture[str]
) -> None:
    for repeat in range(2):
        make(f"a{repeat}", durations=[180, 190, 200, 210, 200, 190, 200, 210, 200])
    make("b", recipe_name="mxtw", durations=[90, 95, 100, 105, 100, 95, 100, 105, 100])
    assert main(["compare", str(make.parent)]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if line.startswith(" mxtw"))
    assert "50.0 [" in row
    assert "the mean of a recipe's runs" in out


def test_on_80_columns_nothing_is_wider_and_all_numbers_are_whole(
    make: Maker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make("a")
    make("b", recipe_name="rowwise_with_gw_hp", emulated=True, emulated_why="no GPU", config={"wrap": "whole"})
    assert main(["compare", str(make.parent)]) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    for command in (["compare", str(make.parent)], ["recipes"], ["recipes", "mxtw"]):
        assert main(command) == 0
        narrow = capsys.readouterr().out
        assert max(map(len, narrow.splitlines())) <= 80
        if command[0] == "compare":
            assert set(wide.replace("─", "").split()) == set(narrow.replace("─", "").split())
    assert main(["compare", str(make.parent), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["recipes"][0]["model"] is None
