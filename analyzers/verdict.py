"""What one may say of each recipe: speed, memory and loss with their intervals, what to distrust, what to run next.

A verdict abstains where the evidence does not carry it: times of emulated FP8, confounded pairs, figures without an
interval. A difference whose interval holds 0 is none that was resolved.
"""

from collections.abc import Sequence

from ..record.recipes import RECIPES
from ..record.units import show_bytes, show_pct
from .comparability import shortened
from .gates import ENOUGH_RUNS
from .loss_gap import LOOSE_PCT, STRICT_PCT, LossGap
from .medians import Estimate
from .results import Learns, RecipeResult, Speed, Verdict

LONG_STEPS = 1000
"""Steps under which a run says little of how training holds: FP8's instabilities show late (Fishman et al., 2024)."""
DOUBLED_PCT = 100.0
"""Speed against bf16 that doubling the peak, all that FP8 does, can give at most."""


def verdicts(results: Sequence[RecipeResult], baseline: str) -> list[Verdict]:
    """One for each recipe but the baseline, in their order."""
    runs_of_baseline = {(row.model, row.wrap): row.runs for row in results if row.recipe == baseline}
    found = []
    for row in results:
        if row.recipe == baseline:
            continue
        repeats = min(row.runs, runs_of_baseline.get((row.model, row.wrap), max(runs_of_baseline.values(), default=0)))
        found.append(_verdict(row, baseline, repeats))
    return found


def _verdict(row: RecipeResult, baseline: str, repeats: int) -> Verdict:
    speed, said_of_speed = _speed(row, baseline)
    learns, said_of_loss = _loss(row, baseline)
    texts = [said_of_speed, _memory(row, baseline), said_of_loss, _at_equal_time(row, baseline), _spikes(row, baseline)]
    return Verdict(
        recipe=row.name,
        speed=speed,
        learns=learns,
        text=" ".join(text for text in texts if text),
        distrust=_distrust(row, baseline, repeats),
        next=_next(row, baseline, repeats, learns),
    )


def _speed(row: RecipeResult, baseline: str) -> tuple[Speed, str]:
    found, saved = row.speed_vs_baseline_pct, row.time_saved_pct
    if row.emulated:
        return "abstains", "No verdict on speed: FP8 was emulated."
    if row.confounders:
        return "abstains", "No verdict on speed: it is confounded."
    if found is None or saved is None:
        return "abstains", "No verdict on speed: it is not measured on both sides."
    if found.ci95 is None:
        return "abstains", f"No verdict on speed: {_signed(found)} from too few steps for an interval."
    if not row.speed_resolved:
        return "no difference resolved", f"Speed: no difference to {baseline} is resolved ({_signed(found)})."
    way: Speed = "faster" if found.median > 0 else "slower"
    return way, f"{way.capitalize()} than {baseline}: speed {_signed(found)}, time saved {_signed(saved)}."


def _memory(row: RecipeResult, baseline: str) -> str:
    if row.peak_memory_bytes is None:
        return "Memory is not measured."
    change = row.changes.peak_memory_pct
    what = "Resident memory (no GPU)" if row.memory_kind == "resident" else "Peak memory"
    against = "" if change is None else f", {show_pct(change.median, signed=True)} against {baseline}"
    doubt = " (confounded)" if row.confounders and against else ""
    return f"{what} {show_bytes(row.peak_memory_bytes)}{against}{doubt}."


def _loss(row: RecipeResult, baseline: str) -> tuple[Learns, str]:
    gap = row.learning.gap
    if gap is None or gap.gap_pct is None:
        why = next((found.missing for found in row.learning.gaps if found.at_equal == "step"), None)
        return "abstains", f"No verdict on the loss: {why or 'it is not measured on both sides'}."
    figure = f"{shown_gap(gap)} at equal step over the last {gap.points} steps"
    if row.confounders:
        return "abstains", f"No verdict on the loss: {figure}, confounded."
    if gap.ci95 is None:
        return "abstains", f"No verdict on the loss: {figure}, too few for an interval."
    repeats = _against_band(gap, baseline)
    if gap.within_loose == "cannot tell":
        return "abstains", f"Loss {figure}: whether it is within {LOOSE_PCT:g} % is not resolved{repeats}."
    if gap.within_loose == "no":
        way: Learns = "worse" if gap.gap_pct > 0 else "better"
        return way, f"Loss {figure}: beyond {LOOSE_PCT:g} %{repeats}."
    strict = {"yes": f"within {STRICT_PCT:g} %", "no": f"within {LOOSE_PCT:g} %, beyond {STRICT_PCT:g} %"}
    limit = strict.get(gap.within_strict or "", f"within {LOOSE_PCT:g} %; {STRICT_PCT:g} % is not resolved")
    return "alike", f"Loss {figure}: {limit}{repeats}."


