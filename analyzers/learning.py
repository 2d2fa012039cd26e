"""How the runs of a recipe learned: losses, their gap to the baseline, spikes, divergence, and what FP8 casts did.

Definitions stand in the modules that compute: `loss_table`, `loss_gap`, `spikes`, `fp8_layers`.
"""

import re
from collections.abc import Sequence

import msgspec

from .comparability import differences
from .findings import Finding
from .fp8_layers import LayerCourse, OperandCourse, layer_courses, operand_courses, to_watch
from .groups import Group, model_of
from .loss_gap import LOOSE_PCT, STRICT_PCT, Largest, LossGap, largest_gap, loss_gaps
from .loss_table import LossStatistics, loss_statistics
from .runs import Run
from .spikes import Spike, SpikeCount, held_against, spikes_of

_SAME_DATA = ("data content", "seed", "micro_batch", "accumulation", "processes", "seq_len", "pack", "settings")
"""Settings that decide which rows a step sees."""
_DIVERGED = re.compile(r"the (loss|gradient norm) is (\S+) at step (\d+)")


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """A run that ended because its loss or gradient norm was no finite number. It is in no other figure."""

    run: str
    recipe: str
    model: str
    what: str
    """`loss` or `gradient norm`."""
    value: str
    step: int


class Learning(msgspec.Struct, frozen=True, kw_only=True):
    """Of the runs of one recipe."""

    statistics: list[LossStatistics]
    """The recipe's rows (train, held-out), then each run's."""
    gaps: list[LossGap]
    """Against the baseline, at equal step, tokens and wall clock; empty for the baseline itself."""
    largest_gap: Largest | None
    spikes: list[Spike]
    spike_counts: list[SpikeCount]
    """Of the loss, then of the gradient norm."""
    steps_without_loss: int
    """Recorded steps, in runs that have losses, whose loss is none: NaN, infinite or not recorded."""
    steps_skipped: int
    """Step numbers between a run's first and last that were not recorded."""
    diverged: list[Divergence]
    operands: list[OperandCourse]
    """What FP8 casts did, over all layers; empty where nothing was sampled."""
    layers: list[LayerCourse]
    """Every layer and operand of every run."""
    layers_to_watch: list[LayerCourse]
    """Those of them to watch, the most urgent first."""

    @property
    def gap(self) -> LossGap | None:
        """The one at equal step, where it is measured."""
        return next((gap for gap in self.gaps if gap.at_equal == "step" and gap.gap_pct is not None), None)


def learning(runs: Sequence[Run], baseline: Sequence[Run], diverged: Sequence[Divergence]) -> Learning:
    """`baseline` is empty for the baseline itself; `diverged` are the recipe's runs that are left out for that."""
    spikes, counts = spikes_of(runs)
    if baseline and _saw_the_same(runs, baseline):
        spikes, counts = held_against(spikes, counts, spikes_of(baseline)[0])
    layers = layer_courses(runs)
    with_losses = [run for run in runs if any(step.loss is not None for step in run.steps)]
    return Learning(
        statistics=loss_statistics(runs),
        gaps=loss_gaps(runs, baseline) if baseline else [],
        largest_gap=largest_gap(runs, baseline) if baseline else None,
        spikes=spikes,
        spike_counts=counts,
        steps_without_loss=sum(step.loss is None for run in with_losses for step in run.steps),
        steps_skipped=sum(run.steps[-1].step - run.steps[0].step + 1 - len(run.steps) for run in runs if run.steps),
        diverged=list(diverged),
        operands=operand_courses(layers, runs),
        layers=layers,
        layers_to_watch=to_watch(layers),
    )


def divergences(runs: Sequence[Run]) -> list[Divergence]:
    """Runs whose loss or gradient norm ended them, by name."""
    found = []
    for run in sorted(runs, key=lambda run: run.name):
        match = _DIVERGED.search(run.manifest.outcome.message or "")
        if run.manifest.outcome.state == "failed" and match:
            what, value, step = match.groups()
            found.append(
                Divergence(run=run.name, recipe=run.recipe, model=model_of(run), what=what, value=value, step=int(step))
            )
    return found


def diverged_of(group: Group, diverged: Sequence[Divergence]) -> list[Divergence]:
    """Those of the group's recipe and model, in whatever wrapping."""
    return [one for one in diverged if one.recipe == group.recipe and group.model in (None, one.model)]


