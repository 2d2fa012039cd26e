"""Recipe against recipe: figures worked out by hand, what confounds, what is left out, and the three forms."""

import csv
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_runs import CPU, GPU, Maker

from stepscope.analyzers.comparability import HARMLESS, differences, settings
from stepscope.analyzers.compare import compare
from stepscope.analyzers.medians import Estimate
from stepscope.analyzers.results import Comparison, RecipeResult
from stepscope.analyzers.runs import read_run, read_runs
from stepscope.dashboards.cli import main
from stepscope.dashboards.compare import with_interval
from stepscope.record.errors import UserError
from stepscope.record.manifest import Outcome, World
from stepscope.record.recipes import recipe
from stepscope.record.telemetry import GpuSample, HostSample
from stepscope.record.units import show_ns, show_pct


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def compared(make: Maker, **options: Any) -> Comparison:
    return compare(*read_runs([make.parent]), **options)


def result(comparison: Comparison, name: str) -> RecipeResult:
    [row] = [row for row in comparison.recipes if row.recipe == name]
    return row


def codes(comparison: Comparison) -> list[str]:
    return [finding.code for finding in comparison.findings]


def sample(parent: Path, name: str, stated: str) -> None:
    """The sample run of one recipe in a folder of that name, its manifest that of another's."""
    source = Path(__file__).parent.parent / "traces" / "sample"
    shutil.copytree(source / name, parent / name)
    shutil.copy(source / stated / "run.json", parent / name / "run.json")


def test_conforms_is_read_off_the_traces(tmp_path: Path) -> None:
    for name in ("bf16", "mxtw"):
        sample(tmp_path, name, name)
    comparison = compare(*read_runs([tmp_path]))
    assert [row.conforms for row in comparison.recipes] == ["yes", "yes"]
    assert result(comparison, "mxtw").conforms_why == "mxtw: every field of the recipe was seen as stated"


def test_a_run_that_did_not_train_in_its_recipe_is_warned_of(tmp_path: Path) -> None:
    sample(tmp_path, "bf16", "bf16")
    shutil.move(tmp_path / "bf16", tmp_path / "baseline")
    sample(tmp_path, "bf16", "mxtw")
    comparison = compare(*read_runs([tmp_path]))
    assert [row.conforms for row in comparison.recipes] == ["yes", "no"]
    [finding] = [finding for finding in comparison.findings if finding.code == "recipe-contradicted"]
    assert finding.text.startswith("mxtw did not train in its recipe. bf16: the trace contradicts FP8 GEMMs, ")


def test_without_a_trace_or_with_a_broken_one_conforms_cannot_be_told(make: Maker) -> None:
    make("a")
    broken = make("b", recipe_name="mxtw")
    broken.trace_path(0, 7).write_bytes(b"no trace")
    comparison = compared(make)
    assert [row.conforms for row in comparison.recipes] == ["cannot tell", "cannot tell"]
    assert result(comparison, "bf16").conforms_why == "a: it has no trace of torch.profiler"
    assert result(comparison, "mxtw").conforms_why.startswith("b: its trace cannot be read: ")


def test_speed_and_time_saved_are_those_of_the_median_timed_step(make: Maker) -> None:
    make("a", durations=[900, 190, 200, 210, 200, 200, 200, 700])
    make("b", recipe_name="tensorwise", durations=[900, 150, 160, 170, 160, 160, 160, 700])
    row = result(compared(make), "tensorwise")
    assert row.step_time_ns is not None
    assert row.step_time_ns.median == 160
    assert row.timed_steps == 6
    assert row.speed_vs_baseline_pct is not None
    assert row.speed_vs_baseline_pct.median == pytest.approx(25.0)  # 200 / 160 − 1
    assert row.time_saved_pct is not None
    assert row.time_saved_pct.median == pytest.approx(20.0)  # 1 − 160 / 200


def test_a_step_lasts_as_long_as_its_slowest_rank_and_tokens_are_all_ranks(make: Maker) -> None:
    make("a", durations=[900, 200, 200, 200, 200])
    row = result(compared(make), "bf16")
    assert row.step_time_ns is not None
    assert row.step_time_ns.median == 200
    assert row.tokens_per_s is not None
    assert row.tokens_per_s.median == pytest.approx(70 / 200e-9)


