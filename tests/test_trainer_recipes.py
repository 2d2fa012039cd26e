"""What each recipe computes: torchao's configuration, the layers it reaches, and the training it gives."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from stepscope.record.errors import ConfigError
from stepscope.record.recipes import RECIPES, recipe
from stepscope.trainer.batches import HeldOutRows, Layout
from stepscope.trainer.build import build
from stepscope.trainer.config import Config
from stepscope.trainer.evaluation import answer_logits, evaluate
from stepscope.trainer.examples import IGNORED, Example
from stepscope.trainer.export import save_model
from stepscope.trainer.hardware import Hardware
from stepscope.trainer.learning_rate import lr_factor
from stepscope.trainer.loop import Job
from stepscope.trainer.models import build_model
from stepscope.trainer.place import Place
from stepscope.trainer.precision import Precision, apply_recipe, float8_config
from stepscope.trainer.resolve import resolved
from stepscope.trainer.sharding import unwrapped
from stepscope.trainer.tokens import byte_tokenizer

CPU = torch.device("cpu")
NO_GPU = Hardware(gpus=0, capability=None, cores=2)
FP8_RECIPES = [row.name for row in RECIPES if row.is_float8]


@pytest.fixture(scope="module")
def one_rank() -> Iterator[Place]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield Place(rank=0, local_rank=0, world=1, local_world=1, node=0, device=CPU)
    dist.destroy_process_group()


def built(here: Place, qa_file: Path, **settings: Any) -> Job:
    config = Config(model="pico", data=qa_file, seq_len=128, profile=False, **settings)
    return build(resolved(config, NO_GPU, {}), here, NO_GPU).job


def gradients(here: Place, qa_file: Path, **settings: Any) -> torch.Tensor:
    """The first step's gradients of all layers that FP8 recipes convert, in one vector."""
    job = built(here, qa_file, **settings)
    batches, tokens = job.rows.step(1)
    logits = answer_logits(job.model, batches[0])
    (nn.functional.cross_entropy(logits, batches[0].labels.flatten(), reduction="sum") / tokens).backward()
    return torch.cat(
        [
            parameter.grad.full_tensor().float().flatten()
            for name, parameter in job.model.named_parameters()
            if "proj" in name
        ]
    )


