"""Runs that belong together: those of a recipe and, where there are several, of a model and of a wrapping.

Each group is held against the baseline of its own model, in its own wrapping where there is one: neither confounds a
recipe. Runs of different models share no row. A recipe's wrappings are held against each other.
"""

from collections.abc import Sequence

import msgspec

from ..record.recipes import RECIPES
from .runs import Run


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one row of a comparison."""

    recipe: str
    model: str | None
    """None where all runs are of one model, or none tells its own."""
    wrap: str | None
    """None where no recipe ran in several wrappings."""
    runs: list[Run]

    @property
    def name(self) -> str:
        """`mxtw`, `mxtw, layer`, or `mxtw, tiny, layer`."""
        return group_name(self.recipe, self.model, self.wrap)


def grouped(runs: Sequence[Run], baseline: str) -> list[Group]:
    """By model; the baseline's groups first, the others in the order of the recipe table, whatever that of `runs`."""
    wraps: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        wraps.setdefault((model_of(run), run.recipe), set()).add(_wrap(run))
    by_wrap = any(len(found) > 1 for found in wraps.values())
    by_model = len({model for model, _ in wraps}) > 1
    known = [row.name for row in RECIPES]

    def order(kind: tuple[str, str]) -> tuple[str, bool, int, str]:
        model, name = kind
        return model, name != baseline, known.index(name) if name in known else 99, name

    return [
        Group(
            recipe=name,
            model=model if by_model else None,
            wrap=wrap if by_wrap else None,
            runs=[run for run in runs if (model_of(run), run.recipe) == (model, name) and wrap in (None, _wrap(run))],
        )
        for model, name in sorted(wraps, key=order)
        for wrap in (sorted(wraps[model, name], reverse=True) if by_wrap else [None])
    ]


def baseline_of(group: Group, groups: Sequence[Group], baseline: str) -> list[Run]:
    """The baseline's runs of the group's model: those of its own wrapping where there are some."""
    candidates = [other for other in groups if other.recipe == baseline and other.model == group.model]
    own = [run for other in candidates if other.wrap == group.wrap for run in other.runs]
    return own or [run for other in candidates for run in other.runs]


def group_name(recipe: str, model: str | None, wrap: str | None) -> str:
    """`mxtw`, `mxtw, layer`, or `mxtw, tiny, layer`."""
    return ", ".join(part for part in (recipe, model, wrap) if part is not None)


def model_of(run: Run) -> str:
    """The model's name, or that it is not told, as of a captured program."""
    return str(run.manifest.model.get("name") or run.manifest.config.get("model") or "model not told")


def _wrap(run: Run) -> str:
    return str(run.manifest.config.get("wrap"))
