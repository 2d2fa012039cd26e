"""Runs as values: what a run folder holds, rank files joined into one row per optimizer step of the whole job.

A step lasts as long as its slowest rank. It is *timed* where no rank has marked it (first, profiled, compiling, eval,
checkpoint), every rank that trained then has it, and it took some time. Tokens and positions are summed over ranks; a
CUDA rank's memory is its own device's, so the largest rank counts; resident memory of CPU ranks shares a machine, so it
is summed.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from ..record.errors import TraceError, UserError
from ..record.manifest import Manifest
from ..record.numerics import OperandStatistics
from ..record.run import RunDir, find_runs
from ..record.steps import Step
from ..record.telemetry import Sample

_T = TypeVar("_T")

_FLOAT32 = 3.4028235e38

AROUND_STEPS = ("eval", "checkpoint", "profiler")
"""What a run does between steps."""


class WorldStep(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step of the whole job. None = not measured."""

    step: int
    start_ns: int
    """Unix time at which the first rank started it."""
    duration_ns: int
    """The slowest rank's."""
    by_rank_ns: tuple[int, ...]
    """Each rank's duration, in rank order."""
    timed: bool
    marks: tuple[str, ...]
    """Marks of any rank, sorted."""
    tokens: int | None
    """Unmasked tokens of all ranks."""
    positions: int | None
    """All positions of all ranks."""
    loss: float | None
    grad_norm: float | None
    lr: float | None
    data_ns: int | None
    """Of the slowest rank, as are the three below."""
    forward_ns: int | None
    backward_ns: int | None
    optimizer_ns: int | None
    eval_ns: int | None
    checkpoint_ns: int | None
    profiler_ns: int | None
    memory_allocated_bytes: int | None
    """CUDA allocator peak within the step, of the rank that has most."""
    memory_reserved_bytes: int | None
    rss_bytes: int | None
    """Resident memory of all ranks, summed; pages that they share count once for each."""
    eval_loss: float | None
    eval_perplexity: float | None
    eval_accuracy: float | None


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything the analyzers ask of one run; immutable once read."""

    name: str
    path: Path
    manifest: Manifest
    steps: tuple[WorldStep, ...]
    """By step number, each once (a resumed run repeats some; the last attempt counts)."""
    telemetry: dict[int, tuple[Sample, ...]]
    """Node → its samples in order."""
    traces: tuple[Path, ...]
    ranks: tuple[int, ...]
    """The ranks that left a step file."""
    numerics: tuple[OperandStatistics, ...] = ()
    """What FP8 casts did in sampled steps, in the order they were written."""
    problem: str | None = None
    """What of the run could not be read, though the rest could."""

    @property
    def recipe(self) -> str:
        """The recipe's name."""
        return self.manifest.recipe.name

    @property
    def finished(self) -> bool:
        """Whether it came to its planned end."""
        return self.manifest.outcome.state == "completed"

    @property
    def counts(self) -> bool:
        """Whether it may be compared: it came to its end, or was stopped in good order."""
        return self.manifest.outcome.state in ("completed", "interrupted")

    @property
    def on_gpu(self) -> bool:
        """Whether any rank computed on a GPU."""
        return any(device.kind == "cuda" for device in self.manifest.devices)

    @property
    def timed(self) -> tuple[WorldStep, ...]:
        """The steps that throughput may be computed from."""
        return tuple(step for step in self.steps if step.timed)

    @property
    def training_ns(self) -> int | None:
        """The time of all steps, marked ones too, without what lies between them."""
        return sum(step.duration_ns for step in self.steps) or None

    def elapsed_ns(self) -> list[int]:
        """For each step, how much of the wall clock had passed at its end."""
        first_again = {resumption.from_step + 1 for resumption in self.manifest.resumed}
        begun, found = 0, []
        for step, after in zip_longest(self.steps, self.steps[1:]):
            found.append(begun + step.duration_ns)
            if after is not None and after.step not in first_again:
                begun += after.start_ns - step.start_ns
            else:
                begun += step.duration_ns + _around_ns(step)
        return found

    @property
    def wall_clock_ns(self) -> int | None:
        """From the first step's start to the end of the last and of what followed it: evaluation, checkpoints, traces.

        The time between a stop and the return to the run does not count.
        """
        if not self.steps:
            return None
        return self.elapsed_ns()[-1] + _around_ns(self.steps[-1]) or None


def _around_ns(step: WorldStep) -> int:
    return sum(getattr(step, f"{name}_ns") or 0 for name in AROUND_STEPS)


