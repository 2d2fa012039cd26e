"""A sweep whose truth is known: run folders made from a seed, with true speeds, losses, spikes and defects.

    python tests/true_sweep.py FOLDER [SEED]

makes the one that test_true_sweep.py holds `stepscope compare` to. Step times and losses are the truth times noise of
steps and noise of runs (log-normal). The noise that data makes is the same for all recipes at a step, as all see the
same data.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stepscope.record.jsonl import JsonlWriter
from stepscope.record.manifest import Device, Manifest, Outcome, World
from stepscope.record.numerics import OperandStatistics
from stepscope.record.recipes import recipe
from stepscope.record.run import RunDir
from stepscope.record.steps import Step
from stepscope.record.telemetry import GpuSample

GPU = Device(kind="cuda", name="NVIDIA H100", memory_bytes=80 * 10**9, capability="9.0", driver="570.1")
STEP_NS = 100_000_000
TOKENS = 1000
"""Of each rank and step."""
MEMORY = 40 * 10**9
WATTS = 500
NOISE_OF_STEPS, NOISE_OF_RUNS = 0.02, 0.005
"""Of step times; standard deviations of logarithms."""
LOSS_OF_STEPS, LOSS_OF_RUNS, LOSS_OF_DATA = 0.002, 0.0002, 0.01


@dataclass(frozen=True, kw_only=True)
class Bump:
    """A spike: the loss is multiplied by `times`, falling back to 1 over `width` steps; None: it never does."""

    step: int
    times: float = 1.5
    width: int | None = 6


@dataclass(frozen=True, kw_only=True)
class Cell:
    """All runs of one recipe, and what is true of them."""

    recipe: str
    speed_pct: float = 0.0
    """Of the true step times, against the baseline."""
    loss_pct: float = 0.0
    """By which the loss lies above the baseline's at every step."""
    memory_pct: float = 0.0
    runs: int = 3
    bumps: Sequence[Bump] = ()
    config: dict[str, Any] = field(default_factory=dict)
    """What else differs from the others' settings."""
    slow_rank: int | None = None
    """A rank of the first run that takes 20 % longer."""
    slow_run: bool = False
    """Whether the last run takes 20 % longer."""
    diverges_at: int | None = None
    """The step at which the last run ends with a loss that is no number."""
    bad_layer: str | None = None
    """A layer whose SQNR is 10 dB lower than that of the others; None: no FP8 statistics."""
    lost_at: Sequence[int] = ()
    """Steps of the first run without a loss."""


ON_ALL = Bump(step=150)
SWEEP = (
    Cell(recipe="bf16", bumps=[ON_ALL]),
    Cell(recipe="tensorwise", speed_pct=25, loss_pct=0.1, memory_pct=-10, bumps=[ON_ALL], bad_layer="layers.1.down"),
    Cell(recipe="rowwise", loss_pct=2.0, bumps=[ON_ALL, Bump(step=250)], lost_at=[99]),
    Cell(recipe="rowwise_with_gw_hp", speed_pct=10, bumps=[ON_ALL, Bump(step=390, width=None)], slow_rank=1),
    Cell(recipe="mxtw", speed_pct=60, bumps=[ON_ALL], config={"wrap": "whole"}, slow_run=True),
    Cell(recipe="mxfp8", speed_pct=30, bumps=[ON_ALL], runs=4, diverges_at=77),
)


def make_sweep(parent: Path, seed: int, cells: Sequence[Cell] = SWEEP, steps: int = 400, ranks: int = 2) -> None:
    """Run folders under `parent`, which need not exist: `<recipe>-<repeat>`."""
    data = np.exp(LOSS_OF_DATA * np.random.default_rng([seed, 0]).standard_normal(steps))
    for at, cell in enumerate(cells):
        for repeat in range(1, cell.runs + 1):
            _make_run(parent, cell, repeat, np.random.default_rng([seed, 1, at, repeat]), data, ranks)


