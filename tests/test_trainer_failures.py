"""Whole runs that fail: what each says in one line, and what it leaves. Stops and kills are in test_trainer_runs.py."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from stepscope.record.run import RunDir

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
SMALL = ["--model", "pico", "--seq-len", "64", "--eval-samples", "0", "--no-hints", "--run-name", "run"]
TRAINER = ["-m", "stepscope.trainer"]
ONE_RANK_FAILS = str(Path(__file__).with_name("one_rank_fails.py"))
MIB = 1 << 20


def start(program: list[str], out: Path, data: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, *program, *SMALL, "--data", str(data), "--out", str(out), *flags]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr."""
    try:
        _, stderr = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert "Traceback" not in stderr
    return process.returncode, stderr


def until_step(process: subprocess.Popen[str], run: RunDir, step: int) -> None:
    """Return once both ranks have finished the step."""
    while not all(len(run.steps().get(rank, [])) >= step for rank in (0, 1)):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("bug", "rank 1 failed with ValueError: a bug of ours"),
        pytest.param(
            "gpu-memory",
            "rank 1 ran out of GPU memory; lower --micro-batch or --seq-len, or add --activation-checkpointing",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "memory",
            "rank 1 ran out of the machine's memory; lower --micro-batch or --seq-len, or add --activation-checkp",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["bug", "gpu-memory", "memory"],
)
def test_a_rank_that_fails_is_the_cause_in_one_line_and_keeps_its_traceback(
    tmp_path: Path, qa_file: Path, kind: str, line: str
) -> None:
    code, stderr = finish(start([ONE_RANK_FAILS, kind, "1"], tmp_path, qa_file, "--steps", "9", "--no-profile"))
    run = RunDir(tmp_path / "run")
    assert code == 1
    [said] = [line for line in stderr.splitlines() if line.startswith("profile-train: ")]
    assert said.startswith(f"profile-train: {line}")
    assert said.endswith(f"; traceback in {run.error_path(1)}")
    assert run.error_path(1).read_text().startswith("Traceback (most recent call last)")
    outcome = run.manifest().outcome
    assert (outcome.state, outcome.rank, outcome.exit_code, outcome.steps) == ("failed", 1, 1, 2)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 12 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(path)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path, *, but: int) -> Path:
    """A file that leaves `but` bytes free."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(disk).free - but)
    return filler


@pytest.mark.slow
def test_a_disk_too_full_for_a_checkpoint_keeps_the_last_one_and_with_room_made_the_run_goes_on(
    disk: Path, qa_file: Path
) -> None:
    filler = fill(disk, but=5 * MIB)  # one is 3 MiB
    flags = ["--steps", "5", "--checkpoint-every", "2", "--no-profile"]
    code, stderr = finish(start(TRAINER, disk, qa_file, *flags))
    run = RunDir(disk / "run")
    assert code == 1
    assert stderr.splitlines()[-1] == (
        "profile-train: the checkpoint of step 4 could not be written (the disk is full); make room, then go on from "
        f"step 2 with --resume {run.path}"
    )
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-2"]
    assert run.manifest().outcome.state == "failed"
    filler.unlink()
    command = [sys.executable, *TRAINER, "--resume", str(run.path)]
    resumed = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert resumed.returncode == 0, resumed.stderr
    assert [step.step for step in run.steps()[0]] == [1, 2, 3, 4, 5]
    assert run.manifest().outcome.state == "completed"


@pytest.mark.slow
def test_a_full_disk_ends_traces_and_telemetry_alone_and_the_steps_with_one_line(disk: Path, qa_file: Path) -> None:
    fill(disk, but=MIB // 8)
    code, stderr = finish(start(TRAINER, disk, qa_file, "--steps", "5000", "--telemetry-period", "0.2"))
    run = RunDir(disk / "run")
    assert code == 1
    assert "torch.profiler ends here, training goes on: " in stderr
    said = stderr.splitlines()[-1]
    steps = run.steps()
    finished = min(map(len, steps.values()))
    assert finished > 9, "the trace of steps 7 to 9 did not end it"
    assert said.startswith("profile-train: step ")
    assert "could not be written down: the disk is full; make room, then start again" in said
    outcome = run.manifest().outcome
    assert (outcome.state, outcome.steps) == ("failed", finished)
    for path in run.path.glob("steps.rank*.jsonl"):
        assert path.read_bytes().endswith(b"\n"), "no line is cut"
    assert [path for path in run.path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow
def test_a_run_folder_that_goes_away_stops_the_run_with_one_line(tmp_path: Path, qa_file: Path) -> None:
    process = start(TRAINER, tmp_path, qa_file, "--steps", "5000", "--no-profile")
    run = RunDir(tmp_path / "run")
    until_step(process, run, 3)
    shutil.rmtree(run.path)
    code, stderr = finish(process)
    assert code == 1
    assert f"the run's folder {run.path} was removed or moved while step" in stderr.splitlines()[-1]
    assert not run.path.exists()


def answers_signals(process: psutil.Process) -> bool:
    """Whether a worker has come as far as to answer SIGTERM, which Python by itself does not."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_ctrl_c_during_set_up_says_that_nothing_was_recorded_and_leaves_no_folder(
    tmp_path: Path, qa_file: Path
) -> None:
    process = start(TRAINER, tmp_path / "new" / "runs", qa_file, "--steps", "5")
    while sum(answers_signals(child) for child in psutil.Process(process.pid).children()) < 2:
        assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.SIGINT)
    code, stderr = finish(process)
    assert (code, stderr) == (
        130, "profile-train: stopped by SIGINT before training began; nothing was recorded\n"
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == []
