"""What a step's memory is made of: sizes that follow from shapes and dtypes, and a sum that is the peak."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from stepscope.profiling.cuda_memory import peak_in
from stepscope.profiling.guard import Part
from stepscope.profiling.memory import MemoryWatch
from stepscope.profiling.storages import Ledger, Placed
from stepscope.record.errors import ConfigError
from stepscope.record.memory import MemoryDetail, read_memory
from stepscope.record.run import RunDir
from stepscope.trainer.config import Config
from stepscope.trainer.hardware import Hardware
from stepscope.trainer.resolve import resolved


def followed(tmp_path: Path, model: nn.Module, batch: torch.Tensor, **how: Any) -> MemoryDetail:
    """The second of two AdamW steps."""
    optimizer = torch.optim.AdamW(model.parameters(), **how)
    watch = MemoryWatch(model, optimizer, RunDir(tmp_path), 0, step=2)
    for step in (1, 2):
        assert watch.before(step) == (step == 2)
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        watch.after(step)
    (detail,) = read_memory(tmp_path / "memory.rank0.jsonl")
    return detail


def test_parameters_gradients_and_optimizer_state_have_the_bytes_of_their_numbers(tmp_path: Path) -> None:
    model = nn.Linear(300, 200, bias=False, dtype=torch.bfloat16)
    detail = followed(tmp_path, model, torch.ones(2, 300, dtype=torch.bfloat16), fused=True)
    # 60,000 bf16 weights; AdamW has two averages of each, and one step count of 4 bytes a parameter tensor.
    assert detail.parameters_bytes == 60_000 * 2
    assert detail.gradients_bytes == 60_000 * 2
    assert detail.optimizer_bytes == 2 * 60_000 * 2 + 4
    assert (detail.fp8_bytes, detail.step, detail.rank) == (0, 2, 0)


def parts(detail: MemoryDetail) -> int:
    """The sum of all parts, in bytes."""
    names = [name for name in detail.__struct_fields__ if name.endswith("_bytes") and name != "peak_bytes"]
    return sum(getattr(detail, name) for name in names)


def test_what_autograd_keeps_is_counted_once_and_the_parts_sum_to_the_peak(tmp_path: Path) -> None:
    # sigmoid keeps its output, 1000 × 64 floats, which the second one takes as input and does not keep again.
    model = nn.Sequential(nn.Linear(4, 64, bias=False), nn.Sigmoid(), nn.Sigmoid())
    detail = followed(tmp_path, model, torch.ones(1000, 4))
    # The outputs of both, and the batch of 1000 × 4 floats for the weight's gradient.
    assert detail.activations_bytes == 2 * 1000 * 64 * 4 + 1000 * 4 * 4
    assert parts(detail) == detail.peak_bytes


def test_fp8_copies_and_resized_storages_are_followed() -> None:
    ledger = Ledger(Part("the account"))
    with ledger:
        copy = torch.ones(1000, dtype=torch.bfloat16).to(torch.float8_e4m3fn)
        gathered = torch.empty(500)
        gathered.untyped_storage().resize_(0)
        gathered.untyped_storage().resize_(8000)
        gathered.untyped_storage().resize_(0)
    # 1000 FP8 values and 8000 bytes; the bf16 original is gone by then.
    assert ledger.peak_bytes == 1000 + 8000
    assert {kind: size for kind, size in ledger.at_peak().items() if size} == {"fp8": 1000, "rest": 8000}
    assert copy.numel() == 1000
    assert torch.UntypedStorage.resize_.__qualname__ != "Ledger.__enter__.<locals>.resized"


def test_following_a_step_changes_no_bit_of_it(tmp_path: Path) -> None:
    weights = []
    for step in (1, 9):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
        optimizer = torch.optim.AdamW(model.parameters())
        watch = MemoryWatch(model, optimizer, RunDir(tmp_path), 0, step=step)
        watch.before(1)
        model(torch.ones(3, 8)).square().sum().backward()
        optimizer.step()
        watch.after(1)
        assert sum(len(module._forward_pre_hooks) for module in model.modules()) == 0
        weights.append([parameter.detach() for parameter in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*weights, strict=True))


def test_a_failure_ends_the_account_and_not_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stepscope.profiling.memory._state", lambda _: 1 / 0)
    model = nn.Linear(2, 2)
    watch = MemoryWatch(model, torch.optim.AdamW(model.parameters()), RunDir(tmp_path), 0, step=1)
    watch.before(1)
    model(torch.ones(1, 2)).sum().backward()
    watch.after(1)
    assert [record.getMessage() for record in caplog.records] == [
        "the account of memory ends here, training goes on: ZeroDivisionError: division by zero"
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_failure_within_an_operator_ends_the_account_and_not_the_operator(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("stepscope.profiling.storages.tree_leaves", lambda _: 1 / 0)
    with Ledger(Part("the account of memory")):
        made = torch.ones(2) + 1
        made.untyped_storage().resize_(800)
    assert made.tolist()[:2] == [2, 2]
    assert len(caplog.records) == 1


MIB = 2**20
HELD = "active_allocated"


def entry(action: str, address: int, size: int, time_us: int) -> dict[str, Any]:
    """One event of an allocator's history, of the fields that PyTorch gives it those that matter."""
    return {"action": action, "addr": address, "size": size, "time_us": time_us, "stream": 0}


