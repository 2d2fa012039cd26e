"""Whole runs in processes of their own: what a finished, an interrupted, a killed and a diverged run leave behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from stepscope.record.run import RunDir
from stepscope.record.telemetry import HostSample
from stepscope.trainer.stopping import elected

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
SMALL = ["--model", "pico", "--seq-len", "64", "--eval-samples", "4"]


def start(out: Path, data: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "stepscope.trainer", *SMALL, "--data", str(data), "--out", str(out), *flags]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        stdout, stderr = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, stdout, stderr


def only_run(out: Path) -> RunDir:
    [path] = out.iterdir()
    return RunDir(path)


def once_training(process: subprocess.Popen[str], out: Path) -> RunDir:
    """The run, once it has finished a few steps."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        files = list(out.glob("*/steps.rank1.jsonl"))
        if files and files[0].read_bytes().count(b"\n") >= 3:
            return RunDir(files[0].parent)
        time.sleep(0.05)
    raise AssertionError("no step was finished within 90 s")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, qa_file: Path) -> tuple[RunDir, str, str]:
    """A run of mxtw with everything on: its folder, its stdout and its stderr."""
    out = tmp_path_factory.mktemp("runs")
    code, stdout, stderr = finish(start(out, qa_file, "--recipe", "mxtw", "--steps", "6", "--telemetry-period", "0.2"))
    assert code == 0, stderr
    return only_run(out), stdout, stderr


def test_a_run_prints_its_folder_and_says_that_fp8_was_emulated(finished: tuple[RunDir, str, str]) -> None:
    run, stdout, stderr = finished
    assert stdout == f"{run.path}\n"
    assert "FP8 is emulated (no GPU): losses are those of FP8, times say nothing about its speed" in stderr
    assert f"stepscope compare {run.path.parent}" in stderr


def test_a_finished_runs_manifest_says_what_ran_and_how_it_ended(finished: tuple[RunDir, str, str]) -> None:
    manifest = finished[0].manifest()
    assert (manifest.outcome.state, manifest.outcome.exit_code, manifest.outcome.steps) == ("completed", 0, 6)
    assert (manifest.recipe.name, manifest.emulated, manifest.emulated_why) == ("mxtw", True, "no GPU")
    assert (manifest.world.size, manifest.world.backend) == (2, "gloo")
    assert [device.kind for device in manifest.devices] == ["cpu", "cpu"]
    assert manifest.config["seq_len"] == 64
    assert sum(linear.precision == "float8" for linear in manifest.linear_layers) == 14
    assert {linear.why for linear in manifest.linear_layers if linear.precision == "bf16"} == {"--fp8-filter lm_head"}
    assert manifest.ended_ns is not None
    assert manifest.ended_ns > manifest.started_ns
    assert {"torch", "torchao", "transformers"} <= manifest.versions.keys()


def test_every_rank_leaves_its_steps_and_one_trace(finished: tuple[RunDir, str, str]) -> None:
    run = finished[0]
    steps = run.steps()
    numbers = [[step.step for step in of_rank] for of_rank in steps.values()]
    assert (list(steps), numbers) == ([0, 1], [[1, 2, 3, 4, 5, 6]] * 2)
    assert [step.loss for step in steps[0]] == [step.loss for step in steps[1]]
    assert [step.marks for step in steps[0]] == [
        ("first",), (), ("profiled",), ("profiled",), ("profiled",), ("profiled", "eval")
    ]  # fmt: skip
    assert [path.name for path in run.traces()] == ["rank0.4.pt.trace.json.gz", "rank1.4.pt.trace.json.gz"]
    assert [path.name for path in run.path.iterdir() if path.name.startswith((".", "log", "error"))] == []


def test_telemetry_without_a_gpu_is_the_hosts_and_named_so(finished: tuple[RunDir, str, str]) -> None:
    [samples] = finished[0].telemetry().values()
    assert {type(sample).__name__ for sample in samples} == {"SamplerNote", "HostSample"}
    resident = [sample.job_rss_bytes for sample in samples if isinstance(sample, HostSample)]
    assert resident[-1] is not None
    assert resident[-1] > 300 << 20, "two ranks with torch loaded"