def test_memory_is_the_largest_ranks_peak_with_its_share_of_one_gpu(make: Maker) -> None:
    make("a")
    row = result(compared(make), "bf16")
    assert (row.peak_memory_bytes, row.memory_kind, row.memory_total_bytes) == (
        21 * 10**9,
        "cuda allocator",
        80 * 10**9,
    )
    assert row.peak_memory_pct == pytest.approx(26.25)


def test_without_a_gpu_memory_is_what_all_ranks_hold_together(make: Maker) -> None:
    make("a", device=CPU)
    row = result(compared(make), "bf16")
    assert (row.peak_memory_bytes, row.memory_kind) == (2 * 10**9, "resident")


def test_gpu_use_is_weighted_by_time_within_training_and_averaged_over_devices(make: Maker) -> None:
    def reading(t_ns: int, device: int, pct: int) -> GpuSample:
        return GpuSample(t_ns=t_ns, device=device, utilization_pct=pct)

    # Training lasts from 1000 to 8200. Device 0: 50 % until 3000 (2000 ns of it inside), then 100 % (5200 ns).
    samples = [reading(500, 0, 0), reading(3000, 0, 50), reading(9000, 0, 100), reading(9000, 1, 40)]
    make("a", telemetry=samples)
    row = result(compared(make), "bf16")
    of_device_0 = (50 * 2000 + 100 * 5200) / 7200
    assert row.utilization_pct == pytest.approx((of_device_0 + 40) / 2)
    assert row.utilization_kind == "gpu"


def test_cpu_use_stands_in_only_where_there_is_no_gpu(make: Maker) -> None:
    host = [HostSample(t_ns=9000, cpu_pct=70.0)]
    make("a", telemetry=host)
    assert result(compared(make), "bf16").utilization_pct is None
    make("b", recipe_name="rowwise", device=CPU, telemetry=host)
    row = result(compared(make), "rowwise")
    assert (row.utilization_pct, row.utilization_kind) == (70.0, "cpu")


def test_losses_are_the_first_the_last_and_the_held_out_one(make: Maker) -> None:
    make("a")
    row = result(compared(make), "bf16")
    assert (row.loss_first, row.loss_last, row.eval_loss, row.eval_accuracy) == (4.5, 1.0, 1.25, 0.5)


def test_a_difference_beyond_the_recipe_is_named_and_the_word_confounded_is_said(
    make: Maker, capsys: pytest.CaptureFixture[str]
) -> None:
    make("a", config={"wrap": "whole"})
    make("b", recipe_name="mxtw", versions={"torch": "2.12.0"})
    comparison = compared(make)
    assert result(comparison, "mxtw").confounders == [
        "wrap: whole vs layer",
        "torch version: 2.13.0 vs 2.12.0",
    ]
    assert main(["compare", str(make.parent)]) == 0
    out = capsys.readouterr().out
    assert "mxtw is confounded: besides the recipe it differs from bf16 in wrap: whole vs layer" in out


def test_what_a_flag_changed_in_the_recipe_is_a_difference_beyond_it(make: Maker) -> None:
    make("a")
    changed = msgspec.structs.replace(recipe("tensorwise"), all_gather="float8")
    make("b", recipe_name="tensorwise", recipe=changed)
    [confounder] = result(compared(make), "tensorwise").confounders
    assert confounder == "all_gather instead of the recipe's: none vs float8"


@pytest.mark.parametrize("setting", sorted(HARMLESS.keys() - {"git_commit", "CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID"}))
def test_harmless_settings_may_differ(make: Maker, setting: str) -> None:
    make("a", config={setting: 1})
    make("b", recipe_name="mxtw", config={setting: 2})
    assert result(compared(make), "mxtw").confounders == []


@pytest.mark.parametrize(
    "change",
    [
        {"world": World(size=4, nodes=1, backend="nccl")},
        {"devices": [CPU, GPU]},
        {"model": {"name": "llama-1b", "parameters": 11}},
        {"data": {"sha256": "other"}},
        {"environment": {"OMP_NUM_THREADS": "3"}},
        {"config": {"lr": 1.0}},
    ],
)
def test_hardware_model_data_and_environment_confound(make: Maker, change: dict[str, Any]) -> None:
    make("a")
    make("b", recipe_name="mxtw", **change)
    assert len(result(compared(make), "mxtw").confounders) >= 1


