"""Recipe against recipe: what each costs and gains, from timed steps only, with what disturbs the comparison beside it.

speed vs baseline % = (T_baseline / T − 1)·100; time saved % = (1 − T / T_baseline)·100, T being the median time of a
timed step. Memory is the largest peak of any rank's CUDA allocator or, on CPUs, the resident memory of all ranks.
Utilisation is the time-weighted mean over training: of NVML's GPU utilisation (some kernel was resident; it is not
efficiency) or, on CPUs, of the machine's CPU use.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np

from ..record.telemetry import GpuSample, HostSample
from .bootstrap import Draws, Estimate, Values, change_pct, median_draws
from .comparability import differences, unlike
from .findings import Finding
from .gpu_use import GpuUse, gpu_use, time_weighted
from .groups import Group, baseline_of, group_name, grouped
from .runs import Run, Unreadable, WorldStep, seed_of
from .telemetry import StudyColumns, study_columns_of
from .throughput import Throughput, throughput

Conforms = Literal["yes", "no", "cannot tell"]


class RecipeResult(msgspec.Struct, frozen=True, kw_only=True):
    """All runs of one recipe, or of one recipe and wrapping. None = not measured; a finding says why."""

    recipe: str
    wrap: str | None
    """Where a recipe ran in both wrappings, the one of this row; else None."""
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
    """Whether the traces show the recipe's precision; `cannot tell` until something has looked."""

    @property
    def name(self) -> str:
        """`mxtw`, or `mxtw, layer`."""
        return group_name(self.recipe, self.wrap)


class WrapEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What wrapping alone does to a recipe's speed."""

    recipe: str
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


def compare(runs: list[Run], unreadable: list[Unreadable], baseline: str = "bf16") -> Comparison:
    """Group runs by recipe and hold each group against the baseline's. The order of `runs` changes nothing."""
    groups = grouped(_usable(runs), baseline)
    results = [_result(group, baseline_of(group, groups, baseline), baseline) for group in groups]
    findings = [*_left_out(runs, unreadable), *_about_groups(results, groups, baseline)]
    return Comparison(baseline=baseline, recipes=results, wrapping=_wrapping(groups), findings=findings)


def _usable(runs: list[Run]) -> list[Run]:
    return [run for run in runs if run.manifest.outcome.state in ("completed", "interrupted")]


def _wrapping(groups: list[Group]) -> list[WrapEffect]:
    """What the second wrapping of each recipe does to its step time."""
    found = []
    for first, second in pairwise(groups):
        times = [_draws(group.runs) for group in (first, second)]
        if first.recipe == second.recipe and times[0] and times[1]:
            found.append(
                WrapEffect(
                    recipe=first.recipe,
                    wrap=str(second.wrap),
                    against=str(first.wrap),
                    speed_pct=change_pct(times[0], times[1]),
                )
            )
    return found


def _result(of: Group, baseline: list[Run], baseline_name: str) -> RecipeResult:
    group, is_baseline = of.runs, of.recipe == baseline_name
    time, base_time = _draws(group), _draws(baseline)
    comparable = not is_baseline and time is not None and base_time is not None
    memory, memory_kind, total = _memory(group)
    used, used_kind = _utilization(group)
    return RecipeResult(
        recipe=of.recipe,
        wrap=of.wrap,
        runs=len(group),
        run_names=sorted(run.name for run in group),
        timed_steps=sum(len(run.timed) for run in group),
        step_time_ns=time.estimate() if time else None,
        tokens_per_s=_tokens_per_s(group),
        speed_vs_baseline_pct=change_pct(base_time, time) if comparable and base_time and time else None,
        time_saved_pct=_saved(time, base_time) if comparable and base_time and time else None,
        throughput=throughput(group),
        peak_memory_bytes=memory,
        memory_kind=memory_kind,
        memory_total_bytes=total,
        peak_memory_pct=100 * memory / total if memory is not None and total else None,
        utilization_pct=used,
        utilization_kind=used_kind,
        gpu_use=gpu_use(group),
        study_columns=study_columns_of(group),
        loss_first=_mean(run.steps[0].loss for run in group if run.steps),
        loss_last=_mean(run.steps[-1].loss for run in group if run.steps),
        eval_loss=_mean(_last_eval(run.steps, "eval_loss") for run in group),
        eval_accuracy=_mean(_last_eval(run.steps, "eval_accuracy") for run in group),
        emulated=any(run.manifest.emulated for run in group),
        emulated_why=next((run.manifest.emulated_why for run in group if run.manifest.emulated_why), None),
        confounders=[
            *(f"repeats differ in {difference}" for difference in unlike(group)),
            *([] if is_baseline or not baseline else _confounders(baseline, group)),
        ],
        conforms="cannot tell",
    )


