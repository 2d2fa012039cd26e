"""A run's pass under Nsight Systems: the same settings once more, as far as the window, after the run itself.

Two profilers in one process exclude each other, and nsys slows what it watches: so the timed run is done and written
before this begins. Nothing that goes wrong here changes that run or its exit code.
"""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..profiling.nsys import Captured, Nsys, Ran, files_of, finish, nsys_asked, profile_command, run_under
from ..profiling.nsys_note import SCRATCH, log_path, note, remark
from ..profiling.nsys_window import VARIABLE
from ..profiling.schedule import Span
from ..record.errors import TraceError
from ..record.manifest import Manifest, Outcome
from ..record.run import RunDir
from .config import Config
from .ranks import RUN_FOLDER
from .recording import schedule
from .stopping import Stopped, StopRequest, signal_name

_SETTLED = (
    "steps", "warmup_steps", "warmup_ratio", "profile_at", "profile_wait", "profile_warmup", "profile_active",
    "profile_repeat",
)  # fmt: skip
_LEAST_S = 600.0
_TIMES_THE_RUN = 4


def nsys_of(config: Config) -> Nsys | None:
    """The nsys to use; None where none is asked for. ConfigError where it is, and there is none to use."""
    if "nsys" not in config.captures:
        return None
    return nsys_asked(os.environ)


def nsys_pass(config: Config, run: RunDir, nsys: Nsys) -> int:
    """Do it, and note in the run's manifest what came of it. Answers 0, or 128 and the number of a signal."""
    StopRequest().install()
    code = 0
    steps: Span = (0, 0)
    try:
        manifest = run.manifest()
        settled: dict[str, Any] = {name: manifest.config.get(name) for name in _SETTLED}
        config = replace(config, **settled, epochs=None)
        span = schedule(config, 0).spans[0]
        whole = manifest.devices[0].kind != "cuda"
        steps = (1, span[1]) if whole else span
        _say(f"steps {steps[0]} to {steps[1]} once more under nsys {nsys.version}{_whole(whole=whole)}{remark(nsys)}")
        captured = _captured(config, run, nsys, span, manifest)
    except Stopped as stopped:
        code = 128 + stopped.signum
        captured = Captured(problem=f"stopped by {signal_name(stopped.signum)} before its report was whole")
    except Exception as error:  # noqa: BLE001 - whatever it is, the run stays as good as it was
        captured = Captured(problem=f"the pass failed with {type(error).__name__}: {' '.join(str(error).split())}")
    note(run, nsys, captured, _say, steps=steps, stands="the run itself is complete")
    return code


def pass_settings(config: Config, scratch: Path) -> Config:
    """The run's settings for the pass: the same training, and nothing that is written beside it."""
    return replace(
        config, capture="none", profile=False, profile_at=None, profile_wait=None, profile_active=None,
        profile_repeat=1, telemetry_period=0.0, checkpoint_every=0, save_model=False, resume=None, preset=None,
        config=None, out=scratch, run_name="pass", hints=False,
    )  # fmt: skip


def _captured(config: Config, run: RunDir, nsys: Nsys, span: Span, manifest: Manifest) -> Captured:
    scratch, stem = run.path / SCRATCH, run.nsys_stem(0)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for earlier in files_of(stem):
        earlier.unlink(missing_ok=True)
    took_s = ((manifest.ended_ns or manifest.started_ns) - manifest.started_ns) / 1e9
    window = manifest.devices[0].kind == "cuda"
    before = profile_command(nsys, stem, window=window, graph_nodes=config.nsys_graph_nodes, memory=config.nsys_memory)
    settings = pass_settings(config, scratch)
    environment = {name: value for name, value in os.environ.items() if name != RUN_FOLDER}
    ran = run_under(
        [*before, sys.executable, "-m", "stepscope.trainer", *settings.flags()],
        limit_s=_LEAST_S + _TIMES_THE_RUN * took_s,
        log=log_path(run),
        environment=environment | {VARIABLE: f"{span[0]}:{span[1]}"},
    )
    return _judged(finish(nsys, stem, ran), RunDir(scratch / "pass"), ran)


def _judged(captured: Captured, trained: RunDir, ran: Ran) -> Captured:
    """A pass whose own training failed has that for its problem, whatever nsys made of it."""
    try:
        outcome = trained.manifest().outcome
    except TraceError:
        outcome = Outcome()
    if outcome.state == "failed":
        return replace(captured, problem=f"training under nsys failed: {outcome.message}")
    if outcome.state != "completed" and not captured.problem:
        return replace(captured, problem=f"training under nsys did not finish{ran.last_words}")
    return captured


def _whole(*, whole: bool) -> str:
    return "; without a GPU its window cannot be opened, so all of the pass is recorded" if whole else ""


def _say(line: str) -> None:
    sys.stderr.write(f"profile-train: nsys: {line}\n")
    sys.stderr.flush()
