"""A run as it is now: its latest steps and readings, how fast it goes, when it will end, what to look at.

Rates are medians of the last `RECENT` timed steps, each of the slowest rank. The time left is the steps left times the
mean wall clock of a step over the same stretch, evaluation and checkpoints between steps included. Only the ends of a
run's files are read: what is told of earlier steps reaches back as far as those.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec
import numpy as np

from ..record.manifest import State
from ..record.telemetry import GpuSample, HostSample
from .findings import Finding
from .live_findings import about_now
from .run_phases import phases
from .runs import Run, WorldStep

RECENT = 50
"""Timed steps that rates are of."""
COURSE = 40
"""Values in which the course of the loss is told."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase of the recent timed steps."""

    name: str
    time_ns: float
    """Median."""
    of_step_pct: float
    """Of the median step."""


class GpuNow(msgspec.Struct, frozen=True, kw_only=True):
    """The latest reading of one GPU. None = not read."""

    node: int
    device: int
    utilization_pct: float | None
    """Share of time in which some kernel was resident; not efficiency."""
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    memory_used_pct: float | None
    power_w: float | None
    temperature_c: int | None


class HostNow(msgspec.Struct, frozen=True, kw_only=True):
    """The latest reading of one machine. None = not read."""

    node: int
    cpu_pct: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    memory_used_pct: float | None


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run now. None = not measured; `missing` says why."""

    run: str
    recipe: str
    emulated: bool
    model: str
    ranks: int
    device: str
    state: State
    message: str | None
    step: int | None
    """The last step that any rank has finished."""
    steps: int | None
    """Planned."""
    done_pct: float | None
    loss: float | None
    """Of the last step that has one."""
    loss_course: list[float]
    """Means of equal stretches of the latest losses, oldest first."""
    grad_norm: float | None
    lr: float | None
    eval_step: int | None
    eval_loss: float | None
    eval_accuracy_pct: float | None
    recent_steps: int
    """Timed steps that the figures below are of."""
    step_time_ns: float | None
    step_time_p95_ns: float | None
    tokens_per_s: float | None
    """Unmasked tokens of all ranks."""
    phases: list[Phase]
    peak_memory_bytes: int | None
    """Of the rank with most (CUDA's allocator), or of all ranks (resident, on CPUs), in the latest steps."""
    gpus: list[GpuNow]
    hosts: list[HostNow]
    since_last_step_ns: int | None
    """By this machine's clock; None of a run that is over."""
    left_ns: float | None
    findings: list[Finding]
    missing: dict[str, str]
    """Field → why it is None."""

    @property
    def running(self) -> bool:
        """Whether it has not ended, as far as it says."""
        return self.state == "running"


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """What `stepscope watch --format json` prints, one line a look."""

    schema: Literal["stepscope.watch/1"] = "stepscope.watch/1"
    at_ns: int
    """Unix time."""
    runs: list[LiveRun]

    @property
    def running(self) -> bool:
        """Whether any of them is."""
        return any(run.running for run in self.runs)


def live(run: Run, at_ns: int) -> LiveRun:
    """`run` has the latest steps and readings alone; `at_ns` is now."""
    manifest, steps = run.manifest, run.steps
    recent = run.timed[-RECENT:]
    times = [step.duration_ns for step in recent]
    planned = manifest.config.get("steps")
    planned = planned if isinstance(planned, int) and planned > 0 else None
    last = steps[-1] if steps else None
    wall_ns = _wall_ns_a_step(run)
    running = manifest.outcome.state == "running"
    left_ns = wall_ns * max(0, planned - last.step) if running and last and wall_ns and planned else None
    evaluated = next((step for step in reversed(steps) if step.eval_loss is not None), None)
    since_ns = max(0, at_ns - last.start_ns - last.duration_ns) if last and running else None
    rates = [step.tokens / step.duration_ns * 1e9 for step in recent if step.tokens]
    gpus = _gpus(run)
    return LiveRun(
        run=run.name,
        recipe=run.recipe,
        emulated=manifest.emulated,
        model=str(manifest.model.get("name")),
        ranks=manifest.world.size,
        device=manifest.devices[0].name if manifest.devices else "",
        state=manifest.outcome.state,
        message=manifest.outcome.message,
        step=last.step if last else None,
        steps=planned,
        done_pct=100 * min(1.0, last.step / planned) if last and planned else None,
        loss=_latest(steps, "loss"),
        loss_course=_course([step.loss for step in steps if step.loss is not None]),
        grad_norm=_latest(steps, "grad_norm"),
        lr=_latest(steps, "lr"),
        eval_step=evaluated.step if evaluated else None,
        eval_loss=evaluated.eval_loss if evaluated else None,
        eval_accuracy_pct=_percent(evaluated.eval_accuracy) if evaluated else None,
        recent_steps=len(recent),
        step_time_ns=float(np.median(times)) if times else None,
        step_time_p95_ns=float(np.percentile(times, 95)) if times else None,
        tokens_per_s=float(np.median(rates)) if rates else None,
        phases=_phases(run, recent),
        peak_memory_bytes=_memory(run, steps[-RECENT:]),
        gpus=gpus,
        hosts=_hosts(run),
        since_last_step_ns=since_ns,
        left_ns=left_ns,
        findings=about_now(run, since_ns=since_ns, wall_ns=wall_ns),
        missing=_missing(run, planned, gpus, timed=bool(recent), rated=bool(rates), paced=wall_ns is not None),
    )


def _wall_ns_a_step(run: Run) -> float | None:
    """Mean wall clock of a step, from end to end over the recent ones."""
    elapsed = run.elapsed_ns()[-RECENT - 1 :]
    return (elapsed[-1] - elapsed[0]) / (len(elapsed) - 1) if len(elapsed) > 1 else None


def _phases(run: Run, recent: Sequence[WorldStep]) -> list[Phase]:
    if not recent:
        return []
    step_ns = float(np.median([step.duration_ns for step in recent]))
    parts = phases([replace(run, steps=tuple(recent))])
    return [Phase(name=part.name, time_ns=part.time_ns, of_step_pct=100 * part.time_ns / step_ns) for part in parts]


def _memory(run: Run, latest: Sequence[WorldStep]) -> int | None:
    sizes = [step.memory_allocated_bytes if run.on_gpu else step.rss_bytes for step in latest]
    return max((size for size in sizes if size is not None), default=None)


def _course(losses: Sequence[float]) -> list[float]:
    """Means of up to `COURSE` stretches as long as each other, but for a step."""
    parts = np.array_split(np.array(losses, dtype=np.float64), min(COURSE, len(losses))) if losses else []
    return [float(part.mean()) for part in parts]


def _latest(steps: Sequence[WorldStep], name: str) -> float | None:
    values = (getattr(step, name) for step in reversed(steps))
    return next((value for value in values if value is not None), None)


def _gpus(run: Run) -> list[GpuNow]:
    latest = {
        (node, sample.device): sample
        for node, samples in run.telemetry.items()
        for sample in samples
        if isinstance(sample, GpuSample)
    }
    return [
        GpuNow(
            node=node,
            device=device,
            utilization_pct=sample.utilization_pct,
            memory_used_bytes=sample.memory_used_bytes,
            memory_total_bytes=sample.memory_total_bytes,
            memory_used_pct=share_pct(sample.memory_used_bytes, sample.memory_total_bytes),
            power_w=None if sample.power_mw is None else sample.power_mw / 1000,
            temperature_c=sample.temperature_c,
        )
        for (node, device), sample in sorted(latest.items())
    ]


def _hosts(run: Run) -> list[HostNow]:
    latest = {
        node: sample for node, samples in run.telemetry.items() for sample in samples if isinstance(sample, HostSample)
    }
    return [
        HostNow(
            node=node,
            cpu_pct=sample.cpu_pct,
            memory_used_bytes=sample.memory_used_bytes,
            memory_total_bytes=sample.memory_total_bytes,
            memory_used_pct=share_pct(sample.memory_used_bytes, sample.memory_total_bytes),
        )
        for node, sample in sorted(latest.items())
    ]


def share_pct(part: int | None, whole: int | None) -> float | None:
    """`part` in % of `whole`; None without either."""
    return None if part is None or not whole else 100 * part / whole


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _missing(
    run: Run, planned: int | None, gpus: Sequence[GpuNow], *, timed: bool, rated: bool, paced: bool
) -> dict[str, str]:
    whys: dict[str, str | None] = {
        "step": None if run.steps else "no step has ended yet",
        "loss": None if any(step.loss is not None for step in run.steps) else "no step has told a loss",
        "step_time_ns": None if timed else "no timed step yet",
        "tokens_per_s": None if rated else "no timed step has told its tokens",
        "gpus": None if gpus or not run.on_gpu else "no reading of a GPU yet",
        "left_ns": _why_no_end(run, planned, paced=paced),
    }
    return {name: why for name, why in whys.items() if why}


def _why_no_end(run: Run, planned: int | None, *, paced: bool) -> str | None:
    if run.manifest.outcome.state != "running":
        return "it is over"
    if planned is None:
        return "run.json does not say how many steps are planned"
    return None if paced else "fewer than two steps have ended"
