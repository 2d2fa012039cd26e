"""A sweep: one run for each recipe, wrapping and repeat, one after the other, each a `profile-train` of its own.

The runs take turns, and each repeat begins with another one, so that a machine that grows warm, or busy, favours none.
A run that fails is noted and the next one begins; `--resume` runs what is missing.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from shlex import quote

from ..profiling.children import wait_for
from ..record.document import indented
from ..record.errors import ConfigError, TraceError, UserError
from ..record.manifest import Outcome
from ..record.recipes import recipe
from ..record.run import EARLIER, RunDir, default_run_name, new_run
from ..record.sweep import Cell, CellState, Sweep, read_sweep, write_sweep
from ..record.units import show_ns
from .check_data import check_data
from .checkpoints import all_checkpoints
from .config import Config
from .hardware import Hardware
from .nsys_pass import nsys_of
from .resolve import resolved, resolved_recipe, shown_settings
from .stopping import STOP_CODES
from .words import next_lines

_DEFAULTS = Config()
_PLACES = ("out", "run_name", "resume", "config", "preset", "hints")
"""Settings that place a sweep or say where others came from; its plan does not keep them."""


def planned(config: Config) -> list[Cell]:
    """The runs in order. ConfigError for a recipe or wrapping that is named twice or unknown."""
    kinds = [(recipe(name).name, wrap) for name in config.recipes for wrap in config.wraps]
    if len(set(kinds)) < len(kinds):
        raise ConfigError(f"--recipe: {config.recipe} names one recipe twice; --repeats repeats them")
    cells = []
    for repeat in range(1, config.repeats + 1):
        turn = (repeat - 1) % len(kinds)
        for name, wrap in kinds[turn:] + kinds[:turn]:
            parts = [name]
            parts += [wrap] if len(config.wraps) > 1 else []
            parts += [str(repeat)] if config.repeats > 1 else []
            cells.append(Cell(run="-".join(parts), recipe=name, wrap=wrap, repeat=repeat))
    return cells


def settings_of(cell: Cell, config: Config) -> Config:
    """The settings of one run. Switches that need FP8 are left out where the recipe has none."""
    config = replace(config, recipe=cell.recipe, wrap=cell.wrap, repeats=1, resume=None, config=None, preset=None)
    return config if recipe(cell.recipe).is_float8 else replace(config, fp8_all_gather=None, pad_inner_dim=None)


def dry_run(config: Config, hardware: Hardware) -> str:
    """A line for each run, in order, then the settings of the first as they would run, as JSON."""
    cells = _plan(config, ()).cells
    all_settings = [resolved(settings_of(cell, config), hardware, {}) for cell in cells]
    lines = [f"{len(cells)} runs, one after the other:"]
    for cell, settings in zip(cells, all_settings, strict=True):
        why = hardware.why_emulated(resolved_recipe(settings))
        lines.append(f"  {cell.run}: {cell.recipe}, wrap {cell.wrap}" + (f", FP8 emulated ({why})" if why else ""))
    first = indented(shown_settings(all_settings[0])).decode()
    return "\n".join([*lines, f"settings of {cells[0].run}:", first, ""])


def sweep(config: Config, hardware: Hardware, arguments: Sequence[str]) -> Path:
    """Run what is planned, or what is missing of it, and answer the sweep's folder.

    UserError, after the last run, where some did not finish; KeyboardInterrupt where one was stopped by a signal.
    """
    plan = read_sweep(config.resume) if config.resume else _plan(config, arguments)
    for cell in plan.cells:
        resolved(settings_of(cell, config), hardware, {})  # a contradiction ends it here, before the first run
    check_data(config)
    nsys_of(config)  # likewise where it is not there
    folder = config.resume or new_run(config.out, config.run_name or default_run_name("sweep")).path
    missing = _missing(plan, folder)
    began = time.monotonic_ns()
    for done, cell in enumerate(missing):
        left = (time.monotonic_ns() - began) / done * (len(missing) - done) if done else None
        _say(plan, cell, left)
        _run(plan, cell, settings_of(cell, config), folder)
    plan.ended_ns = time.time_ns()
    write_sweep(folder, plan)
    _close(plan, folder, hints=config.hints)
    return folder


def _plan(config: Config, arguments: Sequence[str]) -> Sweep:
    values = {field.name: getattr(config, field.name) for field in fields(config) if field.name not in _PLACES}
    asked = {name: value for name, value in values.items() if value != getattr(_DEFAULTS, name)}
    return Sweep(
        settings={name: str(value) if isinstance(value, Path) else value for name, value in asked.items()},
        cells=planned(config),
        argv=["profile-train", *arguments],
        started_ns=time.time_ns(),
    )


def _missing(plan: Sweep, folder: Path) -> list[Cell]:
    """Runs that have not completed, by their own word where they have left one."""
    for cell in plan.cells:
        _learn(cell, folder, silent="planned")
    write_sweep(folder, plan)
    return [cell for cell in plan.cells if cell.state != "completed"]


def _run(plan: Sweep, cell: Cell, settings: Config, folder: Path) -> None:
    """Run one; its state and message say how it ended. KeyboardInterrupt where it was stopped by a signal."""
    place = folder / cell.run
    if all_checkpoints(RunDir(place).checkpoints):
        words = ["--resume", str(place), "--no-hints"]
    else:
        _set_aside(place, folder)
        words = replace(settings, out=place.parent, run_name=place.name, hints=False).flags()
    cell.state, cell.message = "running", None
    write_sweep(folder, plan)
    code = wait_for([sys.executable, "-m", "stepscope.trainer", *words], stdout=subprocess.DEVNULL)
    stopped = code in STOP_CODES
    _learn(cell, folder, silent="interrupted" if stopped else "failed")
    write_sweep(folder, plan)
    if stopped:
        sys.stderr.write(next_lines([f"profile-train --resume {quote(str(folder))}"]))
        raise KeyboardInterrupt


def _learn(cell: Cell, folder: Path, *, silent: CellState) -> None:
    """Take over what the run's own manifest says; `silent` is the state of one that has left no word."""
    try:
        outcome = RunDir(folder / cell.run).manifest().outcome
    except TraceError:
        outcome = Outcome()
    if outcome.state != "running":
        cell.state, cell.message = outcome.state, outcome.message
    else:
        cell.state, cell.message = silent, None if silent == "planned" else "it ended without a word"


