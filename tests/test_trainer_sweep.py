"""Sweeps: which runs, in which order, with which settings; and that a failed or stopped one can be finished."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from cyclopts import App
from hypothesis import given
from hypothesis import strategies as st

from stepscope.record.errors import ConfigError, TraceError
from stepscope.record.run import RunDir, find_runs
from stepscope.record.sweep import read_sweep
from stepscope.trainer.command import main
from stepscope.trainer.config import Config, is_sweep
from stepscope.trainer.outcome import stopped
from stepscope.trainer.sweep import _next_commands, planned, settings_of
from stepscope.trainer.words import closing_words, opening_words

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
SMALL = ["--model", "pico", "--seq-len", "64", "--eval-samples", "0", "--no-profile", "--telemetry-period", "0"]


def parsed(words: list[str]) -> Config:
    app = App()

    @app.default
    def take(config: Config = Config()) -> Config:  # noqa: B008
        return config

    result = app(words, result_action="return_value", exit_on_error=False)
    assert isinstance(result, Config)
    return result


def test_runs_take_turns_and_each_repeat_begins_with_another() -> None:
    cells = planned(Config(recipe="bf16,tw,rw", repeats=3))
    assert [cell.run for cell in cells] == [
        "bf16-1", "tensorwise-1", "rowwise-1",
        "tensorwise-2", "rowwise-2", "bf16-2",
        "rowwise-3", "bf16-3", "tensorwise-3",
    ]  # fmt: skip


def test_two_wrappings_are_told_apart_by_their_runs_names() -> None:
    cells = planned(Config(recipe="bf16,mxtw", wrap="whole,layer"))
    assert [cell.run for cell in cells] == ["bf16-whole", "bf16-layer", "mxtw-whole", "mxtw-layer"]


def test_one_recipe_is_no_sweep_and_several_of_anything_is() -> None:
    assert not is_sweep(Config(recipe="mxtw"))
    assert is_sweep(Config(recipe="mxtw", repeats=2))
    assert is_sweep(Config(recipe="mxtw,bf16"))
    assert is_sweep(Config(wrap="whole,layer"))


def test_switches_of_fp8_are_left_out_for_the_recipe_that_has_none() -> None:
    config = Config(recipe="bf16,tensorwise", fp8_all_gather=True, pad_inner_dim=True)
    first, second = (settings_of(cell, config) for cell in planned(config))
    assert (first.fp8_all_gather, first.pad_inner_dim) == (None, None)
    assert (second.fp8_all_gather, second.pad_inner_dim) == (True, True)


@pytest.mark.parametrize("text", ["bf16,,mxtw", "bf16,bf16", ","])
def test_a_list_with_a_gap_or_a_double_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names separated by commas, each once"):
        is_sweep(Config(recipe=text))


_ANY_SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "recipe": st.sampled_from(["mxtw", "bf16,mxtw"]),
        "fp8_all_gather": st.booleans(),
        "pad_inner_dim": st.booleans(),
        "reshard_after_forward": st.booleans(),
        "profile": st.booleans(),
        "compile": st.booleans(),
        "hints": st.booleans(),
        "betas": st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)),
        "lr": st.floats(1e-12, 1),
        "steps": st.integers(1, 10**6),
        "data": st.sampled_from([Path("a b.jsonl"), Path("/x/y")]),
        "run_name": st.sampled_from(["x", "a name"]),
    },
)


@given(_ANY_SETTINGS)
def test_the_flags_of_settings_ask_for_these_settings(settings: dict[str, Any]) -> None:
    config = Config(**settings)
    assert parsed(config.flags()) == config
    assert Config().flags() == []


def test_values_that_begin_as_flags_do_stay_values() -> None:
    config = Config(run_name="-x", data=Path("-d.jsonl"), data_columns="--a=b")
    assert parsed(config.flags()) == config


def test_one_recipe_by_two_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="names one recipe twice"):
        planned(Config(recipe="tw,tensorwise"))


def test_commands_to_type_next_name_a_folder_with_spaces_as_one_word(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "my runs" / "a")
    run.checkpoints.mkdir(parents=True)
    said = closing_words(run, stopped(2, 3), hints=True) + "".join(_next_commands(run.path))
    assert f"profile-train --resume '{run.path}'\n" in said
    assert f"stepscope compare '{run.path}'" in said


def test_a_run_that_torchrun_launched_is_resumed_by_it(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    run.checkpoints.mkdir()
    said = [closing_words(run, stopped(15, 3), hints=True, torchrun=torchrun) for torchrun in (False, True)]
    assert said[0].endswith(f"next:\n  profile-train --resume {tmp_path}\n")
    assert said[1].endswith(f"next:\n  torchrun … -m stepscope.trainer --resume {tmp_path}\n")


@pytest.mark.parametrize(
    ("length", "words"),
    [({"steps": None, "epochs": 1.0}, ", 1 epoch, "), ({"steps": None, "epochs": 0.5}, ", 0.5 epochs, "),
     ({"steps": 1}, ", 1 step, "), ({"steps": 1200000}, ", 1200000 steps, ")],
)  # fmt: skip
def test_one_is_no_plural(tmp_path: Path, length: dict[str, object], words: str) -> None:
    manifest = RunDir(Path(__file__).parent.parent / "traces" / "sample" / "mxtw").manifest()
    manifest.config |= length
    assert words in opening_words(manifest, RunDir(tmp_path))


def test_a_dry_run_of_a_sweep_lists_its_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--recipe", "bf16,rw", "--repeats", "2", "--dry-run"]) == 0
    listed, _, settings = capsys.readouterr().out.partition("settings of bf16-1:\n")
    names = [line.partition(":")[0].strip() for line in listed.splitlines()[1:]]
    assert listed.startswith("4 runs, one after the other:\n")
    assert names == ["bf16-1", "rowwise-1", "rowwise-2", "bf16-2"]
    first = msgspec.json.decode(settings)
    assert (first["recipe"], first["seq_len"]) == ("bf16", 64)


def test_a_contradiction_in_any_run_is_refused_before_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--recipe", "bf16,rowwise", "--fp8-all-gather", "--out", str(tmp_path)]) == 2
    assert "--fp8-all-gather: recipe rowwise scales weights per row" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_workers_environment_takes_no_sweep(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert main([*SMALL, "--recipe", "bf16,mxtw"]) == 2
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    assert "a sweep launches its own workers" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["", "[]", '{"schema": "stepscope.sweep/9", "settings": {}, "cells": [], "argv": [], "started_ns": 0}']
)
def test_a_plan_that_is_none_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(TraceError) as caught:
        read_sweep(tmp_path)
    assert "\n" not in str(caught.value)


def start(*flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "stepscope.trainer", *flags]
    return subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        stdout, stderr = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, stdout, stderr


def once_training(process: subprocess.Popen[str], run: Path) -> None:
    """Return when the run has finished a step; `process` must not have ended by then."""
    while not any(path.stat().st_size for path in run.glob("steps.rank1.jsonl")):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)


@pytest.mark.slow
def test_a_run_that_fails_is_noted_the_others_go_on_and_resume_repeats_it(tmp_path: Path, qa_file: Path) -> None:
    folder = tmp_path / "s"
    flags = [*SMALL, "--data", str(qa_file), "--out", str(tmp_path), "--run-name", "s", "--steps", "25"]
    process = start(*flags, "--recipe", "bf16,tw")
    once_training(process, folder / "bf16")
    below = psutil.Process(process.pid).children(recursive=True)
    [victim] = [child for child in below if child.environ().get("LOCAL_RANK") == "1"]
    victim.send_signal(signal.SIGKILL)
    code, _, stderr = finish(process)
    assert code == 1
    assert "1 of 2 runs finished" in stderr
    assert "bf16: rank 1 was ended by SIGKILL" in stderr.strip().splitlines()[-1]
    assert [cell.state for cell in read_sweep(folder).cells] == ["failed", "completed"]

    code, stdout, stderr = finish(start("--resume", str(folder)))
    assert (code, stdout) == (0, f"{folder}\n"), stderr
    assert "[1/2] bf16" in stderr
    assert "[2/2]" not in stderr, "what has completed is not run again"
    assert [cell.state for cell in read_sweep(folder).cells] == ["completed", "completed"]
    assert [run.name for run in find_runs([tmp_path])] == ["bf16", "tensorwise"]
    assert RunDir(folder / "earlier" / "bf16").manifest().outcome.state == "failed"


@pytest.mark.slow
def test_ctrl_c_stops_a_sweep_after_a_whole_step_and_resume_goes_on_from_the_checkpoint(
    tmp_path: Path, qa_file: Path
) -> None:
    folder = tmp_path / "s"
    flags = [*SMALL, "--data", str(qa_file), "--out", str(tmp_path), "--run-name", "s", "--steps", "30"]
    process = start(*flags, "--repeats", "2", "--checkpoint-every", "10")
    once_training(process, folder / "bf16-1")
    os.killpg(process.pid, signal.SIGINT)
    code, _, stderr = finish(process)
    assert code == 130, stderr
    assert f"profile-train --resume {folder}\n" in stderr
    assert "Traceback" not in stderr
    assert [cell.state for cell in read_sweep(folder).cells] == ["interrupted", "planned"]

    code, _, stderr = finish(start("--resume", str(folder)))
    assert code == 0, stderr
    first, second = (RunDir(folder / name) for name in ("bf16-1", "bf16-2"))
    assert len(first.manifest().resumed) == 1
    assert [step.loss for step in first.steps()[0]] == [step.loss for step in second.steps()[0]]


def test_a_resumed_sweep_takes_no_other_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sweep.json").write_text('{"settings": {}, "cells": [], "argv": [], "started_ns": 0}')
    assert main(["--resume", str(tmp_path), "--steps", "5"]) == 2
    assert "leave out --steps" in capsys.readouterr().err


def test_a_config_file_may_list_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.toml"
    path.write_text('recipe = ["bf16", "mxtw"]\nmodel = "pico"\n')
    assert main(["--config", str(path), "--dry-run"]) == 0
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()[1:3]] == ["  bf16", "  mxtw"]


def test_a_run_of_a_sweep_has_the_sweeps_other_settings() -> None:
    config = Config(recipe="bf16,mxtw", repeats=2, steps=7, seed=3)
    assert settings_of(planned(config)[0], config) == replace(config, recipe="bf16", repeats=1)
