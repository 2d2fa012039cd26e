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

_MATTERS_MOST = (
    *("settings", "model", "data content", "devices", "processes", "nodes", "seq_len", "micro_batch", "accumulation"),
    *("wrap", "compile", "activation_checkpointing", "steps", "epochs", "torch version", "torchao version"),
)
"""Differences that a warning names before others."""
_SHOWN = 5


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One setting in which runs differ from the baseline's."""

    setting: str
    baseline: str
    """The value of the baseline's runs; several are joined by `and`."""
    value: str
    harmless: str | None = None
    """Why it disturbs nothing; None where it may."""

    @property
    def text(self) -> str:
        """Such as `wrap: whole vs layer`, the baseline's first."""
        return f"{self.setting}: {self.baseline} vs {self.value}"


def differences(baseline: Sequence[Run], runs: Sequence[Run]) -> list[Difference]:
    """Settings whose set of values differs between the two groups, in the order of the manifest.

    A program that only was captured tells no settings: that is one difference, not one for each setting.
    """
    left, right = ([settings(run.manifest) for run in group] for group in (baseline, runs))
    told = [_told(group) for group in (baseline, runs)]
    unlike_told = told[0] != told[1]
    found = [Difference(setting="settings", baseline=told[0], value=told[1])] if unlike_told else []
    for name in _names([*left, *right]):
        values = [_values(name, group) for group in (left, right)]
        if values[0] != values[1] and not (unlike_told and ["none"] in values):
            found.append(
                Difference(
                    setting=name,
                    baseline=" and ".join(values[0]),
                    value=" and ".join(values[1]),
                    harmless=HARMLESS.get(name),
                )
            )
    return found


def unlike(runs: Sequence[Run]) -> dict[str, str]:
    """Settings in which repeats of one recipe differ among themselves, harmless ones left out: steps → `2 and 16`."""
    known = [settings(run.manifest) for run in runs]
    values = {name: _values(name, known) for name in _names(known) if name not in HARMLESS}
    return {name: " and ".join(found) for name, found in values.items() if len(found) > 1}


def shortened(texts: Sequence[str]) -> str:
    """The few differences that matter most, and how many more there are."""
    ranks = {name: rank for rank, name in enumerate(_MATTERS_MOST)}
    ordered = sorted(texts, key=lambda text: ranks.get(text.partition(":")[0], len(ranks)))
    more = len(texts) - _SHOWN
    shown = ordered if more <= 1 else [*ordered[:_SHOWN], f"and {more} more (--format json has all)"]
    return "; ".join(shown)


def _told(runs: Sequence[Run]) -> str:
    return "told" if any(run.manifest.config for run in runs) or not runs else "not told"


def _names(known: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of all settings; without those that follow from the model where that differs."""
    names = dict.fromkeys(name for one in known for name in one)
    several = len(_values("model", known)) > 1
    return [name for name in names if not (several and name.startswith("model "))]


def settings(manifest: Manifest) -> dict[str, Any]:
    """Everything of a manifest that a comparison may stumble over, but for the recipe itself."""
    model = {f"model {name}": value for name, value in manifest.model.items() if name != "name"}
    return {
        **_changes_to_the_recipe(manifest.recipe),
        **manifest.config,
        "model": manifest.model.get("name") or manifest.config.get("model"),
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