def snapshot(*history: dict[str, Any], blocks: list[tuple[int, str]]) -> dict[str, Any]:
    """A device's history, and one segment at address 1000 with blocks of (size, state) from there on."""
    listed = [{"size": size, "state": state} for size, state in blocks]
    other = {"device": 0, "address": 9, "blocks": [{"size": 7 * MIB, "state": HELD}]}
    return {
        "segments": [other, {"device": 1, "address": 1000, "blocks": listed}],
        "device_traces": [[], list(history)],
    }


def test_the_peak_of_a_cuda_history_is_found_and_its_blocks_are_what_lay_in_them() -> None:
    weights, first, second, third = 1000, 1000 + MIB, 1000 + 3 * MIB, 1000 + 4 * MIB
    found = peak_in(
        snapshot(
            entry("alloc", first, 2 * MIB, 10),  # activations
            entry("alloc", second, MIB, 20),  # a workspace
            entry("segment_alloc", 5, 99 * MIB, 25),
            entry("alloc", third, MIB, 30),  # 1 + 2 + 1 + 1 MiB: the peak
            entry("free_requested", first, 2 * MIB, 39),
            entry("free_completed", first, 2 * MIB, 40),
            entry("free_completed", second, MIB, 45),
            entry("alloc", first, 2 * MIB, 50),  # gradients, in the place of activations
            blocks=[
                (MIB, "active_allocated"),
                (2 * MIB, "active_allocated"),
                (MIB, "inactive"),
                (MIB, "active_allocated"),
            ],
        ),
        1,
        [
            Placed(weights, 1_000, "parameters"),
            Placed(first, 12_000, "activations"),
            Placed(first, 52_000, "gradients"),
            Placed(third, 32_000, "fp8"),
            Placed(second, 60_000, "optimizer"),  # came when the workspace was gone
        ],
        end_ns=100_000,
    )
    assert found.bytes == 5 * MIB
    assert {kind: size for kind, size in found.kinds.items() if size} == {
        "parameters": MIB, "activations": 2 * MIB, "fp8": MIB, "rest": MIB
    }  # fmt: skip


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 7), st.integers(1, 64)), max_size=40))
def test_the_peak_of_any_history_is_the_most_that_was_ever_handed_out(asked: list[tuple[bool, int, int]]) -> None:
    there: dict[int, int] = {}
    history, most = [], 0
    for time_us, (taken, slot, size) in enumerate(asked):
        address = 1000 + 64 * slot
        if taken and address not in there:
            there[address] = size
            history.append(entry("alloc", address, size, time_us))
        elif not taken and address in there:
            history.append(entry("free_completed", address, there.pop(address), time_us))
        most = max(most, sum(there.values()))
    segments = [
        {"device": 0, "address": address, "blocks": [{"address": address, "size": size, "state": HELD}]}
        for address, size in there.items()
    ]
    found = peak_in({"segments": segments, "device_traces": [history]}, 0, [], end_ns=10**6)
    assert (found.bytes, found.kinds["rest"]) == (most, most)


def test_on_cuda_the_history_is_left_and_the_account_is_of_its_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = snapshot(entry("alloc", 1000, MIB, 10), entry("free_completed", 1000, MIB, 20), blocks=[])
    asked: list[Any] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda **how: asked.append(how))
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: taken)
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", asked.append, raising=False)
    detail = followed(tmp_path, nn.Linear(2, 2), torch.ones(1, 2))
    assert (detail.peak_bytes, detail.rest_bytes) == (MIB, MIB)
    assert pickle.loads((tmp_path / "memory.rank0.pickle").read_bytes()) == taken
    assert (asked[0], asked[-1]) == ({"max_entries": 200_000}, {"enabled": None})


def test_a_step_that_the_run_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="--memory-detail: step 5 lies beyond the run's 4 steps"):
        resolved(Config(steps=4, memory_detail=5), Hardware(gpus=0, capability=None, cores=2), {})


@pytest.mark.slow
def test_a_sharded_run_accounts_for_its_shards_and_trains_the_same(tmp_path: Path, qa_file: Path) -> None:
    runs = []
    for name, more in (("on", ["--memory-detail", "3"]), ("off", [])):
        words = [sys.executable, "-m", "stepscope.trainer", "--recipe", "mxtw", "--model", "pico", "--seq-len", "64"]
        words += ["--steps", "4", "--no-profile", "--nproc", "2", "--eval-samples", "0", "--data", str(qa_file)]
        words += ["--out", str(tmp_path), "--run-name", name, "--telemetry-period", "0", *more]
        done = subprocess.run(words, capture_output=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        runs.append(RunDir(tmp_path / name))
    on, off = ([[step.loss for step in steps] for steps in run.steps().values()] for run in runs)
    assert on == off
    assert [step.marks for step in runs[0].steps()[0]] == [("first",), (), ("memory",), ()]
    parameters = runs[0].manifest().model["parameters"]
    for rank in (0, 1):
        (detail,) = read_memory(runs[0].memory_detail_path(rank))
        assert parts(detail) == detail.peak_bytes
        # Two bf16 averages of half the weights, and a step count for each of 2 · 9 + 3 parameter tensors.
        assert detail.optimizer_bytes == 2 * 2 * parameters // 2 + 21 * 4
        assert detail.parameters_bytes >= 2 * parameters / 2 * 0.99
        assert detail.fp8_bytes > 0
        assert detail.activations_bytes > 0
