"""The Slurm files, run with stand-ins for sbatch, srun, scontrol and scancel: what torchrun gets, how a stop ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepscope.record.run import RunDir
from stepscope.trainer.checkpoints import all_checkpoints

SLURM = Path(__file__).parent.parent / "slurm"
TEMPLATE = SLURM / "profile-train.sbatch"
STAND_INS = {
    # Runs one task, here. A signal it gets itself is fatal to the task, as with Slurm's own.
    "srun": """echo "$@" > srun.args
while [ "${1#--}" != "$1" ]; do shift; done
"$@" & echo $! > task.pid
trap 'kill -KILL $(cat task.pid); exit 137' TERM
wait $!""",
    "scontrol": """echo "$@" >> scontrol.args
[ "$1" = requeue ] || printf "%s\\n" node-07 node-08""",
    # Signals the step's tasks: neither srun nor the batch script.
    "scancel": """echo "$@" > scancel.args
kill -TERM $(cat task.pid)""",
    "sbatch": """printf "%s\\n" "$@" > sbatch.args""",
}
RECORDING_TORCHRUN = """printf '%s\\n' "$@" > torchrun.args
echo "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT" > torchrun.patience
trap 'mkdir -p traces/train-4711/checkpoints/step-3; exit 1' TERM
touch torchrun.started
[ -z "$HOLD" ] || while :; do sleep 0.05; done"""


def slurm(folder: Path, torchrun: str, **variables: str) -> dict[str, str]:
    """The environment of a job's batch script in `folder`, with stand-ins for Slurm's commands on PATH."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, body in (STAND_INS | {"torchrun": torchrun}).items():
        (bin_folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (bin_folder / name).chmod(0o755)
    job = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURM_JOB_NUM_NODES": "2", "SLURM_GPUS_ON_NODE": "4"}
    job |= {"SLURM_JOB_NODELIST": "node-[07-08]", "SLURM_CPUS_PER_TASK": "32", "HOLD": ""}
    path = f"{bin_folder}:{os.environ['PATH']}"
    return os.environ | {"CUDA_VISIBLE_DEVICES": "", "PATH": path} | job | variables


def batch(folder: Path, environment: dict[str, str], *flags: str) -> subprocess.Popen[str]:
    command = ["bash", str(TEMPLATE), *flags]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stdout."""
    stdout, _ = process.communicate(timeout=120)
    return process.returncode, stdout


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def once(condition: Path, process: subprocess.Popen[str]) -> None:
    """Return when the file is there."""
    while not condition.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def test_the_batch_script_is_bash_and_its_options_are_those_of_4_gpus_a_node() -> None:
    assert subprocess.run(["bash", "-n", str(TEMPLATE)], check=False).returncode == 0
    options = [line.removeprefix("#SBATCH ") for line in lines(TEMPLATE) if line.startswith("#SBATCH")]
    assert {"--gpus-per-node=4", "--ntasks-per-node=1", "--signal=B:TERM@120", "--requeue"} <= set(options)


@pytest.mark.parametrize(
    ("name", "nodes", "preset"),
    [
        ("1-node", "1", "study-1node"),
        ("4-nodes", "4", "study-multinode-bs32"),
        ("8-nodes", "8", "study-multinode-bs64"),
    ],
)
def test_each_ready_file_submits_its_preset_on_its_nodes(tmp_path: Path, name: str, nodes: str, preset: str) -> None:
    command = ["sh", str(SLURM / f"{name}.sh"), "--recipe", "mxtw"]
    subprocess.run(command, cwd=tmp_path, env=slurm(tmp_path, ""), check=True)
    assert lines(tmp_path / "sbatch.args") == [
        "--nodes", nodes, str(TEMPLATE), "--preset", preset, "--recipe", "mxtw"
    ]  # fmt: skip


def test_torchrun_meets_on_the_first_node_and_gets_the_flags_as_they_were_given(tmp_path: Path) -> None:
    process = batch(tmp_path, slurm(tmp_path, RECORDING_TORCHRUN), "--data", "my data.jsonl", "--steps", "9")
    assert ended(process)[0] == 0
    assert lines(tmp_path / "torchrun.args") == [
        "--nnodes", "2", "--nproc-per-node", "4", "--rdzv-id", "4711",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", "node-07:24711", "-m", "stepscope.trainer",
        "--data", "my data.jsonl", "--steps", "9", "--out", "traces", "--run-name", "train-4711",
    ]  # fmt: skip
    assert "--cpus-per-task=32" in (tmp_path / "srun.args").read_text()
    assert lines(tmp_path / "torchrun.patience") == ["600"]
    assert lines(tmp_path / "scontrol.args") == ["show hostnames node-[07-08]"], "and nothing is queued again"


def test_a_run_named_by_hand_is_left_alone(tmp_path: Path) -> None:
    assert ended(batch(tmp_path, slurm(tmp_path, RECORDING_TORCHRUN), "--resume", "traces/mine"))[0] == 0
    assert lines(tmp_path / "torchrun.args")[-2:] == ["--resume", "traces/mine"]


def test_a_stop_reaches_torchrun_and_the_job_is_queued_again_and_resumes(tmp_path: Path) -> None:
    process = batch(tmp_path, slurm(tmp_path, RECORDING_TORCHRUN, HOLD="yes"), "--steps", "9")
    once(tmp_path / "torchrun.started", process)
    process.send_signal(signal.SIGTERM)
    code, stdout = ended(process)
    assert code == 1
    assert "queued again" in stdout
    assert lines(tmp_path / "scancel.args") == ["--signal=TERM 4711"]
    assert lines(tmp_path / "scontrol.args")[-1] == "requeue 4711"
    assert ended(batch(tmp_path, slurm(tmp_path, RECORDING_TORCHRUN), "--steps", "9"))[0] == 0
    assert lines(tmp_path / "torchrun.args")[-2:] == ["--resume", "traces/train-4711"]


@pytest.mark.slow
def test_a_stop_reaches_the_workers_which_checkpoint_and_the_requeued_job_finishes_the_run(
    tmp_path: Path, qa_file: Path
) -> None:
    here = 'set -- "${@/node-07:*/127.0.0.1:0}"; ' + f'exec {sys.executable} -m torch.distributed.run "$@"'
    environment = slurm(tmp_path, here, SLURM_JOB_NUM_NODES="1", SLURM_GPUS_ON_NODE="2", OMP_NUM_THREADS="1")
    small = ["--model", "pico", "--seq-len", "64", "--eval-samples", "0", "--no-profile", "--data", str(qa_file)]
    process = batch(tmp_path, environment, *small, "--steps", "60", "--checkpoint-every", "1000")
    run = RunDir(tmp_path / "traces" / "train-4711")
    while not (run.steps_path(1).exists() and run.steps_path(1).stat().st_size):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 1
    [checkpoint] = all_checkpoints(run.checkpoints).values()
    outcome = run.manifest().outcome
    assert (outcome.state, outcome.steps, outcome.exit_code) == ("interrupted", checkpoint.step, 128 + signal.SIGTERM)
    assert ended(batch(tmp_path, environment))[0] == 0
    assert run.manifest().outcome.steps == 60