@pytest.mark.parametrize("name", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
def test_our_rows_are_torchaos_presets(name: str) -> None:
    from torchao.float8 import Float8LinearConfig

    assert float8_config(recipe(name), emulate=False) == Float8LinearConfig.from_recipe_name(name)


def test_mxtw_is_tensorwise_with_padding_and_a_float8_all_gather() -> None:
    from dataclasses import replace as changed

    tensorwise = float8_config(recipe("tensorwise"), emulate=True)
    assert float8_config(recipe("mxtw"), emulate=True) == changed(
        tensorwise, pad_inner_dim=True, enable_fsdp_float8_all_gather=True
    )


def named(done: Precision, precision: str) -> list[str]:
    return [linear.name for linear in done.linears if linear.precision == precision]


def test_in_bf16_every_layer_says_that_the_recipe_has_no_fp8() -> None:
    done = apply_recipe(build_model("pico", seed=1, device=CPU), recipe("bf16"), NO_GPU, keep=["lm_head"])
    assert {linear.why for linear in done.linears} == {"recipe bf16 has no FP8 GEMM"}


def test_fp8_reaches_every_linear_layer_but_the_output_and_says_so() -> None:
    model = build_model("pico", seed=1, device=CPU)
    done = apply_recipe(model, recipe("tensorwise"), NO_GPU, keep=["lm_head"])
    assert done.emulated_why == "no GPU"
    assert named(done, "bf16") == ["lm_head"]
    assert len(named(done, "float8")) == 2 * 7
    assert [(linear.name, linear.out_features, linear.in_features, linear.why) for linear in done.linears[1:2]] == [
        ("model.layers.0.self_attn.k_proj", 64, 128, None)
    ]
    kinds = {linear.name: type(model.get_submodule(linear.name)).__name__ for linear in done.linears}
    assert {kind for name, kind in kinds.items() if name != "lm_head"} == {"Float8Linear"}
    assert kinds["lm_head"] == "Linear"


def test_layers_that_a_pattern_names_stay_in_bf16() -> None:
    model = build_model("pico", seed=1, device=CPU)
    done = apply_recipe(model, recipe("rowwise"), NO_GPU, keep=["lm_head", "*.k_proj", "model.layers.0.mlp.*"])
    assert [linear.why for linear in done.linears[:2]] == [None, "--fp8-filter *.k_proj"]
    assert named(done, "bf16") == [
        "model.layers.0.self_attn.k_proj",
        "model.layers.0.mlp.gate_proj",
        "model.layers.0.mlp.up_proj",
        "model.layers.0.mlp.down_proj",
        "model.layers.1.self_attn.k_proj",
        "lm_head",
    ]


def test_a_pattern_that_names_no_layer_is_refused() -> None:
    with pytest.raises(ConfigError, match="--fp8-filter: embed matches no linear layer"):
        apply_recipe(build_model("pico", seed=1, device=CPU), recipe("rowwise"), NO_GPU, keep=["embed"])


def test_microscaling_wraps_the_weights_of_every_chosen_layer() -> None:
    model = build_model("pico", seed=1, device=CPU)
    done = apply_recipe(model, recipe("mxfp8"), NO_GPU, keep=["lm_head"])
    kinds = {type(model.get_parameter(f"{name}.weight").data).__name__ for name in named(done, "float8")}
    assert kinds == {"MXFP8TrainingWeightWrapperTensor"}
    assert (len(named(done, "float8")), done.emulated_why) == (14, "no GPU")


def test_a_layer_whose_size_is_no_multiple_of_16_is_refused() -> None:
    with pytest.raises(ConfigError, match="mid is 40 × 32"):
        apply_recipe(nn.ModuleDict({"mid": nn.Linear(32, 40)}), recipe("mxtw"), NO_GPU, keep=[])


def test_bf16_models_keep_their_rotary_frequencies_in_float32() -> None:
    model: Any = build_model("pico", seed=1, device=CPU)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32


def test_weights_depend_on_the_seed_alone() -> None:
    first, again, other = (build_model("pico", seed=seed, device=CPU).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_learning_rate_rises_in_a_line_and_falls_in_half_a_cosine() -> None:
    rates = [lr_factor(done, warmup=3, steps=11) for done in range(12)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[7] == pytest.approx(0.5)
    assert rates[5] == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert rates[11] == pytest.approx(0.0)
    assert lr_factor(0, warmup=0, steps=1) == 1.0


def test_evaluation_is_the_mean_over_unmasked_tokens(one_rank: Place) -> None:
    def row(*labels: int) -> tuple[Example]:
        kept = np.array(labels, np.int32)
        return (Example(np.zeros(len(labels), np.int32), kept, int((kept != IGNORED).sum()), truncated=False),)

    class AlwaysTheSame(nn.Module):
        """Says token 1 with probability 1/2, tokens 0 and 2 with 1/4 each, everywhere."""

        def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
            logits = torch.tensor([0.25, 0.5, 0.25]).log()
            return SimpleNamespace(logits=logits.expand(*input_ids.shape, 3))

    layout = Layout(rank=0, world=1, micro_batch=2, accumulation=1, seq_len=4, pad=0, pack=False, device=CPU)
    rows = HeldOutRows([row(IGNORED, 1, 1), row(2), row(IGNORED, 0, 1, 1)], layout)
    found = evaluate(AlwaysTheSame(), rows, CPU)
    # Six tokens: four times 1 (ln 2 each), and a 2 and a 0 (ln 4 each).
    assert found.loss == pytest.approx(8 * math.log(2) / 6)
    assert found.perplexity == pytest.approx(2 ** (8 / 6))
    assert found.accuracy == pytest.approx(4 / 6)


def test_packed_examples_attend_to_themselves_only(one_rank: Place, qa_file: Path) -> None:
    apart, packed = (built(one_rank, qa_file, pack=pack, eval_samples=8) for pack in (False, True))
    found = [evaluate(job.model, job.held_out, CPU) for job in (apart, packed)]
    assert len(packed.held_out) < len(apart.held_out)
    assert found[1].loss == pytest.approx(found[0].loss, abs=2e-3)  # bf16, other shapes


@pytest.mark.parametrize("name", FP8_RECIPES)
def test_first_gradients_are_those_of_bf16_but_for_fp8s_rounding(one_rank: Place, qa_file: Path, name: str) -> None:
    exact, rounded = (gradients(one_rank, qa_file, recipe=chosen) for chosen in ("bf16", name))
    sqnr_db = 10 * torch.log10(exact.square().sum() / (exact - rounded).square().sum())
    assert 15 < sqnr_db < 60


@pytest.fixture(scope="module")
def two_ranks(qa_file: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[float]]]:
    """Case → losses, for both ranks of one job that trains every case in turn."""
    out = tmp_path_factory.mktemp("two_ranks")
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    words += [str(Path(__file__).with_name("two_ranks.py")), str(qa_file), str(out)]
    done = subprocess.run(
        words, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    return [json.loads((out / f"rank{rank}.json").read_text()) for rank in range(2)]


def test_both_ranks_see_one_loss_and_it_falls_in_every_case(two_ranks: list[dict[str, list[float]]]) -> None:
    assert two_ranks[0] == two_ranks[1]
    for name, losses in two_ranks[0].items():
        assert losses[-1] < losses[0] - 0.3, name


def test_mxtw_is_tensorwise_to_the_last_bit_whatever_is_gathered(two_ranks: list[dict[str, list[float]]]) -> None:
    found = two_ranks[0]
    assert found["mxtw, bf16 gather"] == found["tensorwise"]
    assert found["mxtw"] == found["tensorwise"]
    assert found["rowwise"] != found["tensorwise"]


def test_recipes_start_from_the_same_weights_and_stay_near_bf16(two_ranks: list[dict[str, list[float]]]) -> None:
    found = two_ranks[0]
    for name in FP8_RECIPES:
        assert found[name][0] == pytest.approx(found["bf16"][0], abs=0.01)
        assert found[name][-1] == pytest.approx(found["bf16"][-1], abs=0.1)


@pytest.mark.parametrize("case", ["bf16, whole", "bf16, recomputed", "bf16, kept gathered"])
def test_wrapping_and_recomputing_change_no_bit(two_ranks: list[dict[str, list[float]]], case: str) -> None:
    assert two_ranks[0][case] == two_ranks[0]["bf16"]


def test_accumulation_trains_the_same_batch_but_for_rounding(two_ranks: list[dict[str, list[float]]]) -> None:
    assert two_ranks[0]["bf16, accumulated"] == pytest.approx(two_ranks[0]["bf16"], abs=0.02)


@pytest.mark.parametrize("name", ["bf16", "mxtw", "mxfp8"])
def test_the_saved_model_is_the_trained_one_in_bf16(one_rank: Place, qa_file: Path, tmp_path: Path, name: str) -> None:
    from transformers import AutoModelForCausalLM

    job = built(one_rank, qa_file, recipe=name, master_dtype="fp32")
    save_model(job.model, byte_tokenizer(), tmp_path, rank=0)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    for key, weight in job.model.named_parameters():
        assert torch.equal(loaded[key], unwrapped(weight).full_tensor().bfloat16()), key
