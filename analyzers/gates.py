"""Gates: conditions on which a comparison fails, held against what is known of the noise.

`METRIC OP LIMIT`, such as `step_time > +3%`: the gate fails where the condition holds of the whole 95 % interval,
passes where it holds of none of it, and is inconclusive between. What is not measured, has no interval, is confounded,
or is a time of emulated FP8 is inconclusive too, never passed. Every
recipe but the baseline is judged; one without a run that counts, and a run that cannot be read, pass nothing.
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ..record.errors import ConfigError
from .medians import Estimate
from .results import Comparison, GateResult, RecipeResult, Unjudged

WithinNoise = Literal["inconclusive", "pass", "fail"]

ENOUGH_RUNS = 3
"""From so many runs on, intervals cover how runs vary."""
_GATE = re.compile(r"\s*([a-z_]+)\s*(>=|<=|>|<)\s*([+-]?\d+(?:\.\d+)?)\s*(%?)\s*", re.IGNORECASE)


class Metric(msgspec.Struct, frozen=True):
    """What a gate may ask of."""

    value: Callable[[RecipeResult], Estimate | None]
    unit: Literal["%", ""]
    what: str
    is_time: bool = False
    """Whether emulated FP8 has none of it."""


def _change(name: str) -> Callable[[RecipeResult], Estimate | None]:
    return lambda row: getattr(row.changes, name)


def _loss_gap(row: RecipeResult) -> Estimate | None:
    gap = row.learning.gap
    return Estimate(median=gap.gap_pct, ci95=gap.ci95) if gap and gap.gap_pct is not None else None


def _loss_spikes(row: RecipeResult) -> Estimate | None:
    [count] = [count for count in row.learning.spike_counts if count.signal == "loss"]
    return None if count.spikes is None else _exactly(count.spikes)


def _diverged(row: RecipeResult) -> Estimate | None:
    return _exactly(len(row.learning.diverged))


def _exactly(value: float) -> Estimate:
    return Estimate(median=value, ci95=(value, value))


METRICS = {
    "step_time": Metric(_change("step_time_pct"), "%", "median time of a timed step", is_time=True),
    "tokens_per_s": Metric(_change("tokens_per_s_pct"), "%", "tokens/s in timed steps", is_time=True),
    "wall_clock": Metric(_change("wall_clock_pct"), "%", "first step to last", is_time=True),
    "energy_per_token": Metric(_change("energy_per_token_pct"), "%", "of all GPUs", is_time=True),
    "peak_memory": Metric(_change("peak_memory_pct"), "%", "largest peak of a rank"),
    "loss_gap": Metric(_loss_gap, "%", "training loss at equal step, over the last tenth"),
    "eval_loss": Metric(_change("eval_loss_pct"), "%", "last held-out loss"),
    "loss_spikes": Metric(_loss_spikes, "", "spikes of the loss in all runs"),
    "diverged": Metric(_diverged, "", "runs that ended with a loss that is no number"),
}
"""Those in % are changes against the baseline, more being positive."""


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One condition, as it was asked."""

    metric: str
    operator: Literal[">", ">=", "<", "<="]
    limit: float

    @property
    def text(self) -> str:
        """`step_time > +3 %`."""
        unit = METRICS[self.metric].unit
        return f"{self.metric} {self.operator} {self.limit:{'+g' if unit else 'g'}}{' %' if unit else ''}"


def parse_gate(text: str) -> Gate:
    """ConfigError says what a gate must look like."""
    match = _GATE.fullmatch(text)
    known = ", ".join(METRICS)
    if match is None:
        raise ConfigError(f'--fail-if: {text!r} is no condition; write it like "step_time > +3%" (of: {known})')
    name, operator, limit, unit = match.groups()
    metric = METRICS.get(name.lower())
    if metric is None:
        raise ConfigError(f"--fail-if: nothing is called {name!r}; there are {known}")
    if metric.unit != unit:
        way = "is a change in percent: add a %" if metric.unit else "is a number: leave out the %"
        raise ConfigError(f"--fail-if: {text!r}: {name.lower()} {way}")
    return msgspec.convert({"metric": name.lower(), "operator": operator, "limit": float(limit)}, Gate)


