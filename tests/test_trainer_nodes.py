"""Several machines, stood in for by one torchrun each on loopback, with working directories of their own."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from stepscope.record.run import RunDir
from stepscope.trainer.place import place

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
SMALL = ["--model", "pico", "--seq-len", "64", "--eval-samples", "4", "--no-profile"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]

Nodes = list[subprocess.Popen[str]]


def start(tmp_path: Path, data: Path, *flags: str) -> Nodes:
    """Two nodes of one rank; each has its own working directory, `node-a` and `node-b`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "test"]
    command = [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", *meeting, "-m", "stepscope.trainer"]
    started = []
    for name in ("node-a", "node-b"):
        (tmp_path / name).mkdir(exist_ok=True)
        started.append(
            subprocess.Popen(
                [*command, *SMALL, "--data", str(data), *flags],
                cwd=tmp_path / name,
                env=ENVIRONMENT,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return started


def finish(nodes: Nodes) -> tuple[list[int], list[str]]:
    """Exit codes and stderrs."""
    stderrs = []
    for node in nodes:
        try:
            stderrs.append(node.communicate(timeout=120)[1])
        except subprocess.TimeoutExpired:
            for left in nodes:
                left.kill()
            raise
    return [node.returncode for node in nodes], stderrs


def said(stderr: str) -> list[str]:
    """Our own lines among torchrun's."""
    return [line for line in stderr.splitlines() if line.startswith("profile-train: ")]


def losses(run: RunDir) -> list[list[float | None]]:
    return [[step.loss for step in of_rank] for of_rank in run.steps().values()]


@pytest.mark.slow
def test_two_nodes_make_one_run_with_the_losses_of_one_node(tmp_path: Path, qa_file: Path) -> None:
    flags = ["--out", str(tmp_path / "shared"), "--steps", "3", "--run-name"]
    codes, stderrs = finish(start(tmp_path, qa_file, *flags, "two"))
    assert codes == [0, 0], stderrs
    two = RunDir(tmp_path / "shared" / "two")
    manifest = two.manifest()
    assert (manifest.world.size, manifest.world.nodes, manifest.outcome.state) == (2, 2, "completed")
    assert sorted(path.name for path in two.path.glob("*.jsonl")) == [
        "steps.rank0.jsonl", "steps.rank1.jsonl", "telemetry.node0.jsonl", "telemetry.node1.jsonl"
    ]  # fmt: skip
    assert [path for path in two.path.iterdir() if path.name.startswith(".")] == []
    assert losses(two)[0] == losses(two)[1]

    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", "-m", "stepscope.trainer"]
    done = subprocess.run(
        [*command, *SMALL, "--data", str(qa_file), *flags, "one"], env=ENVIRONMENT, capture_output=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    one = RunDir(tmp_path / "shared" / "one")
    assert one.manifest().world.nodes == 1
    # The sums are of two addends, so no order can tell; 1e-6 is what float32 may lose if gloo ever cuts them otherwise.
    assert losses(two)[0] == pytest.approx(losses(one)[0], rel=1e-6)


@pytest.mark.slow
def test_nodes_that_read_other_data_are_told_so(tmp_path: Path, qa_file: Path) -> None:
    lines = qa_file.read_bytes().splitlines(keepends=True)
    for name, own in (("node-a", lines), ("node-b", lines[1:])):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.jsonl").write_bytes(b"".join(own))
    codes, stderrs = finish(start(tmp_path, Path("own.jsonl"), "--out", str(tmp_path / "shared"), "--steps", "3"))
    assert codes == [1, 1]
    for stderr in stderrs:
        [line] = said(stderr)
        assert "--data: node 1 has read other data than rank 0" in line


@pytest.mark.slow
def test_nodes_that_do_not_share_the_folder_are_told_so_and_leave_no_run(tmp_path: Path, qa_file: Path) -> None:
    codes, stderrs = finish(start(tmp_path, qa_file, "--out", "own", "--steps", "3"))
    assert codes == [1, 1]
    for stderr in stderrs:
        [line] = said(stderr)
        assert "node 1 does not see what rank 0 has put into the run's folder" in line
        assert "it must be on storage that all nodes see, and --out must name it on each" in line
        assert "FileNotFoundError" not in stderr
    assert list(tmp_path.glob("node-*/own/*")) == []


@pytest.mark.slow
def test_a_worker_killed_on_one_node_ends_the_other_with_a_readable_line(tmp_path: Path, qa_file: Path) -> None:
    shared = tmp_path / "shared"
    nodes = start(tmp_path, qa_file, "--out", str(shared), "--run-name", "run", "--steps", "5000")
    run = RunDir(shared / "run")
    while not all(len(of_rank) >= 3 for of_rank in [run.steps().get(0, []), run.steps().get(1, [])]):
        assert [node.poll() for node in nodes] == [None, None], finish(nodes)
        time.sleep(0.05)
    workers = [psutil.Process(node.pid).children()[0] for node in nodes]
    [victim] = [worker for worker in workers if worker.environ()["RANK"] == "1"]
    victim.send_signal(signal.SIGKILL)
    codes, stderrs = finish(nodes)
    assert codes == [1, 1]
    [line] = [line for stderr in stderrs for line in said(stderr)]
    assert line.startswith("profile-train: lost contact with another rank: its process, its machine or the network")
    assert str(run.error_path(0)) in line
    outcome = run.manifest().outcome
    assert (outcome.state, outcome.rank) == ("failed", 0)
    assert outcome.steps is not None
    assert outcome.steps >= 3


def test_without_torchruns_node_number_a_ranks_node_follows_from_its_rank() -> None:
    environment = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}
    here = place(environment)
    assert (here.node, here.nodes) == (1, 2)
    assert place(environment | {"GROUP_RANK": "0"}).node == 0
