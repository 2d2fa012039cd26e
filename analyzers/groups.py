"""Runs that belong together: those of a recipe, or, where a recipe ran in both wrappings, of a recipe and wrapping.

With both wrappings there, each group is held against the baseline in its own wrapping, so that wrapping confounds no
recipe; and each recipe's wrappings are held against each other.
"""

from collections.abc import Sequence

import msgspec

from ..record.recipes import RECIPES
from .runs import Run


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one row of a comparison."""

    recipe: str
    wrap: str | None
    """None where no recipe ran in several wrappings."""
    runs: list[Run]

    @property
    def name(self) -> str:
        """`mxtw`, or `mxtw, layer`."""
        return group_name(self.recipe, self.wrap)


def grouped(runs: Sequence[Run], baseline: str) -> list[Group]:
    """The baseline's groups first, the others in the order of the recipe table, whatever the order of `runs`."""
    wraps: dict[str, set[str]] = {}
    for run in runs:
        wraps.setdefault(run.recipe, set()).add(_wrap(run))
    by_wrap = any(len(found) > 1 for found in wraps.values())
    known = [row.name for row in RECIPES]
    names = sorted(wraps, key=lambda name: (name != baseline, known.index(name) if name in known else 99, name))
    return [
        Group(
            recipe=name,
            wrap=wrap if by_wrap else None,
            runs=[run for run in runs if run.recipe == name and wrap in (None, _wrap(run))],
        )
        for name in names
        for wrap in (sorted(wraps[name], reverse=True) if by_wrap else [None])
    ]


def baseline_of(group: Group, groups: Sequence[Group], baseline: str) -> list[Run]:
    """The baseline's runs that a group is held against: those of its own wrapping where there are some."""
    candidates = [other for other in groups if other.recipe == baseline]
    own = [run for other in candidates if other.wrap == group.wrap for run in other.runs]
    return own or [run for other in candidates for run in other.runs]


def group_name(recipe: str, wrap: str | None) -> str:
    """`mxtw`, or `mxtw, layer`."""
    return recipe if wrap is None else f"{recipe}, {wrap}"


def _wrap(run: Run) -> str:
    return str(run.manifest.config.get("wrap"))
