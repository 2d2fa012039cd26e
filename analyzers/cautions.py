"""What to mind before quoting a comparison: runs left out, confounders, emulation, and how far intervals reach."""

from collections.abc import Iterable, Sequence

from .comparability import shortened
from .findings import Finding
from .groups import Group
from .medians import LEAST_STEPS
from .other_load import NOTABLE_PCT, other_load_pct
from .results import RecipeResult
from .runs import Run, Unreadable

REPEATS = "repeats differ in "
"""How a confounder begins that lies among the repeats of one recipe."""

LEFT_OUT = ("unreadable-run", "failed-run", "unfinished-run")
"""Codes of findings that tell why a run is not compared."""


def left_out(runs: list[Run], unreadable: list[Unreadable]) -> list[Finding]:
    """Runs that are not compared, or not as whole ones, and why."""
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


def about_groups(results: list[RecipeResult], groups: list[Group], runs: list[Run], baseline: str) -> list[Finding]:
    """What stands against each row, then what concerns several."""
    found = _no_baseline(groups, runs, baseline)
    for result, group in zip(results, groups, strict=True):
        found += [*_about_row(result, group, baseline), *_about_runs(result, group)]
    return [*found, *_no_mfu(results), *_reach_of_intervals(groups)]


def _no_baseline(groups: list[Group], runs: list[Run], baseline: str) -> list[Finding]:
    found = []
    for model in dict.fromkeys(group.model for group in groups):
        if any(group.recipe == baseline for group in groups if group.model == model):
            continue
        of_model = f" with {model}" if model else ""
        lost = sorted(run.name for run in runs if run.recipe == baseline and not run.counts)
        there = f"No run of {baseline} counts ({', '.join(lost)})" if lost else f"There is no run of {baseline}"
        text = f"{there}{of_model}: speed against it is not measured. Train one, or name another --baseline."
        found.append(Finding(code="no-baseline", severity="warning", text=text))
    return found


def _about_row(result: RecipeResult, group: Group, baseline: str) -> list[Finding]:
    found = []
    evidence = {"recipe": result.recipe}
    if result.confounders:
        text = f"{group.name} is confounded: {_in_words(result.confounders, baseline)}"
        found.append(Finding(code="confounded", severity="warning", text=text, evidence=evidence))
    if result.emulated:
        text = (
            f"{group.name} ran with emulated FP8 ({result.emulated_why}): its losses are those of FP8, its step "
            "times are no speed result."
        )
        found.append(Finding(code="emulated", severity="warning", text=text, evidence=evidence))
    if stated := [run.name for run in group.runs if run.manifest.recipe_as_stated]:
        text = f"{', '.join(stated)}: the recipe {result.recipe} is as stated for a captured loop, not verified."
        found.append(Finding(code="recipe-as-stated", severity="info", text=text, evidence={"runs": stated}))
    if result.conforms == "no":
        text = f"{group.name} did not train in its recipe. {result.conforms_why}. See stepscope trace on its folder."
        found.append(Finding(code="recipe-contradicted", severity="warning", text=text, evidence=evidence))
    if result.step_time_ns is None:
        text = f"{group.name} has no timed step (all are first, profiled, evaluating …): train longer."
        found.append(Finding(code="no-timed-step", severity="warning", text=text))
    elif result.step_time_ns.ci95 is None:
        text = (
            f"{group.name} has no interval: too few timed steps: {result.timed_steps}; {LEAST_STEPS} are needed. "
            "Train longer."
        )
        found.append(Finding(code="few-steps", severity="warning", text=text, evidence=evidence))
    if result.utilization_pct is None:
        text = f"{group.name}: utilisation is not measured: no telemetry during training."
        found.append(Finding(code="no-telemetry", severity="info", text=text))
    return found


def _in_words(confounders: list[str], baseline: str) -> str:
    """Differences among repeats, and from the baseline, each with what to do."""
    among = [text.removeprefix(REPEATS) for text in confounders if text.startswith(REPEATS)]
    beyond = [text for text in confounders if not text.startswith(REPEATS)]
    differs = f"esides the recipe it differs from {baseline} in {shortened(beyond)}."
    if not among:
        return f"b{differs} Repeat one of them with the other's settings."
    own = f"its repeats differ in {shortened(among)}."
    return f"{own} B{differs}" if beyond else f"{own} Compare like with like."


def _about_runs(result: RecipeResult, group: Group) -> list[Finding]:
    found = []
    for run in group.runs:
        if result.step_time_ns is not None and not run.timed:
            text = f"{run.name} has no timed step: it adds nothing to the step time of {group.name}."
            found.append(Finding(code="no-timed-step", severity="warning", text=text))
        load = other_load_pct(run)
        if load is not None and load >= NOTABLE_PCT:
            text = (
                f"{run.name}: other processes used {load:.0f} % of the machine's CPUs during its timed steps: its step "
                "times may be theirs too. Repeat it on an idle machine."
            )
            evidence = {"run": run.name, "other_load_pct": round(load, 1)}
            found.append(Finding(code="other-load", severity="warning", text=text, evidence=evidence))
    return found


def _no_mfu(results: Iterable[RecipeResult]) -> list[Finding]:
    unmeasured: dict[str, list[str]] = {}
    for result in results:
        if result.throughput.mfu_why:
            unmeasured.setdefault(result.throughput.mfu_why, []).append(result.name)
    return [
        Finding(code="no-mfu", severity="info", text=f"MFU is not measured for {', '.join(names)}: {why}.")
        for why, names in unmeasured.items()
    ]


def _reach_of_intervals(groups: Sequence[Group]) -> list[Finding]:
    """Which rows' intervals do not cover how runs vary."""
    counts = {group.name: sum(bool(run.timed) for run in group.runs) for group in groups}
    all_single = all(count <= 1 for count in counts.values())
    one, two = ([name for name, count in counts.items() if count == few] for few in (1, 2))
    found = []
    if one:
        of, intervals = "a recipe", "the intervals cover"
        if not all_single:
            of = f"of {', '.join(one)}"
            intervals = "its interval covers" if len(one) == 1 else "their intervals cover"
        text = f"One run {of}: {intervals} the noise of steps, not that between runs. Repeat each to know more."
        found.append(Finding(code="single-runs", severity="info", text=text))
    if two:
        text = (
            f"Two runs of {', '.join(two)}: the interval spans both runs' medians and the noise of steps; how runs "
            "vary takes three."
        )
        found.append(Finding(code="two-runs", severity="info", text=text))
    return found
