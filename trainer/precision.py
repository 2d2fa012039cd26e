"""A recipe's row put into a model by torchao, and which linear layers it reached.

The casts of all six operands are spelled out, so that a change of torchao's defaults changes nothing here. The output
layer stays in bf16: its GEMM is the most sensitive, and its vocabulary need not be a multiple of 16.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from ..record.errors import ConfigError
from ..record.recipes import Cast, Recipe
from .hardware import Hardware

if TYPE_CHECKING:
    from torchao.float8 import CastConfig, Float8LinearConfig

KEPT_IN_BF16 = ("lm_head",)
"""Names of linear layers that no recipe touches."""


@dataclass(frozen=True, kw_only=True)
class Precision:
    """What was done to the model."""

    emulated_why: str | None
    """Why FP8 is computed by emulation; None where the hardware computes it, or nothing is FP8."""
    linears: dict[str, list[str]]
    """Names of linear layers by the precision they run in: `float8`, `bf16`."""

    @property
    def emulated(self) -> bool:
        """Whether timings are those of an emulation."""
        return self.emulated_why is not None


def apply_recipe(model: nn.Module, recipe: Recipe, hardware: Hardware) -> Precision:
    """Swap the model's linear layers for FP8 ones as the recipe says. ConfigError for sizes that FP8 GEMMs refuse."""
    names = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not recipe.is_float8:
        return Precision(emulated_why=None, linears={"float8": [], "bf16": names})
    from torchao.float8 import convert_to_float8_training

    chosen = [name for name in names if name.rpartition(".")[2] not in KEPT_IN_BF16]
    _check_sizes(model, chosen)
    config = float8_config(recipe, emulate=hardware.why_no_fp8 is not None)
    convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: name in chosen)
    return Precision(
        emulated_why=hardware.why_no_fp8,
        linears={"float8": chosen, "bf16": [name for name in names if name not in chosen]},
    )


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


def _check_sizes(model: nn.Module, names: list[str]) -> None:
    for name in names:
        weight = model.get_parameter(f"{name}.weight")
        rows, columns = weight.shape
        if rows % 16 or columns % 16:
            raise ConfigError(
                f"--model: {name} is {rows} × {columns}, and FP8 GEMMs need multiples of 16 (inner padding mends only "
                "the token dimension); train this model with --recipe bf16"
            )
