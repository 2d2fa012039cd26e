"""Checkpoints: what is kept, what a broken one says, and that a resumed run goes on float for float."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from stepscope.record.errors import UserError
from stepscope.record.manifest import Device, Manifest, Outcome, State, World
from stepscope.record.memory import read_memory
from stepscope.record.recipes import recipe
from stepscope.record.run import RunDir
from stepscope.trainer.build import build
from stepscope.trainer.checkpoints import Checkpoints, Facts, Trained, all_checkpoints, latest, load, to_keep
from stepscope.trainer.config import Config
from stepscope.trainer.hardware import Hardware
from stepscope.trainer.place import Place
from stepscope.trainer.resolve import resolved
from stepscope.trainer.resume import check_data_as_before, reopen

NO_GPU = Hardware(gpus=0, capability=None, cores=2)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
SMALL = ["--model", "pico", "--seq-len", "64", "--eval-samples", "4", "--no-profile", "--no-hints"]


@pytest.fixture(scope="module")
def alone() -> Iterator[Place]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Place(rank=0, local_rank=0, world=1, local_world=1, node=0, device=torch.device("cpu"))
    dist.destroy_process_group()


def trained(here: Place, data: Path, *, seed: int, recipe: str = "mxtw") -> Trained:
    config = Config(model="pico", recipe=recipe, data=data, seq_len=64, profile=False, seed=seed, eval_samples=0)
    job = build(resolved(config, NO_GPU, {}), here, NO_GPU).job
    return Trained(job.model, job.optimizer)


def facts(step: int, loss: float | None = None) -> Facts:
    return Facts(step=step, eval_loss=loss, world=2)


def a_manifest(**changes: Any) -> Manifest:
    manifest = Manifest(
        run="a", recipe=recipe("bf16"), emulated=False, config={"steps": 4},
        world=World(size=1, nodes=1, backend="gloo"), devices=[Device(kind="cpu", name="a CPU", memory_bytes=1)],
        model={}, versions={}, argv=[], started_ns=1,
    )  # fmt: skip
    return msgspec.structs.replace(manifest, **changes)


def test_the_newest_are_kept_and_the_best_besides() -> None:
    found = {Path(f"step-{n}"): facts(n, loss) for n, loss in ((5, 1.5), (10, 0.9), (15, 1.2), (20, None), (25, 1.0))}
    assert to_keep(found, 2) == [Path("step-20"), Path("step-25"), Path("step-10")]
    assert to_keep({path: facts(found[path].step) for path in found}, 2) == [Path("step-20"), Path("step-25")]


@given(st.dictionaries(st.integers(1, 50), st.none() | st.floats(0, 10), min_size=1), st.integers(1, 5))
def test_the_newest_and_the_best_are_always_among_the_kept(losses: dict[int, float | None], newest: int) -> None:
    found = {Path(f"step-{step}"): facts(step, loss) for step, loss in losses.items()}
    kept = to_keep(found, newest)
    assert Path(f"step-{max(losses)}") in kept
    assert len(kept) == len(set(kept)) <= newest + 1
    known = [loss for loss in losses.values() if loss is not None]
    if known:
        assert min(known) in [found[path].eval_loss for path in kept]


def test_a_float8_models_weights_come_back_as_they_were(alone: Place, qa_file: Path, tmp_path: Path) -> None:
    """torch stages a wrapped tensor without its content: saved so, what memory held before came back."""
    before, after = trained(alone, qa_file, seed=1), trained(alone, qa_file, seed=2)
    keeping = Checkpoints(RunDir(tmp_path), before, every=1, keep=1)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        assert keeping.after(1, None, last=True) is not None
    assert "checkpoint" in {event.name for event in profiler.events()}, "a range in traces"
    load(latest(RunDir(tmp_path))[0], after)
    theirs = dict(after.model.named_parameters())
    for name, weight in before.model.named_parameters():
        assert torch.equal(weight.full_tensor(), theirs[name].full_tensor()), name


def test_a_checkpoint_of_another_model_is_refused_in_one_line(alone: Place, qa_file: Path, tmp_path: Path) -> None:
    small = trained(alone, qa_file, seed=1, recipe="bf16")
    Checkpoints(RunDir(tmp_path), small, every=1, keep=1).after(1, None, last=True)
    config = Config(model="tiny", recipe="bf16", data=qa_file, seq_len=64, profile=False, eval_samples=0)
    job = build(resolved(config, NO_GPU, {}), alone, NO_GPU).job
    with pytest.raises(UserError, match="cannot be read as a checkpoint of this model") as caught:
        load(latest(RunDir(tmp_path))[0], Trained(job.model, job.optimizer))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "metadata", [b"", b"garbage\n", b"\x80\x04\xff\xfe", b"\x80\x04N.", b"cno_such_module\nname\n."]
)
def test_a_checkpoint_of_broken_bytes_is_one_line_with_the_way_out(
    alone: Place, qa_file: Path, tmp_path: Path, metadata: bytes
) -> None:
    (tmp_path / ".metadata").write_bytes(metadata)
    model = torch.nn.Linear(2, 2)
    with pytest.raises(UserError, match=r"cannot be read as a checkpoint .* goes on from the one before it"):
        load(tmp_path, Trained(model, torch.optim.AdamW(model.parameters())))


def test_a_checkpoint_cut_short_counts_as_none(alone: Place, qa_file: Path, tmp_path: Path) -> None:
    keeping = Checkpoints(RunDir(tmp_path), trained(alone, qa_file, seed=1), every=1, keep=3)
    keeping.after(1, None, last=True)
    shutil.copytree(tmp_path / "checkpoints" / "step-1", tmp_path / "checkpoints" / ".step-2.part")
    (tmp_path / "checkpoints" / "step-3").mkdir()
    assert [found.step for found in all_checkpoints(tmp_path / "checkpoints").values()] == [1]


def test_a_place_that_cannot_be_written_stops_with_the_reason_and_keeps_the_last_good_one(
    alone: Place, qa_file: Path, tmp_path: Path
) -> None:
    keeping = Checkpoints(RunDir(tmp_path), trained(alone, qa_file, seed=1), every=1, keep=3)
    keeping.after(1, None, last=True)
    (tmp_path / "checkpoints" / ".step-2.part").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"the checkpoint of step 2 could not be written \(.*go on from step 1 with"):
        keeping.after(2, None, last=True)
    assert [found.step for found in all_checkpoints(tmp_path / "checkpoints").values()] == [1]


def profile_train(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stepscope.trainer", *flags]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


def losses(path: Path) -> list[list[tuple[int, float | None, float | None]]]:
    return [[(step.step, step.loss, step.grad_norm) for step in of_rank] for of_rank in RunDir(path).steps().values()]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, qa_file: Path) -> Path:
    """A run of forty steps of mxtw, never interrupted."""
    out = tmp_path_factory.mktemp("straight")
    done = profile_train(*SMALL, "--recipe", "mxtw", "--data", str(qa_file), "--out", str(out), "--steps", "40")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.mark.slow
def test_a_run_killed_while_it_trains_goes_on_float_for_float(straight: Path, tmp_path: Path, qa_file: Path) -> None:
    flags = ["--recipe", "mxtw", "--data", str(qa_file), "--out", str(tmp_path), "--run-name", "killed"]
    command = [sys.executable, "-m", "stepscope.trainer", *SMALL, *flags, "--steps", "40", "--checkpoint-every", "1"]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = RunDir(tmp_path / "killed")
    while not all_checkpoints(run.checkpoints):
        assert process.poll() is None
    for worker in psutil.Process(process.pid).children():
        worker.send_signal(signal.SIGKILL)
    assert process.wait(60) == 1
    resumed = profile_train("--resume", str(run.path))
    assert resumed.returncode == 0, resumed.stderr
    assert losses(run.path) == losses(straight)
    manifest = run.manifest()
    assert manifest.outcome.state == "completed"
    assert len(manifest.resumed) == 1


@pytest.mark.slow
def test_a_stop_asked_for_writes_a_checkpoint_and_another_number_of_ranks_can_go_on(
    straight: Path, tmp_path: Path, qa_file: Path
) -> None:
    flags = ["--recipe", "mxtw", "--data", str(qa_file), "--out", str(tmp_path), "--run-name", "stopped"]
    command = [sys.executable, "-m", "stepscope.trainer", *SMALL, *flags, "--steps", "40", "--checkpoint-every", "100"]
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = RunDir(tmp_path / "stopped")
    while not run.steps().get(1):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    [written] = all_checkpoints(run.checkpoints).values()
    assert run.manifest().outcome.steps == written.step < 40
    resumed = profile_train("--resume", str(run.path), "--nproc", "1")
    assert resumed.returncode == 0, resumed.stderr
    [first] = [of_rank for of_rank in losses(run.path) if len(of_rank) == 40]
    assert [step for step, _, _ in first] == list(range(1, 41))


def test_a_finished_run_and_one_without_checkpoints_say_how_to_go_on(straight: Path) -> None:
    done = profile_train("--resume", str(straight))
    assert (done.returncode, done.stdout) == (1, "")
    assert "has no checkpoint to resume from; train with --checkpoint-every" in done.stderr
    refused = profile_train("--resume", str(straight), "--lr", "1", "--recipe", "bf16")
    assert refused.returncode == 2
    assert "leave out --lr, --recipe" in refused.stderr


def test_data_that_has_changed_under_a_run_is_refused() -> None:
    facts = {"file": "a.jsonl", "sha256": "1"}
    check_data_as_before(a_manifest(data=facts), facts)
    check_data_as_before(a_manifest(data={}), facts)
    with pytest.raises(UserError, match=r"--data: a\.jsonl has changed since this run was trained on it"):
        check_data_as_before(a_manifest(data={"sha256": "2"}), facts)


@pytest.mark.parametrize("state", ["running", "failed", "interrupted"])
def test_a_run_that_was_ended_after_its_last_step_can_be_closed_and_a_finished_one_not(
    tmp_path: Path, state: State
) -> None:
    run = RunDir(tmp_path)
    (run.checkpoints / "step-4").mkdir(parents=True)
    (run.checkpoints / "step-4" / "step.json").write_bytes(msgspec.json.encode(facts(4)))
    run.write_manifest(a_manifest(outcome=Outcome(state=state, steps=4)))
    reopen(run, 4)
    assert run.manifest().outcome == Outcome()
    run.write_manifest(a_manifest(outcome=Outcome(state="completed", steps=4)))
    with pytest.raises(UserError, match="has finished its 4 steps"):
        reopen(run, 4)


@pytest.mark.slow
def test_a_resumed_run_has_each_account_of_memory_once_and_its_telemetry_reads(tmp_path: Path, qa_file: Path) -> None:
    flags = ["--data", str(qa_file), "--out", str(tmp_path), "--run-name", "a", "--nproc", "1", "--memory-detail", "3"]
    assert profile_train(*SMALL, *flags, "--steps", "4", "--checkpoint-every", "2").returncode == 0
    run = RunDir(tmp_path / "a")
    shutil.rmtree(run.checkpoints / "step-4")
    with run.telemetry_path(0).open("ab") as file:
        file.write(b'{"type":"host","t_')
    run.write_manifest(msgspec.structs.replace(run.manifest(), outcome=Outcome()))
    resumed = profile_train("--resume", str(run.path))
    assert resumed.returncode == 0, resumed.stderr
    assert [detail.step for detail in read_memory(run.memory_detail_path(0))] == [3]
    assert len(run.telemetry()[0]) >= 4


def test_what_a_kill_left_half_written_is_gone_once_the_run_goes_on(alone: Place, tmp_path: Path) -> None:
    folder = RunDir(tmp_path).checkpoints
    for name in (".step-7.part", "step-6"):
        (folder / name).mkdir(parents=True)
    model = torch.nn.Linear(2, 2)
    Checkpoints(RunDir(tmp_path), Trained(model, torch.optim.AdamW(model.parameters())), every=2, keep=1)
    assert [path.name for path in folder.iterdir()] == ["step-6"]