def _make_run(
    parent: Path, cell: Cell, repeat: int, noise: np.random.Generator, data: np.ndarray[Any, Any], ranks: int
) -> None:
    folder = RunDir(parent / f"{cell.recipe}-{repeat}")
    folder.path.mkdir(parents=True)
    steps, last = len(data), repeat == cell.runs
    times = STEP_NS / (1 + cell.speed_pct / 100) * np.exp(NOISE_OF_RUNS * noise.standard_normal())
    times = times * np.exp(NOISE_OF_STEPS * noise.standard_normal(steps)) * (1.2 if cell.slow_run and last else 1.0)
    count = np.arange(1, steps + 1)
    losses = (2 + 3 * np.exp(-count / 80)) * data * (1 + cell.loss_pct / 100)
    losses = losses * np.exp(LOSS_OF_RUNS * noise.standard_normal() + LOSS_OF_STEPS * noise.standard_normal(steps))
    norms = np.exp(0.05 * noise.standard_normal(steps))
    for bump in cell.bumps:
        losses *= _bumped(count, bump)
        norms[bump.step - 1] *= 5
    until = cell.diverges_at - 1 if cell.diverges_at and last else steps
    ends = np.cumsum(times * 1.01).astype(np.int64)
    for rank in range(ranks):
        slow = cell.slow_rank == rank and repeat == 1
        with JsonlWriter(folder.steps_path(rank)) as writer:
            for at in range(until):
                evaluates = (at + 1) % 50 == 0
                writer.write(
                    Step(
                        step=at + 1,
                        rank=rank,
                        start_ns=int(ends[at] - times[at]),
                        duration_ns=int(times[at] * (1.2 if slow else 1 - 0.001 * rank)),
                        loss=None if at + 1 in cell.lost_at and repeat == 1 else float(losses[at]),
                        grad_norm=float(norms[at]),
                        tokens=TOKENS,
                        positions=TOKENS,
                        memory_allocated_bytes=int(MEMORY * (1 + cell.memory_pct / 100)),
                        eval_loss=float(losses[at]) if evaluates else None,
                        eval_accuracy=0.5 if evaluates else None,
                        marks=("first",) if at == 0 else ("eval",) if evaluates else (),
                    )
                )
    _telemetry(folder, int(ends[until - 1]), ranks)
    if cell.bad_layer:
        _numerics(folder, cell.bad_layer)
    diverged = f"the loss is nan at step {cell.diverges_at} and training cannot go on from there; lower --lr"
    outcome = Outcome(state="completed") if until == steps else Outcome(state="failed", message=diverged, exit_code=1)
    folder.write_manifest(_manifest(folder.name, cell, ranks, steps, outcome))


def _bumped(count: np.ndarray[Any, Any], bump: Bump) -> np.ndarray[Any, Any]:
    since = count - bump.step
    if bump.width is None:
        return np.where(since >= 0, bump.times, 1.0)
    return 1 + (bump.times - 1) * np.where((since >= 0) & (since < bump.width), 1 - since / bump.width, 0)


def _telemetry(folder: RunDir, end_ns: int, ranks: int) -> None:
    with JsonlWriter(folder.telemetry_path(0)) as writer:
        for t_ns in (0, end_ns + STEP_NS):
            for device in range(ranks):
                writer.write(GpuSample(t_ns=t_ns, device=device, energy_mj=t_ns * WATTS // 10**6))


def _numerics(folder: RunDir, bad: str) -> None:
    with JsonlWriter(folder.numerics_path()) as writer:
        for step in (100, 200, 300, 400):
            for layer in ("layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down"):
                writer.write(
                    OperandStatistics(
                        step=step,
                        layer=layer,
                        operand="input",
                        dtype="float8_e4m3fn",
                        granularity="tensorwise",
                        values=4096,
                        amax=4.0,
                        saturated_share=0.0,
                        underflowed_share=0.0,
                        sqnr_db=31.0 - 10 * (layer == bad) * math.sqrt(step / 400),
                        kurtosis=3.0,
                    )
                )


def _manifest(name: str, cell: Cell, ranks: int, steps: int, outcome: Outcome) -> Manifest:
    return Manifest(
        run=name,
        recipe=recipe(cell.recipe),
        emulated=False,
        config={"wrap": "layer", "seed": 1, "steps": steps, **cell.config},
        world=World(size=ranks, nodes=1, backend="nccl"),
        devices=[GPU] * ranks,
        model={"name": "made"},
        data={"sha256": "made"},
        versions={"torch": "2.13.0"},
        argv=[],
        started_ns=0,
        outcome=msgspec.structs.replace(outcome, steps=steps),
    )


if __name__ == "__main__":
    make_sweep(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