@pytest.mark.parametrize("signum", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_ctrl_c_ends_the_run_after_a_whole_step_and_keeps_it(
    tmp_path: Path, qa_file: Path, signum: signal.Signals
) -> None:
    process = start(tmp_path, qa_file, "--steps", "5000", "--profile-wait", "1")
    run = once_training(process, tmp_path)
    process.send_signal(signum)
    code, _, stderr = finish(process)
    assert code == 128 + signum, stderr
    steps = run.steps()
    outcome = run.manifest().outcome
    assert outcome.state == "interrupted"
    assert outcome.message == f"stopped by {signum.name} after step {len(steps[0])}"
    assert len(steps[0]) == len(steps[1]) == outcome.steps
    assert "Traceback" not in stderr


def test_ranks_that_heard_different_signals_agree_on_one_of_them() -> None:
    assert elected([0, 0, 0]) == 0
    assert elected([0, 3, 1]) == signal.SIGTERM
    assert elected([1, 1, 0]) == signal.SIGINT


@pytest.mark.slow
def test_workers_whose_launcher_is_killed_finish_the_step_and_end(tmp_path: Path, qa_file: Path) -> None:
    process = start(tmp_path, qa_file, "--steps", "2000", "--no-profile", "--checkpoint-every", "1000")
    run = once_training(process, tmp_path)
    workers = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
    outcome = run.manifest().outcome
    assert (outcome.state, outcome.exit_code) == ("interrupted", 129)
    assert outcome.message == f"stopped by SIGHUP after step {outcome.steps}"
    assert len(list(run.checkpoints.glob("step-*"))) == 1


def test_a_killed_worker_is_named_and_what_was_recorded_stays(tmp_path: Path, qa_file: Path) -> None:
    process = start(tmp_path, qa_file, "--steps", "5000", "--no-profile")
    run = once_training(process, tmp_path)
    [victim] = [child for child in psutil.Process(process.pid).children() if child.environ().get("LOCAL_RANK") == "1"]
    victim.send_signal(signal.SIGKILL)
    code, _, stderr = finish(process)
    assert code == 1
    last_line = stderr.strip().splitlines()[-1]
    assert last_line.startswith("profile-train: rank 1 was ended by SIGKILL")
    assert str(run.path) in last_line
    assert "Traceback" not in stderr
    outcome = run.manifest().outcome
    assert (outcome.state, outcome.rank) == ("failed", 1)
    assert outcome.steps is not None
    assert outcome.steps >= 3
    assert psutil.Process().children() == []


@pytest.mark.slow
def test_a_diverging_run_stops_with_the_reason_in_one_line(tmp_path: Path, qa_file: Path) -> None:
    code, _, stderr = finish(start(tmp_path, qa_file, "--steps", "20", "--lr", "1e30", "--no-profile"))
    assert code == 1
    assert "is nan at step" in stderr.strip().splitlines()[-1]
    assert "Traceback" not in stderr
    run = only_run(tmp_path)
    assert run.manifest().outcome.state == "failed"
    norms = [step.grad_norm for steps in run.steps().values() for step in steps]
    assert norms
    assert None not in norms, "a step whose update made the weights no numbers counts as none, and gets no checkpoint"


@pytest.mark.slow
def test_the_same_module_runs_under_torchrun(tmp_path: Path, qa_file: Path) -> None:
    flags = [*SMALL, "--data", str(qa_file), "--out", str(tmp_path), "--steps", "2", "--no-profile"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    done = subprocess.run(
        [*command, "stepscope.trainer", *flags], env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    run = only_run(tmp_path)
    assert done.stdout == f"{run.path}\n"
    assert run.manifest().world.size == 2
    assert sorted(run.steps()) == [0, 1]


@pytest.mark.slow
def test_a_run_of_epochs_has_the_steps_that_its_data_make(tmp_path: Path, qa_file: Path) -> None:
    # 120 examples less 4 held out, 2 processes with 2 rows a step: 0.1 × 116 / 4 = 2.9 steps.
    code, _, stderr = finish(start(tmp_path, qa_file, "--epochs", "0.1", "--profile-active", "1"))
    assert code == 0, stderr
    run = only_run(tmp_path)
    manifest = run.manifest()
    assert (manifest.config["steps"], manifest.config["epochs"], manifest.outcome.steps) == (3, None, 3)
    assert (manifest.config["profile_wait"], manifest.data["epochs"]) == (1, 0.1034)
    assert "0.1 epochs" in stderr
    assert "step 3/3" in stderr
    steps = run.steps()
    assert [len(of_rank) for of_rank in steps.values()] == [3, 3]
    assert [step.lr for step in steps[0]] == pytest.approx([1e-3, 7.5e-4, 2.5e-4])
