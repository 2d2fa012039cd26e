"""A recipe's row put into a model by torchao, and which linear layers it reached.

The casts of all six operands are spelled out, so that a change of torchao's defaults changes nothing here.
"""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..record.errors import ConfigError
from ..record.manifest import Linear
from ..record.recipes import Cast, Recipe
from .hardware import Hardware

if TYPE_CHECKING:
    from torchao.float8 import CastConfig, Float8LinearConfig


@dataclass(frozen=True, kw_only=True)
class Precision:
    """What was done to the model."""

    emulated_why: str | None
    """Why FP8 is computed by emulation; None where the hardware computes it, or nothing is FP8."""
    linears: list[Linear]
    """Every linear layer, in the model's order."""

    @property
    def emulated(self) -> bool:
        """Whether timings are those of an emulation."""
        return self.emulated_why is not None


def kept_patterns(text: str) -> list[str]:
    """`--fp8-filter` as patterns: `lm_head,*.k_proj`; empty or `none` keeps nothing back."""
    return [part.strip() for part in text.split(",") if part.strip() and part.strip() != "none"]


def apply_recipe(model: nn.Module, recipe: Recipe, hardware: Hardware, *, keep: Sequence[str]) -> Precision:
    """Make the model's linear layers compute as the recipe says, but for those that a pattern of `keep` matches.

    ConfigError for a pattern that matches none, and for sizes that FP8 GEMMs refuse.
    """
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    names = list(layers)
    if not recipe.is_float8:
        why_bf16 = dict.fromkeys(names, f"recipe {recipe.name} has no FP8 GEMM")
        return Precision(emulated_why=None, linears=_described(layers, why_bf16))
    for pattern in keep:
        if not fnmatch.filter(names, pattern):
            raise ConfigError(f"--fp8-filter: {pattern} matches no linear layer; there are {', '.join(names[:8])} …")
    chosen = [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in keep)]
    _check_sizes(model, chosen, multiple=32 if recipe.is_microscaled else 16)
    why = hardware.why_emulated(recipe)
    convert = _to_microscaled if recipe.is_microscaled else _to_float8
    convert(model, recipe, chosen, emulate=why is not None)
    kept = {name: _why_kept(name, keep) for name in names if name not in chosen}
    return Precision(emulated_why=why, linears=_described(layers, kept))


def _why_kept(name: str, keep: Sequence[str]) -> str:
    pattern = next(pattern for pattern in keep if fnmatch.fnmatchcase(name, pattern))
    return f"--fp8-filter {pattern}"


def _described(layers: dict[str, nn.Linear], kept: dict[str, str]) -> list[Linear]:
    """All layers; those of `kept` stay in bf16, for the reason that stands there."""
    return [
        Linear(
            name=name,
            out_features=layer.out_features,
            in_features=layer.in_features,
            precision="bf16" if name in kept else "float8",
            why=kept.get(name),
        )
        for name, layer in layers.items()
    ]


def _to_float8(model: nn.Module, recipe: Recipe, names: list[str], *, emulate: bool) -> None:
    from torchao.float8 import convert_to_float8_training

    config = float8_config(recipe, emulate=emulate)
    convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: name in names)


def _to_microscaled(model: nn.Module, _: Recipe, names: list[str], *, emulate: bool) -> None:
    from torchao.prototype.moe_training.config import MXFP8TrainingOpConfig, MXFP8TrainingRecipe
    from torchao.quantization import quantize_

    preset = MXFP8TrainingRecipe.MXFP8_EMULATED_RCEIL if emulate else MXFP8TrainingRecipe.MXFP8_RCEIL
    config = MXFP8TrainingOpConfig.from_recipe(preset)
    quantize_(model, config=config, filter_fn=lambda _, name: name in names)


def float8_config(recipe: Recipe, *, emulate: bool) -> "Float8LinearConfig":
    """The recipe as torchao's configuration."""
    from torchao.float8 import Float8LinearConfig

    return Float8LinearConfig(
        cast_config_input=_cast(recipe.input, like=recipe.input),
        cast_config_weight=_cast(recipe.weight, like=recipe.weight),
        cast_config_grad_output=_cast(recipe.grad_output, like=recipe.grad_output),
        cast_config_input_for_grad_weight=_cast(recipe.input_for_grad_weight, like=recipe.input),
        cast_config_weight_for_grad_input=_cast(recipe.weight_for_grad_input, like=recipe.weight),
        cast_config_grad_output_for_grad_weight=_cast(recipe.grad_output_for_grad_weight, like=recipe.grad_output),
        enable_fsdp_float8_all_gather=recipe.all_gather == "float8",
        pad_inner_dim=recipe.pad_inner_dim,
        round_scales_to_power_of_2=recipe.power_of_2_scales,
        emulate=emulate,
    )


def precompute_scales(model: nn.Module) -> None:
    """Scales of all float8 weights at once, with one all-reduce; due after each optimizer step."""
    from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp

    precompute_float8_dynamic_scale_for_fsdp(model)


def _cast(cast: Cast, *, like: Cast) -> "CastConfig":
    """`like` lends its dtype to an operand left in high precision: torchao wants one dtype per operand, used or not."""
    from torchao.float8 import CastConfig, ScalingGranularity, ScalingType
    from torchao.float8.config import e4m3_dtype, e5m2_dtype

    dtypes: dict[str, torch.dtype] = {"e4m3": e4m3_dtype, "e5m2": e5m2_dtype}
    if cast.granularity is None:
        return CastConfig(scaling_type=ScalingType.DISABLED, target_dtype=dtypes[like.dtype])
    return CastConfig(
        scaling_type=ScalingType.DYNAMIC,
        scaling_granularity=ScalingGranularity(cast.granularity),
        target_dtype=dtypes[cast.dtype],
    )


def _check_sizes(model: nn.Module, names: list[str], *, multiple: int) -> None:
    for name in names:
        weight = model.get_parameter(f"{name}.weight")
        rows, columns = weight.shape
        if rows % multiple or columns % multiple:
            raise ConfigError(
                f"--model: {name} is {rows} × {columns}, and this recipe's GEMMs need multiples of {multiple} (inner "
                f"padding mends only the token dimension); keep it in bf16 with --fp8-filter {name}"
            )
