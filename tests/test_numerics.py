"""FP8 statistics: against float64 computed by hand, on shards, and without a trace in the training."""

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from stepscope.profiling.float8_casts import float8_layers
from stepscope.profiling.numerics import Numerics
from stepscope.profiling.tally import Rounded, statistics_of, tally
from stepscope.record.errors import ConfigError
from stepscope.record.numerics import OperandStatistics, read_numerics
from stepscope.record.recipes import recipe
from stepscope.record.run import RunDir
from stepscope.trainer.config import Config
from stepscope.trainer.hardware import Hardware
from stepscope.trainer.precision import apply_recipe
from stepscope.trainer.resolve import resolved

NO_GPU = Hardware(gpus=0, capability=None, cores=2)
E4M3, E5M2 = (3, -6, 448.0), (2, -14, 57344.0)
"""Bits of the mantissa, least exponent of a normal number, largest number: the OCP's FP8 formats."""


def rounded_by_hand(scaled: np.ndarray, form: tuple[int, int, float]) -> np.ndarray:
    """To the nearest FP8 number, ties to even; beyond the largest, the largest."""
    bits, least, largest = form
    exponent = np.floor(np.log2(np.where(scaled == 0, 1.0, np.abs(scaled))))
    spacing = 2.0 ** (np.maximum(exponent, least) - bits)
    return np.clip(np.round(scaled / spacing) * spacing, -largest, largest)


def by_hand(x: np.ndarray, scale: np.ndarray, form: tuple[int, int, float]) -> dict[str, float]:
    """The statistics in float64, as they are defined; `scale` has the shape of `x`."""
    q = rounded_by_hand(x * scale, form) / scale
    centred = x - x.mean()
    return {
        "amax": np.abs(x).max(),
        "scale_min": scale[x != 0].min(),
        "scale_max": scale[x != 0].max(),
        "saturated_share": (np.abs((x * scale).astype(np.float32)) > form[2]).mean(),
        "underflowed_share": ((x != 0) & (q == 0)).mean(),
        "sqnr_db": 10 * math.log10((x**2).sum() / ((x - q) ** 2).sum()),
        "kurtosis": (centred**4).mean() / (centred**2).mean() ** 2,
    }


def scale_by_hand(x: np.ndarray, granularity: str, largest: float) -> np.ndarray:
    """The factor of each value, by what the recipes say: one for all, for a row (a power of two), or for 32 values."""
    if granularity == "tensorwise":
        return np.full(x.shape, np.float64(np.float32(largest / np.abs(x).max())))
    if granularity == "axiswise":
        return np.broadcast_to(2.0 ** np.floor(np.log2(largest / np.abs(x).max(1, keepdims=True))), x.shape)
    blocks = np.abs(x.reshape(x.shape[0], -1, 32)).max(-1)
    return np.repeat(2.0 ** -np.ceil(np.log2(blocks / largest)), 32, axis=1)


def layer_of(name: str, rows: int = 64, columns: int = 96) -> nn.Module:
    """A model of one bf16 linear layer, `linear`, with the recipe put in."""
    torch.manual_seed(3)
    model = nn.ModuleDict({"linear": nn.Linear(columns, rows, bias=False, dtype=torch.bfloat16)})
    apply_recipe(model, recipe(name), NO_GPU, keep=[])
    return model


def spread(*shape: int) -> torch.Tensor:
    """Values over many orders of magnitude, so that some underflow under any scale of a row."""
    values = torch.randn(shape) * torch.exp2(torch.randint(-30, 3, shape).float())
    return values.bfloat16()


def measured(
    tmp_path: Path, model: nn.Module, work: Callable[[], Any], **settings: Any
) -> dict[tuple[str, str], OperandStatistics]:
    path = tmp_path / "numerics.rank0.jsonl"
    numerics = Numerics(model, path, every=1, **settings)
    assert numerics.before(1)
    work()
    numerics.after(1)
    return {(found.layer, found.operand): found for found in read_numerics(path)}


def forms_of(name: str) -> tuple[str, tuple[int, int, float]]:
    """Granularity of a recipe's casts, and the format of its grad_output."""
    row = recipe(name)
    return str(row.input.granularity), E5M2 if row.grad_output.dtype == "e5m2" else E4M3


