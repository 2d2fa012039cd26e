"""Whether a trace shows the recipe of its run, and no other: of emulated runs, of GPUs, and of what does not tell."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from native_traces import LINEARS, native
from op_timeline import Ops

from stepscope.analyzers.conformance import FieldProof
from stepscope.analyzers.kineto.find import find_traces
from stepscope.analyzers.kineto.read import read_traces
from stepscope.analyzers.recipe_proof import RecipeProof, manifest_beside, recipe_proof
from stepscope.analyzers.timeline import Timeline
from stepscope.dashboards.cli import main
from stepscope.record.manifest import Device, Linear, Manifest, World, read_manifest
from stepscope.record.recipes import CAPTURED, RECIPES, recipe

SAMPLE = Path(__file__).parent.parent / "traces" / "sample"
TORCHAO = ["bf16", "tensorwise", "rowwise", "rowwise_with_gw_hp", "mxtw"]


def manifest(name: str, linears: list[Linear] | None = None, **changes: Any) -> Manifest:
    made = Manifest(
        run="r", recipe=recipe(name), emulated=False, config={}, world=World(size=2, nodes=1, backend="nccl"),
        devices=[Device(kind="cuda", name="NVIDIA H200", memory_bytes=None)] * 2, model={}, versions={}, argv=[],
        started_ns=1, linear_layers=LINEARS if linears is None else linears,
    )  # fmt: skip
    if name == "bf16" and linears is None:
        made.linear_layers = [msgspec.structs.replace(linear, precision="bf16") for linear in LINEARS]
    return msgspec.structs.replace(made, **changes)


def fields(proof: RecipeProof) -> dict[str, FieldProof]:
    return {row.field: row for row in proof.conformance.fields}


@pytest.mark.parametrize("stated", TORCHAO)
@pytest.mark.parametrize("ran", TORCHAO)
def test_a_native_trace_conforms_to_its_own_recipe_and_to_no_other(ran: str, stated: str) -> None:
    found = recipe_proof(native(recipe(ran)), manifest(stated)).conformance
    assert found.conforms == ("yes" if ran == stated else "no"), found
    assert not found.emulated


@pytest.mark.parametrize("ran", TORCHAO)
def test_without_a_manifest_just_the_recipe_that_ran_fits(ran: str) -> None:
    found = recipe_proof(native(recipe(ran)), None).conformance
    assert (found.recipe, found.conforms) == (None, "cannot tell")
    assert found.fits == [ran]


def test_every_field_has_what_was_seen_and_how_often() -> None:
    """One FP8 layer: three GEMMs, so six operands, of which the gathered weight was cast for the gather alone."""
    found = fields(recipe_proof(native(recipe("mxtw")), manifest("mxtw")))
    assert found["grad_output"].seen == {"e5m2 tensorwise": 1}
    assert found["grad_output"].stated == "e5m2 tensorwise"
    assert found["linear layers"].seen == {"FP8": 1, "bf16": 1}
    assert found["all_gather"].seen == {"fp8 among bytes": 1}
    assert found["all_gather"].where == "1 all-gathers of parameters, 6,144 bytes, 1 weights cast for them"
    assert found["precompute_scales"].seen == {"scales computed before": 1}
    assert found["pad_inner_dim"].seen == {"padded": 3}
    assert found["power_of_2_scales"].seen == {"not rounded": 4, "cannot be told": 2}
    assert found["FP8 GEMMs"].seen == {"operators in FP8": 3, "operators not": 3, "kernels in FP8": 3, "kernels not": 3}


def test_a_layer_that_stayed_in_bf16_against_the_manifest_is_named() -> None:
    linears = [msgspec.structs.replace(linear, precision="float8") for linear in LINEARS]
    proof = recipe_proof(native(recipe("tensorwise")), manifest("tensorwise", linears))
    assert proof.conformance.conforms == "no"
    assert fields(proof)["linear layers"].where == "2 forward GEMMs of linear layers; against the manifest: lm_head"


def test_scales_computed_at_the_cast_contradict_precomputed_ones() -> None:
    ran = msgspec.structs.replace(recipe("mxtw"), precompute_scales=False)
    found = recipe_proof(native(ran), manifest("mxtw")).conformance
    assert (found.conforms, found.why) == ("no", "the trace contradicts precompute_scales")


def test_a_single_rank_gathers_nothing_so_the_gathers_dtype_makes_no_difference() -> None:
    timeline = without_gathers(native(recipe("tensorwise")))
    alone = manifest("tensorwise", world=World(size=1, nodes=1, backend="nccl"))
    assert recipe_proof(timeline, alone).conformance.conforms == "yes"
    several = recipe_proof(timeline, manifest("tensorwise")).conformance
    assert (several.conforms, several.why) == ("cannot tell", "the trace does not tell all_gather")


def without_gathers(timeline: Timeline) -> Timeline:
    kept = [row for row, name in enumerate(timeline.ops["name"].to_pylist()) if "gather" not in name]
    return replace(timeline, ops=timeline.ops.take(kept))


def test_compiled_casts_leave_the_backward_granularity_untold() -> None:
    """Only `_scaled_mm` is left to see: one scale in the backward pass may stand for rows that are scaled later."""
    timeline = native(recipe("tensorwise"))
    names = timeline.ops["name"].to_pylist()
    kept = [row for row, name in enumerate(names) if name not in ("_ToFloat8ConstrFunc", "PythonSubclass")]
    found = recipe_proof(replace(timeline, ops=timeline.ops.take(kept)), manifest("tensorwise"))
    assert found.conformance.conforms == "cannot tell"
    assert {row.field for row in found.conformance.fields if row.verdict == "cannot tell"} == {
        "grad_output", "weight_for_grad_input", "grad_output_for_grad_weight", "input_for_grad_weight",
        "power_of_2_scales",
    }  # fmt: skip
    assert fields(found)["input"].verdict == "yes"


@pytest.mark.parametrize(("kernel", "stated", "verdict"), [
    ("nvjet_qqtst_128x128", "bf16", "no"), ("nvjet_qqtst_128x128", "rowwise", "cannot tell"),
    ("nvjet_tst_128x64", "rowwise", "no"), ("nvjet_tst_128x64", "bf16", "cannot tell"),
])  # fmt: skip
def test_kernels_alone_contradict_a_recipe_and_prove_none(kernel: str, stated: str, verdict: str) -> None:
    ops = Ops()
    ops.kernel(kernel, 10)
    assert recipe_proof(ops.timeline(), manifest(stated)).conformance.conforms == verdict


def test_without_shapes_it_cannot_tell_and_says_what_to_record() -> None:
    ops = Ops()
    ops.leaf("aten::mm")
    found = recipe_proof(ops.timeline(), manifest("bf16")).conformance
    assert found.conforms == "cannot tell"
    assert found.why == "the trace has no GEMM with its shapes: profile with record_shapes"
    assert found.fits == []


def test_a_captured_loop_without_a_recipe_is_no_claim_to_prove() -> None:
    found = recipe_proof(native(recipe("rowwise")), manifest("rowwise", recipe=CAPTURED)).conformance
    assert (found.recipe, found.conforms, found.fits) == (None, "cannot tell", ["rowwise"])
    assert found.why == "the run's manifest states no recipe"


def test_emulation_in_compiled_code_cannot_be_told() -> None:
    """There the casts are fused, and the GEMMs are in FP32 whatever the recipe."""
    ops = Ops()
    with ops.call("Torch-Compiled Region: 0/0"):
        ops.leaf("aten::mm", [[32, 64], [64, 96]], ["fp32", "fp32"])
    stated = manifest("tensorwise", emulated=True, config={"compile": True})
    assert recipe_proof(ops.timeline(gpu=None), stated).conformance.conforms == "cannot tell"
    eager = manifest("tensorwise", emulated=True)
    ops = Ops()
    ops.leaf("aten::mm", [[32, 64], [64, 96]], ["fp32", "fp32"])
    assert recipe_proof(ops.timeline(gpu=None), eager).conformance.conforms == "no"


@pytest.mark.parametrize("stated", ["bf16", "mxtw"])
@pytest.mark.parametrize("ran", ["bf16", "mxtw"])
def test_the_sample_runs_conform_to_their_own_recipe_alone(ran: str, stated: str) -> None:
    timeline = read_traces(find_traces([SAMPLE / ran]))
    found = recipe_proof(timeline, read_manifest(SAMPLE / stated / "run.json")).conformance
    assert found.conforms == ("yes" if ran == stated else "no")
    assert found.emulated == (ran == "mxtw")
    assert found.fits == [ran]


def test_the_command_shows_the_verdict_and_prints_it_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(SAMPLE / "mxtw")]) == 0
    assert "Recipe mxtw: conforms: yes (every field of the recipe was seen as stated)" in capsys.readouterr().out
    assert main(["trace", str(SAMPLE / "mxtw"), "--view", "precision"]) == 0
    assert "Recipe mxtw, all ranks, FP8 emulated: conforms: yes" in capsys.readouterr().out
    assert main(["trace", str(SAMPLE / "mxtw"), "--format", "json"]) == 0
    precision = json.loads(capsys.readouterr().out)["precision"]
    assert precision["conformance"]["conforms"] == "yes"
    [first, second] = precision["ranks"]
    assert (first["rank"], second["rank"], first["clock"]) == (0, 1, "host")
    assert [row["dtype"] for row in first["gathers"]] == ["bf16", "fp8 among bytes"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each recipe by the real trainer, on two ranks of this machine."""
    folder = tmp_path_factory.mktemp("runs")
    for name in TORCHAO:
        words = f"--recipe {name} --model pico --seq-len 128 --steps 8 --eval-every 0 --profile-active 1 --no-hints"
        command = [sys.executable, "-m", "stepscope.trainer", *words.split(), "--out", str(folder), "--run-name", name]
        subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("stated", TORCHAO)
@pytest.mark.parametrize("ran", TORCHAO)
def test_a_real_run_conforms_to_its_own_recipe_and_to_no_other(trained: Path, ran: str, stated: str) -> None:
    timeline = read_traces(find_traces([trained / ran]))
    found = recipe_proof(timeline, read_manifest(trained / stated / "run.json")).conformance
    assert found.conforms == ("yes" if ran == stated else "no"), found
    assert found.fits == [ran]


def test_the_manifest_is_looked_for_beside_the_trace() -> None:
    found = manifest_beside(read_traces(find_traces([SAMPLE / "mxtw"])))
    assert found is not None
    assert found.recipe.name == "mxtw"
    assert manifest_beside(native(RECIPES[0])) is None
