"""What differs between runs besides the recipe, sorted into what can disturb a comparison and what cannot.

Everything in a manifest that can differ is a setting here: configuration, hardware, data, versions, environment. A
setting that is not known to be harmless is a confounder.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ..record.manifest import Manifest
from ..record.recipes import RECIPES, Recipe
from .runs import Run

HARMLESS = {
    "profile": "profiled steps are left out of every timing",
    "capture": "profiled steps are left out of every timing, and nsys has a pass of its own",
    "nsys_graph_nodes": "nsys has a pass of its own",
    "nsys_operators": "nsys has a pass of its own",
    "nsys_memory": "nsys has a pass of its own",
    **dict.fromkeys(
        (*("profile_at", "profile_ranks", "profile_shapes", "profile_memory", "profile_stacks", "profile_limit"),),
        "profiled steps are left out of every timing",
    ),
    "profile_wait": "profiled steps are left out of every timing",
    "profile_warmup": "profiled steps are left out of every timing",
    "profile_active": "profiled steps are left out of every timing",
    "profile_repeat": "profiled steps are left out of every timing",
    "numerics": "steps with FP8 statistics are left out of every timing, and compute the same",
    "memory_detail": "the step whose memory is accounted for is left out of every timing, and computes the same",
    "telemetry_period": "sampling costs a thread some milliseconds of CPU time a second",
    "eval_every": "evaluation lies outside the timed steps and changes no weight",
    "checkpoint_every": "steps beside a checkpoint are left out of every timing",
    "checkpoint_keep": "steps beside a checkpoint are left out of every timing",
    "save_model": "the model is saved after the last step",
    "fp8_all_gather": "stands in the recipe as it was resolved",
    "pad_inner_dim": "stands in the recipe as it was resolved",
    "data": "the file's content is compared, not its place",
    "CUDA_VISIBLE_DEVICES": "says which GPUs, not what they are",
    "SLURM_JOB_ID": "a job's number",
    "git_commit": "told for the record; what the code does differently shows in the settings",
}
"""Settings that may differ, and why that does no harm."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One setting in which runs differ from the baseline's."""

    setting: str
    baseline: str
    """The value of the baseline's runs; several are joined by `and`."""
    value: str
    harmless: str | None
    """Why it disturbs nothing; None where it may."""

    @property
    def text(self) -> str:
        """Such as `wrap: whole vs layer`, the baseline's first."""
        return f"{self.setting}: {self.baseline} vs {self.value}"


def differences(baseline: Iterable[Run], runs: Iterable[Run]) -> list[Difference]:
    """Settings whose set of values differs between the two groups, in the order of the manifest."""
    left = [settings(run.manifest) for run in baseline]
    right = [settings(run.manifest) for run in runs]
    names = dict.fromkeys(name for known in (*left, *right) for name in known)
    found = []
    for name in names:
        values = [_values(name, group) for group in (left, right)]
        if values[0] != values[1]:
            found.append(
                Difference(
                    setting=name,
                    baseline=" and ".join(values[0]),
                    value=" and ".join(values[1]),
                    harmless=HARMLESS.get(name),
                )
            )
    return found


def unlike(runs: Sequence[Run]) -> list[str]:
    """Settings in which repeats of one recipe differ among themselves, harmless ones left out: `steps: 2 and 16`."""
    known = [settings(run.manifest) for run in runs]
    names = dict.fromkeys(name for one in known for name in one if name not in HARMLESS)
    values = {name: _values(name, known) for name in names}
    return [f"{name}: {' and '.join(found)}" for name, found in values.items() if len(found) > 1]


def settings(manifest: Manifest) -> dict[str, Any]:
    """Everything of a manifest that a comparison may stumble over, but for the recipe itself."""
    model = {f"model {name}": value for name, value in manifest.model.items() if name != "name"}
    return {
        **_changes_to_the_recipe(manifest.recipe),
        **manifest.config,
        "data content": manifest.data.get("sha256"),
        **model,
        "processes": manifest.world.size,
        "nodes": manifest.world.nodes,
        "backend": manifest.world.backend,
        "devices": _counted(device.name for device in manifest.devices),
        "device memory": _counted(f"{device.memory_bytes} B" for device in manifest.devices if device.kind == "cuda"),
        "driver": _counted(device.driver for device in manifest.devices if device.driver),
        **{f"{name} version": version for name, version in manifest.versions.items()},
        **manifest.environment,
        "git_commit": manifest.git_commit,
    }


def _changes_to_the_recipe(recipe: Recipe) -> dict[str, Any]:
    """Fields in which a run's recipe differs from the recipe of its name: flags have overridden it."""
    for row in RECIPES:
        if row.name == recipe.name:
            fields = ("all_gather", "precompute_scales", "pad_inner_dim", "power_of_2_scales")
            return {
                f"{name} instead of the recipe's": getattr(recipe, name)
                for name in fields
                if getattr(recipe, name) != getattr(row, name)
            }
    return {}


def _values(name: str, group: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({_shown(known.get(name)) for known in group}, key=_in_order)


def _in_order(text: str) -> tuple[float, str]:
    try:
        return float(text), text
    except ValueError:
        return float("inf"), text


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 40 else text[:12] + "…"


def _counted(values: Iterable[str]) -> str | None:
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return ", ".join(f"{count} × {value}" for value, count in sorted(counts.items())) or None