@pytest.mark.parametrize("name", ["tensorwise", "rowwise", "rowwise_with_gw_hp", "mxfp8"])
def test_statistics_are_those_of_float64_by_hand_for_every_granularity(tmp_path: Path, name: str) -> None:
    model = layer_of(name)
    given, gradient = spread(2, 32, 96), spread(2, 32, 64)
    weight = next(iter(model.parameters())).detach()
    weight = getattr(weight, "_data", weight).clone()
    found = measured(tmp_path, model, lambda: model["linear"](given.requires_grad_()).backward(gradient))
    granularity, form = forms_of(name)
    for operand, tensor, of in (("input", given, E4M3), ("weight", weight, E4M3), ("grad_output", gradient, form)):
        statistics = found["linear", operand]
        x = tensor.detach().double().reshape(-1, tensor.shape[-1]).numpy()
        expected = by_hand(x, scale_by_hand(x, granularity, of[2]), of)
        got = {field: getattr(statistics, field) for field in expected}
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-12), operand
        assert (statistics.granularity, statistics.values, statistics.missing) == (granularity, x.size, {})
        if operand != "weight":
            assert statistics.underflowed_share
    assert [statistics.operand for statistics in found.values()] == ["input", "weight", "grad_output"]


def test_saturation_and_underflow_made_on_purpose_are_counted() -> None:
    # A scale of 100, as a delayed one may be: 5 and −6 become 500 and −600, beyond 448; 4.48 is the largest that fits.
    # Half of the smallest e4m3 number, 2^-9, still rounds to zero: 2^-10 / 100 underflows, 2^-9 / 100 does not.
    x = torch.tensor([[5.0, -6.0, 4.48, 1.0], [2**-10 / 100, 2**-9 / 100, 0.0, 1.0]])
    scaled = (x * 100).clamp(-448, 448)
    found = statistics_of(
        *(
            part.tolist()
            for part in tally(Rounded(x, scaled.to(torch.float8_e4m3fn), torch.tensor(100.0), "tensorwise"))
        )
    )
    assert (found["saturated_share"], found["underflowed_share"]) == (2 / 8, 1 / 8)
    assert (found["amax"], found["scale_min"], found["scale_max"], found["missing"]) == (6.0, 100.0, 100.0, {})
    # Errors: 0.52, −1.52, 0 and, as 100 is halfway from 96 to 104 and goes to 96, 0.04, twice. 2^-10 / 100 is lost.
    noise = 0.52**2 + 1.52**2 + 2 * 0.04**2 + (2**-10 / 100) ** 2
    assert found["sqnr_db"] == pytest.approx(10 * math.log10((25 + 36 + 4.48**2 + 2) / noise), rel=1e-5)


def statistics(*values: float, scale: float = 1.0) -> dict[str, Any]:
    x = torch.tensor([values])
    found = tally(Rounded(x, (x * scale).to(torch.float8_e4m3fn), torch.tensor(scale), "tensorwise"))
    return statistics_of(*(part.tolist() for part in found))


def test_what_cannot_be_computed_is_none_with_its_reason() -> None:
    zeros = statistics(0.0, 0.0)
    assert (zeros["amax"], zeros["saturated_share"], zeros["underflowed_share"]) == (0.0, 0.0, 0.0)
    assert zeros["missing"]["sqnr_db"] == zeros["missing"]["kurtosis"] == "every value is zero"
    assert statistics(2.0, 2.0)["missing"] == {
        "sqnr_db": "the cast changes no value",
        "kurtosis": "all values are the same",
    }
    for broken in (math.nan, math.inf):
        found = statistics(1.0, broken)
        assert set(found) == {"values", "missing"}
        assert set(found["missing"].values()) == {"some values are not finite"}
    assert statistics()["missing"]["amax"] == "there are no values"


def test_kurtosis_is_pearsons_of_the_population() -> None:
    # −1 and 1 in equal parts: m2 = m4 = 1. Of 0, 0, 0, 4: mean 1, m2 = 3, m4 = (3·1 + 81) / 4 = 21, 21 / 9.
    assert statistics(-1.0, 1.0, 1.0, -1.0)["kurtosis"] == pytest.approx(1.0)
    assert statistics(0.0, 0.0, 0.0, 4.0)["kurtosis"] == pytest.approx(21 / 9)


def test_counting_in_chunks_gives_the_same_as_counting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = spread(50, 30).float()
    scale = 448 / x.abs().amax(1, keepdim=True)
    rounded = Rounded(x, (x * scale).to(torch.float8_e4m3fn), scale, "axiswise")
    at_once = tally(rounded)
    monkeypatch.setattr("stepscope.profiling.tally.CHUNK", 90)
    for one, other in zip(at_once, tally(rounded), strict=True):
        torch.testing.assert_close(one, other)


