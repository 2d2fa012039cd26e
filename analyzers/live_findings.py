"""What to look at in a run that is going on: each with its evidence, the gravest first."""

from collections.abc import Iterable

from ..record.telemetry import GpuSample, XidEvent
from ..record.units import show_loss, show_ns
from .findings import Finding, Severity
from .runs import Run
from .spikes import spikes_of
from .stragglers import about_stragglers, stragglers

SILENT_STEPS, SILENT_NS = 20, 60_000_000_000
"""A run that has not ended a step for this many of its steps, and for this long, is told as silent."""
THROTTLING = {
    0x08: "a hardware limit",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "the power supply's brake",
}
"""NVML's clock event bits that are no normal operation; the power cap (0x4) is normal at full load."""
_LAST_SPIKES = 2


def about_now(run: Run, *, since_ns: int | None, wall_ns: float | None) -> list[Finding]:
    """`since_ns`: how long ago the last step ended; `wall_ns`: the mean wall clock of a step."""
    found = [
        *_about_end(run),
        *_about_silence(since_ns, wall_ns),
        *_about_losses(run),
        *_about_spikes(run),
        *_about_gpus(run),
        *about_stragglers(run.recipe, stragglers([run])),
    ]
    if run.problem:
        found.append(Finding(code="run-in-part", severity="warning", text=f"{run.problem}."))
    if run.manifest.emulated:
        text = f"FP8 is emulated ({run.manifest.emulated_why}): losses are those of FP8, times are no speed result."
        found.append(Finding(code="emulated", severity="info", text=text))
    order = ("error", "warning", "info")
    return sorted(found, key=lambda finding: order.index(finding.severity))


def _about_end(run: Run) -> Iterable[Finding]:
    outcome = run.manifest.outcome
    if outcome.state == "failed":
        rank = "" if outcome.rank is None else f" on rank {outcome.rank}"
        yield Finding(code="failed-run", severity="error", text=f"It failed{rank}: {outcome.message}.")


def _about_silence(since_ns: int | None, wall_ns: float | None) -> Iterable[Finding]:
    if since_ns is None or since_ns < max(SILENT_NS, SILENT_STEPS * (wall_ns or 0)):
        return
    pace = f", and a step takes {show_ns(wall_ns)}" if wall_ns else ""
    text = (
        f"No step has ended for {show_ns(since_ns)}{pace}: it evaluates, writes a checkpoint, waits for a rank, or was "
        "killed without a word."
    )
    yield Finding(code="silent-run", severity="warning", text=text, evidence={"since_ns": since_ns})


def _about_losses(run: Run) -> Iterable[Finding]:
    if not any(step.loss is not None for step in run.steps):
        return
    without = [step.step for step in run.steps if step.loss is None]
    if without:
        count = f"{len(without):,} of the last {len(run.steps):,} steps have"
        text = f"{count} no loss (NaN, infinite or not recorded), the last of them step {without[-1]}."
        yield Finding(code="steps-without-loss", severity="error", text=text, evidence={"step": without[-1]})


def _about_spikes(run: Run) -> Iterable[Finding]:
    spikes = spikes_of([run])[0]
    for spike in [spike for spike in spikes if spike.signal == "loss"][-_LAST_SPIKES:]:
        back = f"; it was back after {spike.width_steps} steps" if spike.recovered else "; it is not back yet"
        beside = ", with the gradient norm" if spike.beside_other_signal else ""
        text = f"Loss spike at step {spike.step}: {show_loss(spike.level)} to {show_loss(spike.peak)}{beside}{back}."
        severity: Severity = "info" if spike.recovered else "warning"
        yield Finding(code="loss-spike", severity=severity, text=text, evidence={"step": spike.step})


def _about_gpus(run: Run) -> Iterable[Finding]:
    for node, samples in sorted(run.telemetry.items()):
        latest = {sample.device: sample for sample in samples if isinstance(sample, GpuSample)}
        for device, sample in sorted(latest.items()):
            whys = [why for bit, why in THROTTLING.items() if (sample.throttle_reasons or 0) & bit]
            if whys:
                clock = "" if sample.sm_clock_mhz is None else f", now at {sample.sm_clock_mhz:,} MHz"
                text = f"GPU {device} of node {node} is slowed down by {' and '.join(whys)}{clock}."
                evidence = {"node": node, "device": device, "throttle_reasons": sample.throttle_reasons}
                yield Finding(code="throttled", severity="warning", text=text, evidence=evidence)
        for event in (sample for sample in samples if isinstance(sample, XidEvent)):
            text = f"GPU {event.device} of node {node} had a critical error: XID {event.xid}."
            yield Finding(code="xid", severity="error", text=text, evidence={"node": node, "xid": event.xid})
