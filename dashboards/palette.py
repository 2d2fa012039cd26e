"""One colour for each recipe, the same in every figure, told apart by colour-blind eyes too (Okabe and Ito, 2008)."""

COLOURS = {
    "bf16": "#4d4d4d",
    "tensorwise": "#0072b2",
    "rowwise": "#d55e00",
    "rowwise_with_gw_hp": "#cc79a7",
    "mxtw": "#009e73",
    "mxfp8": "#e69f00",
}
_SPARE = ("#56b4e9", "#8c6d31", "#7b4173")


def colour_of(name: str) -> str:
    """The colour of `mxtw` or `mxtw, layer`; one of the spare ones, always the same, for a recipe that has none."""
    recipe = name.partition(",")[0]
    return COLOURS.get(recipe) or _SPARE[sum(recipe.encode()) % len(_SPARE)]