def about_learning(name: str, found: Learning, baseline: str) -> list[Finding]:
    """What a reader must know of how a recipe (`name`) learned."""
    return [
        *_about_divergence(name, found),
        *_about_gap(name, found, baseline),
        *_about_spikes(name, found, baseline),
        *_about_missing(name, found),
        *_about_layers(name, found),
    ]


def _about_divergence(name: str, found: Learning) -> list[Finding]:
    return [
        Finding(
            code="diverged",
            severity="error",
            text=f"{one.run} diverged: the {one.what} was {one.value} at step {one.step}. The figures of {name} are "
            "those of the runs that held, and flatter it.",
            evidence={"run": one.run, "step": one.step},
        )
        for one in found.diverged
    ]


def _about_gap(name: str, found: Learning, baseline: str) -> list[Finding]:
    gap = found.gap
    if gap is None or gap.within_strict != "no" or gap.gap_pct is None:
        return []
    beyond = LOOSE_PCT if gap.within_loose == "no" else STRICT_PCT
    low, high = gap.ci95 or (gap.gap_pct, gap.gap_pct)
    text = (
        f"{name}: its loss lies {gap.gap_pct:+.2f} % [{low:+.2f}, {high:+.2f}] from that of {baseline} at equal step, "
        f"beyond {beyond:g} %."
    )
    evidence = {"recipe": name, "gap_pct": gap.gap_pct, "ci95": [low, high]}
    return [Finding(code="loss-gap", severity="warning", text=text, evidence=evidence)]


def _about_spikes(name: str, found: Learning, baseline: str) -> list[Finding]:
    losses = [spike for spike in found.spikes if spike.signal == "loss"]
    findings = []
    for spike in (spike for spike in losses if not spike.recovered):
        text = (
            f"{spike.run}: the loss rose from {spike.level:.3f} to {spike.peak:.3f} at step {spike.step} and was not "
            "back when the run ended."
        )
        evidence = {"run": spike.run, "step": spike.step}
        findings.append(Finding(code="spike-not-recovered", severity="warning", text=text, evidence=evidence))
    alone = [spike for spike in losses if spike.in_baseline is False]
    if alone:
        at = _listed(sorted({spike.step for spike in alone}))
        text = (
            f"{name}: {_times(len(alone), 'loss spike')} at {at} that {baseline} has not at the same steps of the same "
            "data: suspect the precision."
        )
        evidence = {"recipe": name, "steps": sorted({spike.step for spike in alone})}
        findings.append(Finding(code="spikes-alone", severity="warning", text=text, evidence=evidence))
    shared = sorted({spike.step for spike in losses if spike.in_baseline})
    if shared:
        text = f"{name}: loss spikes at {_listed(shared)} that {baseline} has too: look at the data of those steps."
        evidence = {"recipe": name, "steps": shared}
        findings.append(Finding(code="spikes-shared", severity="info", text=text, evidence=evidence))
    return findings


def _about_missing(name: str, found: Learning) -> list[Finding]:
    findings = []
    if found.steps_without_loss:
        text = f"{name}: {_times(found.steps_without_loss, 'step')} without a loss (NaN, infinite or not recorded)."
        findings.append(Finding(code="steps-without-loss", severity="warning", text=text))
    if found.steps_skipped:
        text = f"{name}: {_times(found.steps_skipped, 'step')} between the first and the last not recorded."
        findings.append(Finding(code="steps-skipped", severity="warning", text=text))
    return findings


def _about_layers(name: str, found: Learning) -> list[Finding]:
    if not found.layers_to_watch:
        return []
    worst = found.layers_to_watch[0]
    others = len({course.layer for course in found.layers_to_watch}) - 1
    more = f" and {_times(others, 'other layer')}" if others else ""
    text = f"{name}: watch {worst.layer} ({worst.operand}: {'; '.join(worst.watch)}){more}."
    return [Finding(code="layers-to-watch", severity="warning", text=text, evidence={"layer": worst.layer})]


def _saw_the_same(runs: Sequence[Run], baseline: Sequence[Run]) -> bool:
    return not any(difference.setting in _SAME_DATA for difference in differences(baseline, runs))


def _listed(steps: Sequence[int]) -> str:
    shown = ", ".join(map(str, steps[:5]))
    return f"step{'s' * (len(steps) > 1)} {shown}{' …' * (len(steps) > 5)}"


def _times(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"