def test_a_run_differs_from_itself_in_nothing(make: Maker) -> None:
    run = read_run(make("a"))
    assert differences([run], [run]) == []
    assert settings(run.manifest)["devices"] == "2 × NVIDIA H100"


def test_emulation_is_said_beside_every_timing(make: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    make("a")
    make("b", recipe_name="mxtw", emulated=True, emulated_why="no GPU")
    assert main(["compare", str(make.parent)]) == 0
    out = capsys.readouterr().out
    assert any(
        line.split()[0] == "mxtw" and line.split()[-1] == "emulated" for line in out.splitlines() if line.split()
    )
    assert "its step times are no speed result" in " ".join(out.split())


@pytest.mark.parametrize(
    ("outcome", "code", "counts"),
    [
        (Outcome(state="failed", message="rank 1 …"), "failed-run", 0),
        (Outcome(), "unfinished-run", 0),
        (Outcome(state="interrupted", message="stopped by SIGINT after step 8"), "interrupted-run", 1),
    ],
)
def test_runs_that_did_not_come_to_their_end_are_named(make: Maker, outcome: Outcome, code: str, counts: int) -> None:
    make("a")
    make("b", recipe_name="mxtw", outcome=outcome)
    comparison = compared(make)
    assert code in codes(comparison)
    assert len([row for row in comparison.recipes if row.recipe == "mxtw"]) == counts


def test_without_a_baseline_relative_speed_is_not_measured_and_the_reason_is_said(make: Maker) -> None:
    make("b", recipe_name="mxtw")
    comparison = compared(make)
    assert result(comparison, "mxtw").speed_vs_baseline_pct is None
    assert "no-baseline" in codes(comparison)
    assert "no-baseline" not in codes(compared(make, baseline="mxtw"))


def test_a_run_without_a_timed_step_has_no_step_time(make: Maker) -> None:
    make("a", durations=[100, 200])
    comparison = compared(make)
    assert result(comparison, "bf16").step_time_ns is None
    assert "no-timed-step" in codes(comparison)


def test_a_folder_that_is_no_run_is_left_out_and_named(make: Maker) -> None:
    make("a")
    (make.parent / "broken").mkdir()
    (make.parent / "broken" / "run.json").write_text("{")
    comparison = compared(make)
    assert [row.recipe for row in comparison.recipes] == ["bf16"]
    assert "unreadable-run" in codes(comparison)


def test_telemetry_that_cannot_be_read_costs_its_run_the_utilisation_only(make: Maker) -> None:
    folder = make("a")
    folder.telemetry_path(0).write_text("nonsense\n")
    comparison = compared(make)
    assert result(comparison, "bf16").step_time_ns is not None
    assert result(comparison, "bf16").utilization_pct is None
    assert "run-in-part" in codes(comparison)


def test_a_run_may_be_named_by_its_manifest(make: Maker) -> None:
    assert [run.name for run in read_runs([make("a").manifest_path])[0]] == ["a"]


def test_a_folder_without_runs_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run here"):
        read_runs([tmp_path])


def test_the_order_of_arguments_changes_nothing(make: Maker) -> None:
    generator = random.Random(4)
    for number in range(4):
        name = ("bf16", "mxtw")[number % 2]
        make(f"r{number}", recipe_name=name, durations=[generator.randint(150, 250) for _ in range(12)])
    paths = sorted(path for path in make.parent.iterdir())
    there, back = (compare(*read_runs(order)) for order in (paths, paths[::-1]))
    assert there == back


def test_json_and_csv_hold_raw_values_in_the_documented_shape(make: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    make("a")
    make("b", recipe_name="mxtw", emulated=True, emulated_why="no GPU")
    assert main(["compare", str(make.parent), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["baseline"]) == ("stepscope.compare/1", "bf16")
    row = found["recipes"][1]
    promised = {
        "recipe", "runs", "step_time_ns", "speed_vs_baseline_pct", "time_saved_pct", "peak_memory_bytes", "emulated",
        "confounders", "conforms",
    }  # fmt: skip
    assert promised <= row.keys()
    assert row["step_time_ns"].keys() == {"median", "ci95"}
    assert main(["compare", str(make.parent), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [line["recipe"] for line in rows] == ["bf16", "mxtw"]
    assert rows[0]["speed_vs_baseline_pct"] == ""
    assert float(rows[1]["step_time_ns"]) == 200


def test_an_interval_is_shown_with_one_unit_where_it_has_one() -> None:
    assert with_interval(Estimate(median=1e6, ci95=(9e5 * 1.2, 1.1e6)), show_ns) == "1.00 [1.08, 1.10] ms"
    assert with_interval(Estimate(median=1e6, ci95=(9e5, 1.1e6)), show_ns) == "1.00 ms [900 µs, 1.10 ms]"
    assert with_interval(Estimate(median=1e6, ci95=None), show_ns) == "1.00 ms"
    assert with_interval(None, show_pct) == "not measured"


def test_repeats_that_differ_among_themselves_are_confounded_the_baselines_too(make: Maker) -> None:
    make("a", config={"steps": 16})
    make("b", config={"steps": 2}, durations=[100, 200])
    comparison = compared(make)
    assert result(comparison, "bf16").confounders == ["repeats differ in steps: 2 and 16"]
    assert {"confounded", "no-timed-step", "single-runs"} <= set(codes(comparison))


def test_recipes_come_in_the_order_of_their_table_after_the_baseline(make: Maker) -> None:
    for name in ("mxtw", "tensorwise", "bf16", "rowwise"):
        make(name, recipe_name=name)
    assert [row.recipe for row in compared(make).recipes] == ["bf16", "tensorwise", "rowwise", "mxtw"]


def test_runs_that_come_with_the_project_are_compared_only_where_named(make: Maker) -> None:
    make("a")
    Maker(make.parent / "sample").parent.mkdir()
    Maker(make.parent / "sample")("b", recipe_name="mxtw")
    assert [row.recipe for row in compared(make).recipes] == ["bf16"]
    assert len(read_runs([make.parent / "sample"])[0]) == 1


def test_with_both_wrappings_each_recipe_is_held_against_the_baseline_in_its_own(make: Maker) -> None:
    """bf16 200 → 100 by layer; mxtw 160 → 50: precision alone gains 25 % and 100 %, layer wrapping 100 % and 220 %."""
    times = {("bf16", "whole"): 200, ("bf16", "layer"): 100, ("mxtw", "whole"): 160, ("mxtw", "layer"): 50}
    for (name, wrap), duration in times.items():
        for repeat in (1, 2):
            make(f"{name}-{wrap}-{repeat}", recipe_name=name, durations=[duration] * 8, config={"wrap": wrap})
    comparison = compared(make)
    rows = {row.name: row for row in comparison.recipes}
    assert list(rows) == ["bf16, whole", "bf16, layer", "mxtw, whole", "mxtw, layer"]
    speeds = {name: row.speed_vs_baseline_pct.median for name, row in rows.items() if row.speed_vs_baseline_pct}
    assert speeds == {"mxtw, whole": pytest.approx(25), "mxtw, layer": pytest.approx(100)}
    assert all(row.confounders == [] for row in comparison.recipes)
    effects = {(effect.recipe, effect.wrap, effect.against): effect.speed_pct.median for effect in comparison.wrapping}
    assert effects == {("bf16", "layer", "whole"): pytest.approx(100), ("mxtw", "layer", "whole"): pytest.approx(220)}


def test_where_each_recipe_ran_in_another_wrapping_it_stays_a_confounder(make: Maker) -> None:
    make("a", config={"wrap": "whole"})
    make("b", recipe_name="mxtw", config={"wrap": "layer"})
    comparison = compared(make)
    assert [(row.name, row.confounders) for row in comparison.recipes] == [
        ("bf16", []), ("mxtw", ["wrap: whole vs layer"])
    ]  # fmt: skip
    assert comparison.wrapping == []


def test_runs_of_one_name_in_two_folders_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for day in ("monday", "tuesday"):
        (tmp_path / day).mkdir()
        Maker(tmp_path / day)("bf16")
    Maker(tmp_path)("mxtw", recipe_name="mxtw")
    runs, _ = read_runs([tmp_path])
    assert sorted(run.name for run in runs) == ["monday/bf16", "mxtw", "tuesday/bf16"]
