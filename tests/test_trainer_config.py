"""What `profile-train` refuses and what it fills in, from settings and the hardware, without training."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from stepscope.profiling.schedule import recording_ranks
from stepscope.record.errors import ConfigError
from stepscope.record.recipes import Cast, recipe
from stepscope.trainer.config import Config
from stepscope.trainer.hardware import Hardware
from stepscope.trainer.recording import schedule
from stepscope.trainer.resolve import check_recipe, resolved, resolved_recipe, with_steps

CPU = Hardware(gpus=0, capability=None, cores=2)


HOPPER = Hardware(gpus=4, capability=(9, 0), cores=64)


AMPERE = Hardware(gpus=4, capability=(8, 0), cores=64)


@pytest.fixture
def asked(qa_file: Path) -> Config:
    return Config(data=qa_file)


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        ({"recipe": "fp4"}, "--recipe"),
        ({"recipe": "rowwise", "fp8_all_gather": True}, "--fp8-all-gather"),
        ({"recipe": "rowwise_with_gw_hp", "fp8_all_gather": True}, "--fp8-all-gather"),
        ({"recipe": "bf16", "fp8_all_gather": True}, "--fp8-all-gather"),
        ({"recipe": "bf16", "pad_inner_dim": True}, "--pad-inner-dim"),
        ({"recipe": "tensorwise", "seq_len": 251, "micro_batch": 1}, "--seq-len"),
        ({"recipe": "mxtw", "seq_len": 251, "micro_batch": 1, "pad_inner_dim": False}, "--seq-len"),
        ({"warmup_steps": 2, "warmup_ratio": 0.1}, "--warmup-ratio"),
        ({"warmup_ratio": 1.5}, "--warmup-ratio"),
        ({"steps": 5, "warmup_steps": 6}, "--warmup-steps"),
        ({"steps": 0}, "--steps"),
        ({"steps": 5, "epochs": 1.0}, "--epochs"),
        ({"epochs": 0.0}, "--epochs"),
        ({"lr": 0.0}, "--lr"),
        ({"lr": float("nan")}, "--lr"),
        ({"betas": (0.9, 1.0)}, "--betas"),
        ({"telemetry_period": -1.0}, "--telemetry-period"),
        ({"telemetry_period": 0.1}, "--telemetry-period: drivers read GPUs no more than six times a second"),
        ({"data": Path("nowhere.jsonl")}, "--data"),
        ({"model": "./nowhere"}, "--model"),
        ({"run_name": "a/b"}, "--run-name"),
        ({"run_name": ".."}, "--run-name"),
        ({"run_name": "a\nb"}, "--run-name"),
        ({"run_name": "a\0b"}, "--run-name"),
        ({"run_name": "é" * 101}, "--run-name"),
        ({"seed": 2**63}, "--seed: must be 1.09951e+12 or less"),
        ({"epochs": 1e308}, "--epochs"),
        ({"profile_limit": 1e308}, "--profile-limit"),
        ({"profile_limit": 0.0}, "--profile-limit: must be more than 0"),
        ({"telemetry_period": 1e300}, "--telemetry-period"),
        ({"profile_ranks": "7"}, "--profile-ranks"),
        ({"profile_ranks": "-1"}, "--profile-ranks"),
        ({"steps": 5, "profile_wait": 4}, "--profile-wait"),
        ({"steps": 5, "profile_active": 9}, "--profile-active"),
        ({"steps": 1}, "--no-profile"),
        ({"module_ranges": True, "compile": True}, "--module-ranges"),
        ({"memory_detail": 2, "compile": True}, "--memory-detail"),
        ({"profile_at": "3-5"}, "--profile-at"),
        ({"profile_at": "3:5", "steps": 4}, "--profile-at"),
        ({"profile_at": "3:5", "profile_wait": 2}, "--profile-at"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_the_name_of_its_flag(
    asked: Config, change: dict[str, object], flag: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        resolved(replace(asked, **change), CPU, {})  # type: ignore[arg-type]
    assert flag in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"recipe": "mxtw", "seq_len": 251, "micro_batch": 1},
        {"recipe": "tensorwise", "seq_len": 251, "micro_batch": 1, "pad_inner_dim": True},
        {"recipe": "rowwise_with_gw_hp", "seq_len": 251, "micro_batch": 1},
        {"recipe": "bf16", "seq_len": 251, "micro_batch": 1},
        {"recipe": "tensorwise", "seq_len": 8, "micro_batch": 2},
        {"recipe": "tw", "fp8_all_gather": True},
        {"steps": 1, "profile": False},
    ],
)
def test_a_setting_that_only_looks_like_a_contradiction_runs(asked: Config, change: dict[str, object]) -> None:
    resolved(replace(asked, **change), CPU, {})  # type: ignore[arg-type]


def test_operands_of_one_gemm_must_both_be_fp8_or_neither() -> None:
    row = msgspec.structs.replace(recipe("tensorwise"), input_for_grad_weight=Cast("bf16"))
    with pytest.raises(ConfigError, match="grad_weight"):
        check_recipe(row, tokens=16)


def test_an_operand_has_one_dtype_in_both_of_its_gemms() -> None:
    row = msgspec.structs.replace(recipe("tensorwise"), weight_for_grad_input=Cast("e5m2", "tensorwise"))
    with pytest.raises(ConfigError, match="weight is cast to e4m3 in one GEMM and e5m2"):
        check_recipe(row, tokens=16)


def test_defaults_follow_the_hardware_and_the_weights(asked: Config) -> None:
    on_cpu, on_gpus = resolved(asked, CPU, {}), resolved(asked, HOPPER, {})
    assert (on_cpu.model, on_cpu.seq_len, on_cpu.nproc, on_cpu.lr) == ("tiny", 256, 2, 1e-3)
    assert (on_gpus.model, on_gpus.seq_len, on_gpus.nproc, on_gpus.lr) == ("llama-1b", 2048, 4, 1e-3)
    assert resolved(replace(asked, model="someone/llama"), CPU, {}).lr == 2e-5


def test_more_processes_than_gpus_are_refused_and_on_a_cpu_are_not(asked: Config) -> None:
    with pytest.raises(ConfigError, match="--nproc: 5 processes need as many GPUs, and 4 are visible"):
        resolved(replace(asked, nproc=5), HOPPER, {})
    assert resolved(replace(asked, nproc=5), CPU, {}).nproc == 5


def test_under_torchrun_the_world_is_torchruns(asked: Config) -> None:
    launched = {"RANK": "0", "WORLD_SIZE": "8", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    assert resolved(asked, CPU, launched).nproc == 8
    with pytest.raises(ConfigError, match="--nproc"):
        resolved(replace(asked, nproc=2), CPU, launched)


@pytest.mark.parametrize(
    ("steps", "window"),
    [(2, (0, 1)), (3, (1, 1)), (4, (1, 2)), (5, (1, 3)), (8, (4, 3)), (20, (5, 3)), (1000, (5, 3))],
)
def test_the_profilers_window_fits_the_run(asked: Config, steps: int, window: tuple[int, int]) -> None:
    config = resolved(replace(asked, steps=steps), CPU, {})
    assert (config.profile_wait, config.profile_active) == window


def test_a_warm_up_ratio_becomes_steps(asked: Config) -> None:
    assert resolved(replace(asked, steps=40), CPU, {}).warmup_steps == 4
    assert resolved(replace(asked, steps=40, warmup_ratio=0.25), CPU, {}).warmup_steps == 10
    assert resolved(replace(asked, steps=40, warmup_steps=0), CPU, {}).warmup_steps == 0


@pytest.mark.parametrize(
    ("epochs", "rows", "steps"),
    [(1, 100, 25), (2, 100, 50), (1, 101, 26), (0.5, 100, 13), (0.28, 100, 7), (0.01, 100, 1)],
)
def test_epochs_become_steps_of_the_total_batch_the_last_one_filled_up(
    asked: Config, epochs: float, rows: int, steps: int
) -> None:
    before = resolved(replace(asked, epochs=epochs, profile=False), CPU, {})
    assert (before.steps, before.warmup_steps) == (None, None)
    config = with_steps(before, rows=rows, rows_per_step=4)
    assert (config.steps, config.epochs, config.warmup_steps) == (steps, None, round(steps / 10))


def test_what_depends_on_the_steps_is_settled_with_them(asked: Config) -> None:
    before = resolved(replace(asked, epochs=1.0, warmup_ratio=0.25), CPU, {})
    config = with_steps(before, rows=40, rows_per_step=5)
    assert (config.steps, config.warmup_steps, config.warmup_ratio) == (8, 2, None)
    assert (config.profile_wait, config.profile_active) == (4, 3)
    with pytest.raises(ConfigError, match="--warmup-steps: 9 is more than the 8 steps of the run"):
        with_steps(replace(before, warmup_steps=9), rows=40, rows_per_step=5)
    with pytest.raises(ConfigError, match="--no-profile"):
        with_steps(before, rows=5, rows_per_step=5)


def test_a_resumed_runs_own_warm_up_is_not_laid_to_a_flag_that_nobody_gave(asked: Config) -> None:
    with pytest.raises(ConfigError, match="--steps: traces/a has 40 steps of warm-up, more than the 25") as refused:
        resolved(replace(asked, resume=Path("traces/a"), steps=25, warmup_steps=40), CPU, {})
    assert "--warmup-steps" not in str(refused.value)


def test_steps_that_were_given_stay_as_they_are(asked: Config) -> None:
    config = resolved(replace(asked, steps=7), CPU, {})
    assert with_steps(config, rows=1000, rows_per_step=1) == config
    assert resolved(asked, CPU, {}).steps == 20


def test_flags_override_the_recipes_row() -> None:
    gathered = resolved_recipe(Config(recipe="tensorwise", fp8_all_gather=True))
    assert (gathered.all_gather, gathered.precompute_scales) == ("float8", True)
    plain = resolved_recipe(Config(recipe="mxtw", fp8_all_gather=False, pad_inner_dim=False))
    assert (plain.all_gather, plain.precompute_scales, plain.pad_inner_dim) == ("bf16", False, False)


def test_fp8_is_emulated_where_the_hardware_has_none_and_the_reason_is_given() -> None:
    tensorwise, microscaled = recipe("tensorwise"), recipe("mxfp8")
    assert CPU.why_emulated(recipe("bf16")) is None
    assert CPU.why_emulated(tensorwise) == "no GPU"
    assert AMPERE.why_emulated(tensorwise) == "the GPU's compute capability is 8.0; tensorwise needs 8.9 or more"
    assert HOPPER.why_emulated(tensorwise) is None
    assert HOPPER.why_emulated(microscaled) == "the GPU's compute capability is 9.0; mxfp8 needs 10.0 or more"
    assert Hardware(gpus=8, capability=(10, 0), cores=64).why_emulated(microscaled) is None


def test_of_many_ranks_the_first_of_each_machine_is_recorded() -> None:
    assert recording_ranks(None, world=8, local_world=4) == set(range(8))
    assert recording_ranks(None, world=16, local_world=4) == {0, 4, 8, 12}
    assert recording_ranks("all", world=16, local_world=4) == set(range(16))
    assert recording_ranks("0, 3", world=8, local_world=4) == {0, 3}


@pytest.mark.parametrize("text", ["", "8", "-1", "0,,1", "some"])
def test_ranks_that_there_are_not_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--profile-ranks"):
        recording_ranks(text, world=8, local_world=4)


def test_spans_of_steps_are_recorded_where_they_are_whatever_the_run_resumed_from(asked: Config) -> None:
    config = resolved(replace(asked, profile_at="3:4,9", steps=10), CPU, {})
    assert schedule(config, done=5).spans == ((3, 4), (9, 9))
    assert schedule(resolved(replace(asked, profile_active=2, profile_wait=1), CPU, {}), done=5).spans == ((8, 9),)
