"""What a comparison of recipes consists of."""

from typing import Literal

import msgspec

from ..record.units import NOT_MEASURED
from .changes import Changes
from .costs import Cost
from .findings import Finding
from .gpu_use import GpuUse
from .groups import group_name
from .learning import Learning
from .medians import Estimate
from .stragglers import Straggler
from .telemetry import StudyColumns
from .throughput import Throughput

Conforms = Literal["yes", "no", "cannot tell"]
Speed = Literal["faster", "slower", "no difference resolved", "abstains"]
Learns = Literal["alike", "worse", "better", "abstains"]


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
    speed_resolved: bool | None
    """Whether its interval leaves out 0; None without an interval."""
    time_saved_pct: Estimate | None
    changes: Changes
    """Against the baseline, as more or less of each cost."""
    throughput: Throughput
    cost: Cost
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
    learning: Learning
    stragglers: list[Straggler]
    """Ranks and repeats that are slower than their like."""

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


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the evidence carries about one recipe, in sentences."""

    recipe: str
    """The row's name."""
    speed: Speed
    learns: Learns
    """`alike`: the loss is within 1 % of the baseline's; `worse` and `better`: beyond it."""
    text: str
    """Speed, memory and loss with their figures."""
    distrust: list[str]
    """What stands against quoting them."""
    next: list[str]
    """What to run to know more."""


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a gate found of one recipe."""

    gate: str
    """The condition on which it fails: `step_time > +3 %`."""
    metric: str
    recipe: str | None
    """The row's name; None where there is none to judge."""
    outcome: Literal["pass", "fail", "inconclusive"]
    value: float | None = None
    ci95: tuple[float, float] | None = None
    unit: Literal["%", ""] = ""
    why: str | None = None
    """Why it is inconclusive, or what to mind of how it was decided."""

    @property
    def said(self) -> str:
        """`failed`, `inconclusive`, `passed`."""
        return {"fail": "failed", "pass": "passed"}.get(self.outcome, self.outcome)

    @property
    def line(self) -> str:
        """`mxtw: step_time +5.2 % [+4.1, +6.3], fails if > +3 %`."""
        condition = self.gate.removeprefix(self.metric).strip()
        why = f" ({self.why})" if self.why and self.why != self.figure else ""
        return f"{f'{self.recipe}: ' if self.recipe else ''}{self.metric} {self.figure}, fails if {condition}{why}"

    @property
    def figure(self) -> str:
        """`+5.2 % [+4.1, +6.3]`."""
        if self.value is None:
            return NOT_MEASURED
        if not self.unit:
            return f"{self.value:g}"
        ends = f" [{self.ci95[0]:+.2f}, {self.ci95[1]:+.2f}]" if self.ci95 else ""
        return f"{self.value:+.2f} %{ends}"


class Unjudged(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe without a row, as none of its runs counts, or a run that could not be read."""

    name: str
    why: str
    diverged: bool
    """Whether a run of it ended because its loss or gradient norm was no number."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What `stepscope compare` prints as JSON."""

    schema: Literal["stepscope.compare/1"] = "stepscope.compare/1"
    baseline: str
    recipes: list[RecipeResult]
    """The baseline first, the others in the order of the recipe table; a row for each wrapping if there are both."""
    wrapping: list[WrapEffect]
    """Empty unless a recipe ran in both wrappings."""
    verdicts: list[Verdict]
    """One for each recipe but the baseline."""
    findings: list[Finding]
    unjudged: list[Unjudged]
    """What a gate must not pass over in silence."""
    gates: list[GateResult] = []
    """What `--fail-if` asked, for each recipe but the baseline."""
