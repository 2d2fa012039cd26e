"""What a comparison of recipes consists of."""

from typing import Literal

import msgspec

from .findings import Finding
from .gpu_use import GpuUse
from .groups import group_name
from .medians import Estimate
from .telemetry import StudyColumns
from .throughput import Throughput

Conforms = Literal["yes", "no", "cannot tell"]


class RecipeResult(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one recipe, or of one recipe and wrapping. None = not measured; a finding says why."""

    recipe: str
    wrap: str | None
    """Where a recipe ran in both wrappings, the one of this row; else None."""
    model: str | None
    """Where the runs are of several models, the one of this row; else None."""
    runs: int
    run_names: list[str]
    timed_steps: int
    step_time_ns: Estimate | None
    tokens_per_s: Estimate | None
    """Unmasked tokens of all ranks."""
    speed_vs_baseline_pct: Estimate | None
    time_saved_pct: Estimate | None
    throughput: Throughput
    peak_memory_bytes: int | None
    memory_kind: Literal["cuda allocator", "resident"] | None
    memory_total_bytes: int | None
    """Of one GPU, or of the machine."""
    peak_memory_pct: float | None
    utilization_pct: float | None
    utilization_kind: Literal["gpu", "cpu"] | None
    gpu_use: GpuUse
    study_columns: StudyColumns
    """What Weights & Biases would have shown; the figures above are better ones."""
    loss_first: float | None
    """Mean over the runs, as are the three below."""
    loss_last: float | None
    eval_loss: float | None
    eval_accuracy: float | None
    emulated: bool
    emulated_why: str | None
    confounders: list[str]
    """Differences from the baseline beyond the recipe, as `setting: baseline's vs this one's`."""
    conforms: Conforms
    """Whether the traces show the recipe's precision."""
    conforms_why: str

    @property
    def name(self) -> str:
        """`mxtw`, `mxtw, layer`, or `mxtw, tiny, layer`."""
        return group_name(self.recipe, self.model, self.wrap)


class WrapEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What wrapping alone does to a recipe's speed."""

    recipe: str
    model: str | None
    """As in `RecipeResult`."""
    wrap: str
    against: str
    speed_pct: Estimate
    """(T_against / T − 1)·100."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What `stepscope compare` prints as JSON."""

    schema: Literal["stepscope.compare/1"] = "stepscope.compare/1"
    baseline: str
    recipes: list[RecipeResult]
    """The baseline first, the others in the order of the recipe table; a row for each wrapping if there are both."""
    wrapping: list[WrapEffect]
    """Empty unless a recipe ran in both wrappings."""
    findings: list[Finding]
