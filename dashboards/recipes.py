"""`stepscope recipes`: the precision recipes, operand by operand."""

import sys

import msgspec

from ..record.recipes import RECIPES, Cast, Recipe
from ..record.recipes import recipe as recipe_called
from .tables import Column, Format, Table, csv_text, json_text, print_table, print_text, terminal

GEMMS = (
    ("output = input · weightᵀ", ("input", "weight")),
    ("grad_input = grad_output · weight", ("grad_output", "weight_for_grad_input")),
    ("grad_weight = grad_outputᵀ · input", ("grad_output_for_grad_weight", "input_for_grad_weight")),
)
"""The three GEMMs of a linear layer, and the recipe's casts of their operands."""


def recipes(name: str | None = None, /, *, format: Format = "table") -> None:
    """List the precision recipes, or show one operand by operand.

    Example: `stepscope recipes mxtw`

    Parameters
    ----------
    name
        A recipe's name or alias; without it all are listed.
    format
        table; csv; json: everything, as stepscope.recipe/1, or stepscope.recipes/1 for all.
    """
    chosen = recipe_called(name) if name else None
    if format == "json":
        one = {"schema": "stepscope.recipe/1"} | msgspec.to_builtins(chosen) if chosen else None
        sys.stdout.write(json_text(one or {"schema": "stepscope.recipes/1", "recipes": RECIPES}))
        return
    table = operands(chosen) if chosen else overview()
    if format == "csv":
        sys.stdout.write(csv_text(table))
        return
    console = terminal()
    print_table(table, console)
    for sentence in in_words(chosen) if chosen else ():
        print_text(sentence, console)


def overview() -> Table:
    """One row a recipe."""
    return Table(
        title="Recipes",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="aliases", heading="also", right=False),
            Column(name="fp8_gemms", heading="FP8 GEMMs of 3"),
            Column(name="all_gather", heading="all-gather", right=False),
            Column(name="summary", heading="what it is", right=False, fold=True),
        ],
        rows=[(row.name, ", ".join(row.aliases), row.float8_gemms, row.all_gather, row.summary) for row in RECIPES],
        note="stepscope recipes NAME shows one operand by operand; profile-train --recipe NAME trains with it.",
    )


def operands(recipe: Recipe) -> Table:
    """Both operands of each GEMM."""
    return Table(
        title=f"{recipe.name}: {recipe.summary}",
        columns=[
            Column(name="gemm", heading="GEMM", show=lambda gemm: gemm.partition(" = ")[0], right=False),
            Column(name="operand", heading="operand", right=False),
            Column(name="dtype", heading="dtype", right=False),
            Column(name="granularity", heading="one scale per", right=False),
        ],
        rows=[
            (gemm if index == 0 else "", operand, getattr(recipe, operand).dtype, _scale(getattr(recipe, operand)))
            for gemm, names in GEMMS
            for index, operand in enumerate(names)
        ],
        note="; ".join(gemm for gemm, _ in GEMMS) + ".",
    )


def in_words(recipe: Recipe) -> list[str]:
    """What the table of operands does not say."""
    gather = "bf16" if recipe.all_gather == "bf16" else "float8, half the bytes of bf16"
    said = [f"FSDP2 gathers the weights of its linear layers in {gather}."]
    if recipe.precompute_scales:
        said.append("Scales of all weights are computed at once after each optimizer step, with one all-reduce.")
    if recipe.pad_inner_dim:
        said.append("The inner GEMM dimension is zero-padded to a multiple of 16.")
    if recipe.power_of_2_scales:
        said.append("Scales are rounded down to powers of two.")
    if recipe.is_float8:
        said.append(f"{recipe.float8_gemms} of the 3 GEMMs of a linear layer run in FP8.")
    if recipe.same_casts_as:
        other = recipe_called(recipe.same_casts_as)
        differing = [what for what, differs in _beyond_casts(recipe, other).items() if differs]
        said.append(
            f"Its casts equal those of {other.name}: it computes the same numbers, and any difference in speed comes "
            f"from {' and '.join(differing)}."
        )
    return said


def _beyond_casts(recipe: Recipe, other: Recipe) -> dict[str, bool]:
    return {
        "the dtype of the all-gather": recipe.all_gather != other.all_gather,
        "precomputed scales": recipe.precompute_scales != other.precompute_scales,
        "padding": recipe.pad_inner_dim != other.pad_inner_dim,
    }


def _scale(cast: Cast) -> str:
    words = {None: "none: high precision", "tensorwise": "tensor", "axiswise": "row or column", "block32": "32 values"}
    return words[cast.granularity]
