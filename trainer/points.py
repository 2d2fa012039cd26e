"""The curves of a run: which tag shows what of a step, for every program that draws them."""

from typing import Any

from ..record.manifest import Manifest
from ..record.steps import Step

_TAGS = {
    "train/loss": "loss",
    "train/lr": "lr",
    "train/grad_norm": "grad_norm",
    "eval/loss": "eval_loss",
    "eval/perplexity": "eval_perplexity",
    "eval/accuracy": "eval_accuracy",
    "memory/allocated_bytes": "memory_allocated_bytes",
    "memory/reserved_bytes": "memory_reserved_bytes",
    "memory/rss_bytes": "rss_bytes",
}
"""Tag → the field of a step it shows. A field that was not measured makes no point."""

_MS_TAGS = {
    "speed/step_ms": "duration_ns",
    "speed/data_ms": "data_ns",
    "speed/forward_ms": "forward_ns",
    "speed/backward_ms": "backward_ns",
    "speed/optimizer_ms": "optimizer_ns",
}
"""Tag → the field of a step in ns that it shows in ms."""


def points(step: Step, *, tokens_of_all: int) -> dict[str, float]:
    """Tag → value. Tokens per second are those of all ranks, and left out for steps that are not timed."""
    found = {tag: getattr(step, field) for tag, field in _TAGS.items()}
    for tag, field in _MS_TAGS.items():
        value = getattr(step, field)
        found[tag] = None if value is None else value / 1e6
    if not step.marks:
        found["speed/tokens_per_s"] = tokens_of_all / (step.duration_ns / 1e9)
    return {tag: value for tag, value in found.items() if value is not None}


def hyperparameters(manifest: Manifest) -> dict[str, Any]:
    """What a program that draws curves sorts runs by: the recipe first, then every setting that is one value."""
    settings: dict[str, Any] = {"recipe": manifest.recipe.name, "emulated": manifest.emulated}
    plain = {name: value for name, value in manifest.config.items() if isinstance(value, bool | int | float | str)}
    return settings | plain
