"""The precision recipes, as data: one row a recipe, one cast for each operand of a linear layer's three GEMMs.

    output      = input · weightᵀ              operands `input`, `weight`
    grad_input  = grad_output · weight         operands `grad_output`, `weight_for_grad_input`
    grad_weight = grad_outputᵀ · input         operands `grad_output_for_grad_weight`, `input_for_grad_weight`

Fields follow torchao's `Float8LinearConfig` (0.14 to 0.18); `block32` is the OCP microscaling format: one e8m0 scale
for 32 values along the inner dimension. A new recipe is a new row.
"""

from typing import Literal

import msgspec

from .errors import ConfigError

FP8_CAPABILITY = (8, 9)
"""First CUDA compute capability with FP8 tensor cores (Ada; Hopper is 9.0)."""

MX_CAPABILITY = (10, 0)
"""First CUDA compute capability whose tensor cores take a scale per 32 values (Blackwell)."""

Granularity = Literal["tensorwise", "axiswise", "block32"]
Dtype = Literal["bf16", "e4m3", "e5m2"]


class Cast(msgspec.Struct, frozen=True):
    """How one operand is cast before its GEMM. `granularity` None = left in high precision (`dtype` bf16)."""

    dtype: Dtype
    granularity: Granularity | None = None


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """One precision recipe, resolved to every operand."""

    name: str
    aliases: tuple[str, ...] = ()
    """Names the studies use for it."""
    summary: str
    input: Cast
    weight: Cast
    grad_output: Cast
    input_for_grad_weight: Cast
    weight_for_grad_input: Cast
    grad_output_for_grad_weight: Cast
    all_gather: Literal["bf16", "float8"] = "bf16"
    """What FSDP2 sends over the wire when it gathers the weights of float8 linears."""
    precompute_scales: bool = False
    """Whether weight scales are computed for all layers at once after each optimizer step."""
    pad_inner_dim: bool = False
    """Whether the inner GEMM dimension is zero-padded to a multiple of 16."""
    power_of_2_scales: bool = False
    same_casts_as: str | None = None
    """A recipe whose casts are the same, so that the numbers computed are the same too."""

    @property
    def is_float8(self) -> bool:
        """Whether any GEMM runs in FP8."""
        return self.input.granularity is not None

    @property
    def float8_gemms(self) -> int:
        """How many of a linear layer's three GEMMs have FP8 operands."""
        operands = (self.input, self.grad_output, self.grad_output_for_grad_weight)
        return sum(operand.granularity is not None for operand in operands)

    @property
    def is_microscaled(self) -> bool:
        """Whether scales belong to blocks of 32 values, as only sm_100 and later compute natively."""
        return self.input.granularity == "block32"


_BF16 = Cast("bf16")
_T_E4M3, _T_E5M2 = Cast("e4m3", "tensorwise"), Cast("e5m2", "tensorwise")
_A_E4M3, _B_E4M3 = Cast("e4m3", "axiswise"), Cast("e4m3", "block32")

RECIPES: tuple[Recipe, ...] = (
    Recipe(
        name="bf16",
        aliases=("w16a16",),
        summary="the baseline: every GEMM in bfloat16",
        input=_BF16,
        weight=_BF16,
        grad_output=_BF16,
        input_for_grad_weight=_BF16,
        weight_for_grad_input=_BF16,
        grad_output_for_grad_weight=_BF16,
    ),
    Recipe(
        name="tensorwise",
        aliases=("tw",),
        summary="torchao's default: one scale per tensor",
        input=_T_E4M3,
        weight=_T_E4M3,
        grad_output=_T_E5M2,
        input_for_grad_weight=_T_E4M3,
        weight_for_grad_input=_T_E4M3,
        grad_output_for_grad_weight=_T_E5M2,
    ),
    Recipe(
        name="rowwise",
        aliases=("rw",),
        summary="one scale per row or column, a power of two",
        input=_A_E4M3,
        weight=_A_E4M3,
        grad_output=_A_E4M3,
        input_for_grad_weight=_A_E4M3,
        weight_for_grad_input=_A_E4M3,
        grad_output_for_grad_weight=_A_E4M3,
        power_of_2_scales=True,
    ),
    Recipe(
        name="rowwise_with_gw_hp",
        aliases=("rw_gw_hp", "rw_with_gw_hp"),
        summary="rowwise, with grad_weight's GEMM left in bfloat16",
        input=_A_E4M3,
        weight=_A_E4M3,
        grad_output=_A_E4M3,
        input_for_grad_weight=_BF16,
        weight_for_grad_input=_T_E4M3,
        grad_output_for_grad_weight=_BF16,
        power_of_2_scales=True,
    ),
    Recipe(
        name="mxtw",
        aliases=("custom",),
        summary="hand-built tensorwise casts, inner padding, float8 all-gather with precomputed scales",
        input=_T_E4M3,
        weight=_T_E4M3,
        grad_output=_T_E5M2,
        input_for_grad_weight=_T_E4M3,
        weight_for_grad_input=_T_E4M3,
        grad_output_for_grad_weight=_T_E5M2,
        all_gather="float8",
        precompute_scales=True,
        pad_inner_dim=True,
        same_casts_as="tensorwise",
    ),
    Recipe(
        name="mxfp8",
        summary="microscaling: one power-of-two scale per 32 values; a prototype in torchao",
        input=_B_E4M3,
        weight=_B_E4M3,
        grad_output=_B_E4M3,
        input_for_grad_weight=_B_E4M3,
        weight_for_grad_input=_B_E4M3,
        grad_output_for_grad_weight=_B_E4M3,
        power_of_2_scales=True,
    ),
)


CAPTURED = Recipe(
    name="captured",
    summary="a loop of one's own, recorded without the name of its recipe",
    input=_BF16,
    weight=_BF16,
    grad_output=_BF16,
    input_for_grad_weight=_BF16,
    weight_for_grad_input=_BF16,
    grad_output_for_grad_weight=_BF16,
)
"""What stands in a manifest where nothing is known of the casts."""


def recipe(name: str) -> Recipe:
    """The recipe called `name` (or one of its aliases); ConfigError lists the names there are."""
    for row in RECIPES:
        if name == row.name or name in row.aliases:
            return row
    known = ", ".join(row.name for row in RECIPES)
    raise ConfigError(f"there is no recipe {name!r}; choose from {known}")


def why_emulated(row: Recipe, capability: tuple[int, int] | None) -> str | None:
    """Why the recipe's FP8 is emulated where the least GPU has `capability` (None: no GPU); None where it is not."""
    if not row.is_float8:
        return None
    if capability is None:
        return "no GPU"
    needed = MX_CAPABILITY if row.is_microscaled else FP8_CAPABILITY
    if capability < needed:
        has, needs = (".".join(map(str, pair)) for pair in (capability, needed))
        return f"the GPU's compute capability is {has}; {row.name} needs {needs} or more"
    return None