def _against_band(gap: LossGap, baseline: str) -> str:
    if gap.baseline_band_pct is None or gap.gap_pct is None:
        return ""
    inside = abs(gap.gap_pct) <= gap.baseline_band_pct
    return f", {'no more' if inside else 'more'} than repeats of {baseline} differ ({gap.baseline_band_pct:.2f} %)"


def _at_equal_time(row: RecipeResult, baseline: str) -> str:
    gap = next((found for found in row.learning.gaps if found.at_equal == "wall clock"), None)
    if gap is None or gap.gap_pct is None or row.confounders:
        return ""
    return f"At equal wall clock its loss is {shown_gap(gap)} against that of {baseline}."


def _spikes(row: RecipeResult, baseline: str) -> str:
    [count] = [count for count in row.learning.spike_counts if count.signal == "loss"]
    if not count.spikes:
        return "" if count.spikes is None else "No loss spike."
    shared = "" if count.in_baseline is None else f", {count.in_baseline} of them with {baseline}"
    return f"Loss spikes: {count.spikes}{shared}; {count.recovered} recovered."


def _distrust(row: RecipeResult, baseline: str, repeats: int) -> list[str]:
    found = []
    if row.confounders:
        found.append(f"confounded: {shortened(row.confounders)}")
    if row.conforms == "no":
        found.append(f"it did not train in its recipe: {row.conforms_why}")
    if row.emulated:
        found.append(f"FP8 was emulated ({row.emulated_why}): losses count, times do not")
    if row.learning.diverged:
        found.append(f"{_counted(len(row.learning.diverged), 'run')} that diverged: in no figure")
    if repeats < ENOUGH_RUNS:
        found.append(f"{_counted(repeats, 'run')} on one side: intervals do not cover how runs vary")
    if row.speed_vs_baseline_pct and row.speed_vs_baseline_pct.median > DOUBLED_PCT and not row.emulated:
        found.append("more than twice as fast is more than FP8's doubled peak can give: something else differs")
    if row.learning.gap and row.learning.gap.within_loose == "no" and (row.learning.gap.gap_pct or 0) < 0:
        found.append("precision alone does not lower a loss: suspect the data, the schedule or the evaluation")
    found += [f"{one.run}{'' if one.rank is None else f', rank {one.rank}'} straggles" for one in row.stragglers]
    longest = max((gap.until for gap in row.learning.gaps if gap.at_equal == "step" and gap.until), default=None)
    if longest is not None and longest < LONG_STEPS:
        found.append(f"{longest:g} steps are short: FP8's instabilities show late")
    if row.learning.layers_to_watch:
        found.append(f"{_counted(len({one.layer for one in row.learning.layers_to_watch}), 'layer')} to watch")
    return found


def _next(row: RecipeResult, baseline: str, repeats: int, learns: str) -> list[str]:
    found = []
    if row.confounders:
        found.append(f"{baseline} and {row.recipe} with the same settings")
    if row.emulated:
        found.append("the same on a GPU with FP8, for its speed")
    if row.learning.diverged:
        found.append("a lower learning rate or a longer warm-up, for the runs that diverged")
    if repeats < ENOUGH_RUNS:
        found.append(f"profile-train --recipe {baseline},{row.recipe} --repeats {ENOUGH_RUNS}")
    elif row.speed_resolved is False or (learns == "abstains" and not row.confounders):
        found.append("more steps or repeats, for narrower intervals")
    is_float8 = any(recipe.is_float8 for recipe in RECIPES if recipe.name == row.recipe)
    if is_float8 and not row.learning.operands and learns != "alike":
        found.append(f"profile-train --recipe {row.recipe} --numerics 50, for the layers that lose precision")
    return found


def shown_gap(gap: LossGap) -> str:
    """`+0.31 % [+0.12, +0.50]`."""
    if gap.gap_pct is None:
        return "not measured"
    return f"{gap.gap_pct:+.2f} %" + (f" [{gap.ci95[0]:+.2f}, {gap.ci95[1]:+.2f}]" if gap.ci95 else "")


def _signed(estimate: Estimate) -> str:
    ends = f" [{estimate.ci95[0]:+.1f}, {estimate.ci95[1]:+.1f}]" if estimate.ci95 else ""
    return f"{show_pct(estimate.median, signed=True)}{ends}"


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'s' * (count > 1)}"
