"""Recipe against recipe: what each costs and gains, from timed steps only, with what disturbs the comparison beside it.

speed vs baseline % = (T_baseline / T − 1)·100; time saved % = (1 − T / T_baseline)·100, T being the median time of a
timed step. Memory is the largest peak of any rank's CUDA allocator or, on CPUs, the resident memory of all ranks.
Utilisation is the time-weighted mean over training: of NVML's GPU utilisation (some kernel was resident; it is not
efficiency) or, on CPUs, of the machine's CPU use.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Literal

import numpy as np

from ..record.telemetry import GpuSample, HostSample
from .cautions import REPEATS, about_groups, left_out
from .changes import Changes, changes
from .comparability import differences, unlike
from .costs import cost, peak_memory
from .gpu_use import gpu_use, time_weighted
from .groups import Group, baseline_of, grouped
from .learning import Divergence, about_learning, diverged_of, divergences, learning
from .medians import Estimate, Values, change_pct, median_of
from .results import Comparison, RecipeResult, Unjudged, WrapEffect
from .run_conformance import conforms
from .runs import Run, Unreadable, last_eval
from .stragglers import about_stragglers, stragglers
from .telemetry import study_columns_of
from .throughput import throughput
from .verdict import verdicts


def compare(runs: list[Run], unreadable: list[Unreadable], baseline: str = "bf16") -> Comparison:
    """Group runs by recipe and hold each group against the baseline's. The order of `runs` changes nothing."""
    groups = grouped([run for run in runs if run.counts], baseline)
    diverged = divergences(runs)
    results = [_result(group, baseline_of(group, groups, baseline), baseline, diverged) for group in groups]
    findings = [
        *left_out(runs, unreadable),
        *about_groups(results, groups, runs, baseline),
        *(finding for row in results for finding in about_learning(row.name, row.learning, baseline)),
        *(finding for row in results for finding in about_stragglers(row.name, row.stragglers)),
    ]
    return Comparison(
        baseline=baseline,
        recipes=results,
        wrapping=_wrapping(groups),
        verdicts=verdicts(results, baseline),
        unjudged=_unjudged(groups, runs, unreadable, diverged),
        findings=findings,
    )


def _unjudged(
    groups: list[Group], runs: list[Run], unreadable: list[Unreadable], diverged: list[Divergence]
) -> list[Unjudged]:
    judged = {group.recipe for group in groups}
    found = [
        Unjudged(name=recipe, why="none of its runs counts", diverged=any(one.recipe == recipe for one in diverged))
        for recipe in sorted({run.recipe for run in runs} - judged)
    ]
    return found + [Unjudged(name=run.name, why="cannot be read", diverged=False) for run in unreadable]


def _wrapping(groups: list[Group]) -> list[WrapEffect]:
    """What the second wrapping of each recipe does to its step time."""
    found = []
    for first, second in pairwise(groups):
        times = [_time(group.runs) for group in (first, second)]
        if (first.recipe, first.model) == (second.recipe, second.model) and times[0] and times[1]:
            found.append(
                WrapEffect(
                    recipe=first.recipe,
                    model=first.model,
                    wrap=str(second.wrap),
                    against=str(first.wrap),
                    speed_pct=change_pct(times[0], times[1]),
                )
            )
    return found


def _result(of: Group, baseline: list[Run], baseline_name: str, diverged: list[Divergence]) -> RecipeResult:
    group, is_baseline = of.runs, of.recipe == baseline_name
    time, base_time = _time(group), _time(baseline)
    comparable = not is_baseline and time is not None and base_time is not None
    memory, memory_kind, total = peak_memory(group)
    used, used_kind = _utilization(group)
    rate, base_rate = _tokens_per_s(group), _tokens_per_s(baseline)
    speed = change_pct(base_time, time) if comparable and base_time and time else None
    verdict, why = conforms(group)
    return RecipeResult(
        recipe=of.recipe,
        wrap=of.wrap,
        model=of.model,
        runs=len(group),
        run_names=sorted(run.name for run in group),
        timed_steps=sum(len(run.timed) for run in group),
        step_time_ns=time,
        tokens_per_s=rate,
        speed_vs_baseline_pct=speed,
        speed_resolved=None if speed is None or speed.ci95 is None else not speed.ci95[0] <= 0 <= speed.ci95[1],
        time_saved_pct=_saved(time, base_time) if comparable and base_time and time else None,
        changes=Changes() if is_baseline else changes(group, baseline, (time, base_time), (rate, base_rate)),
        throughput=throughput(group),
        cost=cost(group),
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
        eval_loss=_mean(last_eval(run.steps, "eval_loss") for run in group),
        eval_accuracy=_mean(last_eval(run.steps, "eval_accuracy") for run in group),
        emulated=any(run.manifest.emulated for run in group),
        emulated_why=next((run.manifest.emulated_why for run in group if run.manifest.emulated_why), None),
        confounders=_confounders([] if is_baseline else baseline, group),
        conforms=verdict,
        conforms_why=why,
        learning=learning(group, [] if is_baseline else baseline, diverged_of(of, diverged)),
        stragglers=stragglers(group),
    )


def _confounders(baseline: list[Run], group: list[Run]) -> list[str]:
    among = unlike(group)
    beyond = differences(baseline, group) if baseline else []
    return [
        *(f"{REPEATS}{name}: {values}" for name, values in among.items()),
        *(difference.text for difference in beyond if not difference.harmless and difference.setting not in among),
    ]


def _time(group: list[Run]) -> Estimate | None:
    return median_of([_step_times(run) for run in group])


def _step_times(run: Run) -> Values:
    return np.array([step.duration_ns for step in run.timed], dtype=np.float64)


def _tokens_per_s(group: list[Run]) -> Estimate | None:
    rates = [np.array([step.tokens / step.duration_ns * 1e9 for step in run.timed if step.tokens]) for run in group]
    return median_of(rates)


def _saved(time: Estimate, base: Estimate) -> Estimate:
    """(1 − T / T_baseline)·100."""
    change = change_pct(time, base)
    ci95 = None if change.ci95 is None else (-change.ci95[1], -change.ci95[0])
    return Estimate(median=0.0 - change.median, ci95=ci95)  # and not -0.0


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


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