def _confounders(baseline: list[Run], group: list[Run]) -> list[str]:
    return [difference.text for difference in differences(baseline, group) if not difference.harmless]


def _draws(group: list[Run]) -> Draws | None:
    return median_draws([_step_times(run) for run in group], seed=seed_of(group, "step time"))


def _step_times(run: Run) -> Values:
    return np.array([step.duration_ns for step in run.timed], dtype=np.float64)


def _tokens_per_s(group: list[Run]) -> Estimate | None:
    rates = [np.array([step.tokens / step.duration_ns * 1e9 for step in run.timed if step.tokens]) for run in group]
    draws = median_draws(rates, seed=seed_of(group, "tokens"))
    return draws.estimate() if draws else None


def _saved(time: Draws, base: Draws) -> Estimate:
    """(1 − T / T_baseline)·100."""
    change = change_pct(time, base)
    ci95 = None if change.ci95 is None else (-change.ci95[1], -change.ci95[0])
    return Estimate(median=-change.median, ci95=ci95)


def _memory(group: list[Run]) -> tuple[int | None, Literal["cuda allocator", "resident"] | None, int | None]:
    totals = [device.memory_bytes for run in group for device in run.manifest.devices if device.memory_bytes]
    total = min(totals, default=None)
    if any(run.on_gpu for run in group):
        peaks = [step.memory_allocated_bytes for run in group for step in run.steps]
        return max((peak for peak in peaks if peak is not None), default=None), "cuda allocator", total
    resident = [step.rss_bytes for run in group for step in run.steps]
    peak = max((value for value in resident if value is not None), default=None)
    return (peak, "resident", total) if peak is not None else (None, None, total)


def _utilization(group: list[Run]) -> tuple[float | None, Literal["gpu", "cpu"] | None]:
    on_gpu = any(run.on_gpu for run in group)
    means = [mean for run in group for mean in _means_over_training(run, on_gpu=on_gpu)]
    if not means:
        return None, None
    return sum(means) / len(means), "gpu" if on_gpu else "cpu"


def use_over_time(run: Run, *, on_gpu: bool) -> list[tuple[float, float]]:
    """(seconds since the first step, use in %) of a run, averaged over its devices at each sampling."""
    if not run.steps:
        return []
    at: dict[int, list[float]] = {}
    for points in _readings(run, on_gpu=on_gpu).values():
        for t_ns, value in points:
            at.setdefault(t_ns, []).append(value)
    start = run.steps[0].start_ns
    return [((t_ns - start) / 1e9, sum(values) / len(values)) for t_ns, values in sorted(at.items()) if t_ns >= start]


def _means_over_training(run: Run, *, on_gpu: bool) -> list[float]:
    """One time-weighted mean a device, between the first step's start and the last one's end."""
    if not run.steps:
        return []
    start, end = run.steps[0].start_ns, run.steps[-1].start_ns + run.steps[-1].duration_ns
    means = (
        time_weighted(
            [(before, at, value) for (before, _), (at, value) in pairwise([(start, 0.0), *points])], start, end
        )
        for _, points in sorted(_readings(run, on_gpu=on_gpu).items())
    )
    return [mean for mean in means if mean is not None]


def _readings(run: Run, *, on_gpu: bool) -> dict[tuple[int, int], list[tuple[int, float]]]:
    """(node, device) → (Unix ns, use in %); the host is device 0 of its node."""
    series: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for node, samples in run.telemetry.items():
        for sample in samples:
            if on_gpu and isinstance(sample, GpuSample) and sample.utilization_pct is not None:
                series.setdefault((node, sample.device), []).append((sample.t_ns, sample.utilization_pct))
            if not on_gpu and isinstance(sample, HostSample) and sample.cpu_pct is not None:
                series.setdefault((node, 0), []).append((sample.t_ns, sample.cpu_pct))
    return series