def last_eval(
    steps: Sequence[WorldStep], name: Literal["eval_loss", "eval_perplexity", "eval_accuracy"]
) -> float | None:
    """The value of the last evaluation that has one."""
    values = [getattr(step, name) for step in steps]
    return next((value for value in reversed(values) if value is not None), None)


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A run folder that could not be read, and why."""

    name: str
    why: str


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[Unreadable]]:
    """The runs at and below `paths`, oldest first, each once, and those that could not be read.

    UserError where a path does not exist or there is no run folder at all.
    """
    runs: list[Run] = []
    unreadable: list[Unreadable] = []
    for folder in find_runs(list(paths)):
        try:
            runs.append(read_run(folder))
        except UserError as error:
            unreadable.append(Unreadable(name=folder.name, why=str(error)))
    runs = _told_apart(runs)
    if not runs and not unreadable:
        where = ", ".join(str(path) for path in paths) or "no folder given"
        raise UserError(f"{where}: no run here (a run folder holds a run.json); make one with profile-train")
    runs.sort(key=lambda run: (run.manifest.started_ns, run.name, str(run.path)))
    return runs, sorted(unreadable, key=lambda run: (run.name, run.why))


def _told_apart(runs: list[Run]) -> list[Run]:
    """Runs of one name in several folders get so many folders' names before theirs as it takes."""
    taken = Counter(run.name for run in runs)
    depth = 1
    while any(count > 1 for count in taken.values()) and depth < 20:
        depth += 1
        longer = {run.path: "/".join(run.path.resolve().parts[-depth:]) for run in runs if taken[run.name] > 1}
        runs = [replace(run, name=longer.get(run.path, run.name)) for run in runs]
        taken = Counter(run.name for run in runs)
    return runs


def read_run(folder: RunDir) -> Run:
    """One run; TraceError where its manifest or a whole line of one of its files cannot be read."""
    manifest = folder.manifest()
    problems = []
    try:
        steps = folder.steps()
    except OSError as error:
        raise TraceError(folder.path, f"cannot be read: {error.strerror}") from None
    try:
        telemetry = folder.telemetry()
    except (OSError, TraceError) as error:
        telemetry = {}
        problems.append(f"its telemetry cannot be read and is left out: {error}")
    try:
        numerics = folder.numerics()
    except (OSError, TraceError) as error:
        numerics = []
        problems.append(f"its FP8 statistics cannot be read and are left out: {error}")
    return Run(
        name=folder.name,
        path=folder.path,
        manifest=manifest,
        steps=world_steps(steps, [resumption.from_step for resumption in manifest.resumed]),
        telemetry={node: tuple(samples) for node, samples in telemetry.items()},
        traces=tuple(folder.traces()),
        ranks=tuple(steps),
        numerics=tuple(numerics),
        problem="; ".join(problems) or None,
    )


def world_steps(by_rank: dict[int, list[Step]], resumed_after: Sequence[int] = ()) -> tuple[WorldStep, ...]:
    """Rank files joined on the step number. After each step of `resumed_after` the number of ranks may be another."""
    numbered: dict[int, dict[int, Step]] = {}
    for rank, steps in by_rank.items():
        for step in steps:
            numbered.setdefault(step.step, {})[rank] = step
    parts = {number: bisect_left(sorted(resumed_after), number) for number in numbered}
    sizes: dict[int, int] = {}
    for number, rows in numbered.items():
        sizes[parts[number]] = max(sizes.get(parts[number], 0), len(rows))
    return tuple(_joined(number, numbered[number], sizes[parts[number]]) for number in sorted(numbered))


def _joined(number: int, rows: dict[int, Step], ranks: int) -> WorldStep:
    present = [rows[rank] for rank in sorted(rows)]
    slowest = max(present, key=lambda row: row.duration_ns)
    marks = sorted({mark for row in present for mark in row.marks})
    return WorldStep(
        step=number,
        start_ns=min(row.start_ns for row in present),
        duration_ns=slowest.duration_ns,
        by_rank_ns=tuple(row.duration_ns for row in present),
        timed=not marks and len(present) == ranks and slowest.duration_ns > 0,
        marks=tuple(marks),
        tokens=_sum_if_all([row.tokens for row in present]),
        positions=_sum_if_all([row.positions for row in present]),
        loss=_first(_held(row.loss) for row in present),
        grad_norm=_first(_held(row.grad_norm) for row in present),
        lr=_first(row.lr for row in present),
        data_ns=slowest.data_ns,
        forward_ns=slowest.forward_ns,
        backward_ns=slowest.backward_ns,
        optimizer_ns=slowest.optimizer_ns,
        eval_ns=_largest(row.eval_ns for row in present),
        checkpoint_ns=_largest(row.checkpoint_ns for row in present),
        profiler_ns=_largest(row.profiler_ns for row in present),
        memory_allocated_bytes=_largest(row.memory_allocated_bytes for row in present),
        memory_reserved_bytes=_largest(row.memory_reserved_bytes for row in present),
        rss_bytes=_sum_if_all([row.rss_bytes for row in present]),
        eval_loss=_first(_held(row.eval_loss) for row in present),
        eval_perplexity=_first(row.eval_perplexity for row in present),
        eval_accuracy=_first(row.eval_accuracy for row in present),
    )


def _held(value: float | None) -> float | None:
    """None too for what no float32 holds, the widest that training computes with: it is infinite there."""
    return value if value is None or abs(value) <= _FLOAT32 else None


def _first(values: Iterable[_T | None]) -> _T | None:
    return next((value for value in values if value is not None), None)


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _sum_if_all(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