class Stack(nn.Module):
    """Two float8 layers, the second recomputed in the backward pass if asked for."""

    def __init__(self, *, recomputed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = (nn.Linear(32, 32, bias=False, dtype=torch.bfloat16) for _ in range(2))
        self.recomputed = recomputed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.recomputed:
            return torch.utils.checkpoint.checkpoint(self.second, x, use_reentrant=False)  # type: ignore[no-any-return]
        return self.second(x)  # type: ignore[no-any-return]


def stack(**how: bool) -> nn.Module:
    model = Stack(**how)
    apply_recipe(model, recipe("tensorwise"), NO_GPU, keep=[])
    return model


def test_a_recomputed_forward_and_later_micro_batches_do_not_count_again(tmp_path: Path) -> None:
    batches = [spread(16, 32), spread(16, 32)]

    def step(model: nn.Module) -> None:
        for batch in batches:
            model(batch).square().sum().backward()

    found = []
    for recomputed in (False, True):
        model = stack(recomputed=recomputed)
        folder = tmp_path / str(recomputed)
        folder.mkdir()
        found.append(measured(folder, model, lambda model=model: step(model)))
    assert found[0] == found[1]
    assert len(found[0]) == 2 * 3
    assert found[0]["first", "input"].amax == batches[0].abs().max().item()


def hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def test_only_steps_that_are_due_have_hooks(tmp_path: Path) -> None:
    model = stack()
    numerics = Numerics(model, tmp_path / "n.jsonl", every=3, left_out=lambda step: step in (6, 7))
    counts = {}
    for step in range(1, 10):
        taken = numerics.before(step)
        counts[step] = hooks(model)
        assert taken == bool(counts[step])
        model(spread(16, 32)).sum().backward()
        numerics.after(step)
        assert hooks(model) == 0
    # 6 and 7 are left out: 8 stands in for 6.
    assert {step: count for step, count in counts.items() if count} == {3: 4, 8: 4, 9: 4}
    assert sorted({found.step for found in read_numerics(tmp_path / "n.jsonl")}) == [3, 8, 9]


def test_statistics_change_no_bit_of_outputs_and_gradients(tmp_path: Path) -> None:
    batch = spread(16, 32)
    results = []
    for every in (0, 1):
        model = stack()
        numerics = Numerics(model, tmp_path / "n.jsonl", every=1) if every else None
        if numerics:
            numerics.before(1)
        output = model(batch)
        output.square().sum().backward()
        if numerics:
            numerics.after(1)
        results.append([output, *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_failure_ends_the_statistics_once_and_not_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such cast")

    model = stack()
    numerics = Numerics(model, tmp_path / "n.jsonl", every=1)
    monkeypatch.setattr("stepscope.profiling.numerics.tally", broken)
    for step in (1, 2):
        assert numerics.before(step) == (step == 1)
        model(spread(16, 32)).sum().backward()
        numerics.after(step)
    assert [record.getMessage() for record in caplog.records] == [
        "the FP8 statistics ends here, training goes on: RuntimeError: no such cast"
    ]
    assert not (tmp_path / "n.jsonl").exists()


def test_a_model_without_fp8_says_so_once_and_writes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for rank in (0, 1):
        numerics = Numerics(Stack(), tmp_path / "n.jsonl", every=1, rank=rank)
        assert not numerics.before(1)
        numerics.after(1)
    assert [record.getMessage() for record in caplog.records] == [
        "no layer computes in FP8, so there are no FP8 statistics"
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_compiled_model_ends_the_statistics_with_the_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = stack()
    numerics = Numerics(model, tmp_path / "n.jsonl", every=1)
    numerics.before(1)  # no layer is called: what hooks added to compiled code see
    numerics.after(1)
    assert "does torch.compile run the model?" in caplog.text
    assert not numerics.before(2)


def test_hooks_put_into_a_compiled_layer_are_not_called() -> None:
    called: list[int] = []
    model = Stack()
    model.compile(backend="eager")
    batch = spread(4, 32)
    model(batch)
    model.first.register_forward_pre_hook(lambda *_: called.append(1))
    model(batch)
    assert called == []


def test_statistics_of_compiled_layers_are_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match="--compile leaves nothing there to look at"):
        resolved(Config(recipe="mxtw", numerics=2, compile=True), NO_GPU, {})


def test_names_of_layers_are_those_of_the_unwrapped_model() -> None:
    model = nn.ModuleDict({"block": nn.ModuleDict({"_checkpoint_wrapped_module": stack()})})
    assert [name for name, _, _ in float8_layers(model)] == ["block.first", "block.second"]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_weight_gathered_in_fp8_is_counted_whole_whoever_holds_its_shards(tmp_path: Path, ranks: int) -> None:
    words = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--standalone"]
    words += [str(Path(__file__).with_name("numerics_ranks.py")), str(tmp_path)]
    done = subprocess.run(
        words, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    for case in ("float8", "float8 precomputed", "bf16", "axiswise"):
        found = {line.operand: line for line in read_numerics(tmp_path / f"{case}.jsonl")}
        x = np.array(json.loads((tmp_path / f"{case}.weight.json").read_text()))
        granularity = "axiswise" if case == "axiswise" else "tensorwise"
        expected = by_hand(x, scale_by_hand(x, granularity, 448.0), E4M3)
        got = {field: getattr(found["weight"], field) for field in expected}
        assert got == pytest.approx(expected, rel=1e-5, abs=1e-12), case
        assert found["weight"].values == x.size
        assert set(found) == {"input", "weight", "grad_output"}
    assert sorted(path.name for path in tmp_path.glob("given up*")) == [
        f"given up {rank}: nothing more, no hang" for rank in range(ranks)
    ]


@pytest.mark.slow
def test_a_run_writes_statistics_of_its_due_steps_marks_them_and_trains_the_same(tmp_path: Path, qa_file: Path) -> None:
    runs = []
    for name, more in (("on", ["--numerics", "2"]), ("off", [])):
        words = [sys.executable, "-m", "stepscope.trainer", "--recipe", "mxtw", "--model", "pico", "--seq-len", "64"]
        words += ["--steps", "4", "--no-profile", "--nproc", "2", "--eval-samples", "0", "--data", str(qa_file)]
        words += ["--out", str(tmp_path), "--run-name", name, "--telemetry-period", "0", *more]
        done = subprocess.run(words, capture_output=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        runs.append(RunDir(tmp_path / name))
    on, off = ([[step.loss for step in steps] for steps in run.steps().values()] for run in runs)
    assert on == off
    assert [step.marks for step in runs[0].steps()[0]] == [("first",), ("numerics",), (), ("numerics",)]
    found = runs[0].numerics()
    assert [(step, sum(line.step == step for line in found)) for step in (1, 2, 3, 4)] == [
        (1, 0),
        (2, 14 * 3),
        (3, 0),
        (4, 14 * 3),
    ]
    assert {line.dtype for line in found if line.operand == "grad_output"} == {"float8_e5m2"}
    assert all(15 < (line.sqnr_db or 0) < 60 for line in found)
    assert runs[1].numerics() == []


@pytest.mark.slow
def test_a_resumed_run_takes_the_statistics_of_undone_steps_again(tmp_path: Path, qa_file: Path) -> None:
    words = [sys.executable, "-m", "stepscope.trainer", "--recipe", "tensorwise", "--model", "pico", "--seq-len", "64"]
    words += ["--steps", "3", "--no-profile", "--nproc", "1", "--eval-samples", "0", "--data", str(qa_file)]
    words += ["--telemetry-period", "0", "--numerics", "1", "--checkpoint-every", "2", "--out", str(tmp_path)]
    first = subprocess.run([*words, "--run-name", "r"], capture_output=True, timeout=180, check=False)
    assert first.returncode == 0, first.stderr.decode()[-4000:]
    run = RunDir(tmp_path / "r")
    shutil.rmtree(run.checkpoints / "step-3", ignore_errors=True)
    before = run.numerics()
    resume = [sys.executable, "-m", "stepscope.trainer", "--resume", str(run.path), "--steps", "3"]
    again = subprocess.run(resume, capture_output=True, timeout=180, check=False)
    assert again.returncode == 0, again.stderr.decode()[-4000:]
    assert run.numerics() == before
    assert {line.step for line in before} == {1, 2, 3}


@pytest.mark.slow
def test_a_run_in_bf16_says_that_it_has_no_statistics(tmp_path: Path, qa_file: Path) -> None:
    words = [sys.executable, "-m", "stepscope.trainer", "--model", "pico", "--seq-len", "64", "--steps", "2"]
    words += ["--no-profile", "--nproc", "1", "--eval-samples", "0", "--data", str(qa_file), "--out", str(tmp_path)]
    words += ["--run-name", "bf16", "--telemetry-period", "0", "--numerics", "1"]
    done = subprocess.run(words, capture_output=True, timeout=180, check=False)
    assert done.returncode == 0
    assert done.stderr.decode().count("no layer computes in FP8") == 1
    assert not RunDir(tmp_path / "bf16").numerics_path().exists()