def judge(
    gates: Sequence[Gate], comparison: Comparison, within_noise: WithinNoise = "inconclusive"
) -> list[GateResult]:
    """Every gate for every recipe but the baseline; `within_noise` says what an interval that holds the limit is."""
    others = [row for row in comparison.recipes if row.recipe != comparison.baseline]
    of_baseline = min((row.runs for row in comparison.recipes if row.recipe == comparison.baseline), default=0)
    found = []
    for gate in gates:
        found += [_judged(gate, row, within_noise, min(row.runs, of_baseline)) for row in others]
        found += [_passed_over(gate, one) for one in comparison.unjudged]
        if not others and not comparison.unjudged:
            why = f"there is no recipe beside {comparison.baseline}"
            none = GateResult(gate=gate.text, metric=gate.metric, recipe=None, outcome="inconclusive", why=why)
            found.append(none)
    return found


def exit_code(results: Sequence[GateResult]) -> int:
    """3 where a gate failed, 4 where one is inconclusive, else 0."""
    outcomes = {result.outcome for result in results}
    return 3 if "fail" in outcomes else 4 if "inconclusive" in outcomes else 0


def reasons(results: Sequence[GateResult]) -> list[str]:
    """A line for each gate that has not passed, the failed ones first."""
    return [
        f"gate {result.said}: {result.line}" for result in sorted(results, key=_gravity) if result.outcome != "pass"
    ]


def _gravity(result: GateResult) -> int:
    return ("fail", "inconclusive", "pass").index(result.outcome)


def _judged(gate: Gate, row: RecipeResult, within_noise: WithinNoise, repeats: int) -> GateResult:
    metric = METRICS[gate.metric]
    found = metric.value(row)
    low, high = found.ci95 if found and found.ci95 else (None, None)
    outcome: Literal["pass", "fail", "inconclusive"] = "inconclusive"
    why = _unfit(metric, row, found)
    if why is None and low is not None and high is not None:
        holds = [_holds(gate, end) for end in (low, high)]
        outcome = "fail" if all(holds) else "pass"
        if any(holds) and not all(holds):
            why, outcome = "the limit lies within the noise", within_noise
        elif repeats < ENOUGH_RUNS and low < high:
            why = f"from {repeats} run{'s' * (repeats > 1)} a side: how runs vary is not in it"
    return GateResult(
        gate=gate.text,
        metric=gate.metric,
        recipe=row.name,
        outcome=outcome,
        value=found.median if found else None,
        ci95=found.ci95 if found else None,
        unit=metric.unit,
        why=why,
    )


def _passed_over(gate: Gate, one: Unjudged) -> GateResult:
    fails = one.diverged and gate.metric == "diverged" and _holds(gate, 1)
    return GateResult(
        gate=gate.text,
        metric=gate.metric,
        recipe=one.name,
        outcome="fail" if fails else "inconclusive",
        why="its runs diverged" if one.diverged else one.why,
    )


def _unfit(metric: Metric, row: RecipeResult, found: Estimate | None) -> str | None:
    """Why no verdict may rest on the figure, whatever it is."""
    if row.confounders:
        return "confounded: what else differs may have done it"
    if row.emulated and metric.is_time:
        return "FP8 was emulated: its times say nothing"
    if found is None:
        return "not measured"
    if found.ci95 is None:
        return "no interval: too few steps or repeats"
    return None


def _holds(gate: Gate, value: float) -> bool:
    difference = value - gate.limit
    if math.isclose(difference, 0, abs_tol=1e-12):
        return gate.operator in (">=", "<=")
    return (difference > 0) == gate.operator.startswith(">")