def _set_aside(place: Path, folder: Path) -> None:
    """Keep an attempt that is to be repeated, where no comparison picks it up unasked."""
    if place.exists():
        aside = new_run(folder / EARLIER, place.name).path
        place.rename(aside)


def _say(plan: Sweep, cell: Cell, left_ns: float | None) -> None:
    number = plan.cells.index(cell) + 1
    rest = f", about {show_ns(left_ns)} to go" if left_ns else ""
    sys.stderr.write(f"\n[{number}/{len(plan.cells)}] {cell.run}{rest}\n")
    sys.stderr.flush()


def _close(plan: Sweep, folder: Path, *, hints: bool) -> None:
    failed = [cell for cell in plan.cells if cell.state != "completed"]
    completed = len(plan.cells) - len(failed)
    sys.stderr.write(f"\n{completed} of {len(plan.cells)} runs finished, in {folder}\n")
    if hints and completed:
        sys.stderr.write(next_lines(_next_commands(folder)))
    if failed:
        whys = "; ".join(f"{cell.run}: {cell.message}" for cell in failed)
        again = f"--resume {quote(str(folder))}"
        raise UserError(f"{len(failed)} of {len(plan.cells)} runs failed ({whys}); {again} tries them again")


def _next_commands(folder: Path) -> list[str]:
    place = quote(str(folder))
    return [
        f"stepscope compare {place}",
        f"stepscope report {place} -o report.html",
        f"tensorboard --logdir {place}",
    ]