def _last_eval(steps: tuple[WorldStep, ...], name: Literal["eval_loss", "eval_accuracy"]) -> float | None:
    values = [getattr(step, name) for step in steps]
    return next((value for value in reversed(values) if value is not None), None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _left_out(runs: list[Run], unreadable: list[Unreadable]) -> list[Finding]:
    found = [
        Finding(code="unreadable-run", severity="warning", text=f"{run.name} is left out: {run.why}.")
        for run in unreadable
    ]
    for run in sorted(runs, key=lambda run: run.name):
        outcome = run.manifest.outcome
        if run.problem:
            found.append(Finding(code="run-in-part", severity="warning", text=f"{run.name}: {run.problem}."))
        if outcome.state == "failed":
            text = f"{run.name} is left out: it failed ({outcome.message})."
            found.append(Finding(code="failed-run", severity="warning", text=text))
        elif outcome.state == "running":
            text = f"{run.name} is left out: it is still running, or ended without a word."
            found.append(Finding(code="unfinished-run", severity="warning", text=text))
        elif outcome.state == "interrupted":
            text = f"{run.name} was {outcome.message}: its step times count; its losses are not those of a whole run."
            found.append(Finding(code="interrupted-run", severity="warning", text=text))
    return found


def _about_groups(results: list[RecipeResult], groups: list[Group], baseline: str) -> list[Finding]:
    found = []
    unmeasured: dict[str, list[str]] = {}
    if all(group.recipe != baseline for group in groups):
        text = (
            f"There is no run of {baseline}: speed against it is not measured. Train one, or name another --baseline."
        )
        found.append(Finding(code="no-baseline", severity="warning", text=text))
    for result, group in zip(results, groups, strict=True):
        if result.confounders:
            text = (
                f"{group.name} is confounded: besides the recipe it differs from {baseline} in "
                f"{'; '.join(result.confounders)}. Repeat one of them with the other's settings."
                if result.recipe != baseline
                else f"{group.name} is confounded: its {'; '.join(result.confounders)}. Compare like with like."
            )
            found.append(Finding(code="confounded", severity="warning", text=text, evidence={"recipe": result.recipe}))
        if result.emulated:
            text = (
                f"{group.name} ran with emulated FP8 ({result.emulated_why}): its losses are those of FP8, its step "
                "times are no speed result."
            )
            found.append(Finding(code="emulated", severity="warning", text=text, evidence={"recipe": result.recipe}))
        stated = [run.name for run in group.runs if run.manifest.recipe_as_stated]
        if stated:
            text = f"{', '.join(stated)}: the recipe {result.recipe} is as stated for a captured loop, not verified."
            found.append(Finding(code="recipe-as-stated", severity="info", text=text, evidence={"runs": stated}))
        if result.step_time_ns is None:
            text = f"{group.name} has no timed step (all are first, profiled, evaluating …): train longer."
            found.append(Finding(code="no-timed-step", severity="warning", text=text))
        if result.throughput.mfu_why:
            unmeasured.setdefault(result.throughput.mfu_why, []).append(group.name)
        if result.utilization_pct is None:
            text = f"{group.name}: utilisation is not measured: no telemetry during training."
            found.append(Finding(code="no-telemetry", severity="info", text=text))
        for run in group.runs:
            if result.step_time_ns is not None and not run.timed:
                text = f"{run.name} has no timed step: it adds nothing to the step time of {group.name}."
                found.append(Finding(code="no-timed-step", severity="warning", text=text))
    for why, recipes in unmeasured.items():
        text = f"MFU is not measured for {', '.join(recipes)}: {why}."
        found.append(Finding(code="no-mfu", severity="info", text=text))
    if results and all(sum(bool(run.timed) for run in group.runs) <= 1 for group in groups):
        text = (
            "One run a recipe: the intervals cover the noise of steps, not that between runs. Repeat each to know more."
        )
        found.append(Finding(code="single-runs", severity="info", text=text))
    return found
