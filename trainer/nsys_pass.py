"""A run's pass under Nsight Systems: the same settings once more, as far as the window, after the run itself.

Two profilers in one process exclude each other, and nsys slows what it watches: so the timed run is done and written
before this begins. Nothing that goes wrong here changes that run or its exit code.
"""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from ..profiling.nsys import Captured, Nsys, Ran, files_of, find_nsys, finish, profile_command, run_under
from ..profiling.nsys_window import VARIABLE
from ..profiling.schedule import Span
from ..record.errors import ConfigError, TraceError
from ..record.manifest import Capture, Manifest, Outcome
from ..record.run import RunDir
from .config import Config
from .ranks import RUN_FOLDER
from .recording import schedule
from .stopping import Stopped, StopRequest, signal_name

SCRATCH = ".nsys-pass"
"""The folder, in the run's, of what the pass leaves besides its report; gone once all went well."""

_SETTLED = (
    "steps", "warmup_steps", "warmup_ratio", "profile_at", "profile_wait", "profile_warmup", "profile_active",
    "profile_repeat",
)  # fmt: skip
_LEAST_S = 600.0
_TIMES_THE_RUN = 4


def nsys_asked(config: Config) -> Nsys | None:
    """The nsys to use; None where none is asked for. ConfigError where it is, and there is none to use."""
    if "nsys" not in config.captures:
        return None
    try:
        return find_nsys(os.environ)
    except ConfigError as error:
        raise ConfigError(f"--capture nsys: {error}; or leave nsys out of --capture") from None


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
        _say(f"steps {steps[0]} to {steps[1]} once more under nsys {nsys.version}" + _remarks(nsys, whole=whole))
        captured = _captured(config, run, nsys, span, manifest)
    except Stopped as stopped:
        code = 128 + stopped.signum
        captured = Captured(problem=f"stopped by {signal_name(stopped.signum)} before its report was whole")
    except Exception as error:  # noqa: BLE001 - whatever it is, the run stays as good as it was
        captured = Captured(problem=f"the pass failed with {type(error).__name__}: {' '.join(str(error).split())}")
    _close(run, nsys, steps, captured)
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
        log=scratch / "log.txt",
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


def _remarks(nsys: Nsys, *, whole: bool) -> str:
    text = "; without a GPU its window cannot be opened, so all of the pass is recorded" if whole else ""
    if not nsys.discards_environment:
        text += "; this version writes environment variables into its report: mind whom you send it to"
    return text


def _close(run: RunDir, nsys: Nsys, steps: Span, captured: Captured) -> None:
    """Note the capture in the manifest and say it in one line; what the pass left is kept where something failed."""

    def name(path: Path | None) -> str | None:
        return path.name if path else None

    capture = Capture(
        tool="nsys",
        version=nsys.version,
        report=name(captured.report),
        sqlite=name(captured.sqlite),
        stats=[path.name for path in captured.stats],
        steps=steps,
        problem=captured.problem.replace(str(run.path) + os.sep, "") if captured.problem else None,
    )
    try:
        manifest = run.manifest()
        manifest.captures = [other for other in manifest.captures if other.tool != "nsys"] + [capture]
        run.write_manifest(manifest)
    except (OSError, TraceError) as error:
        _say(f"the manifest could not be written: {error}")
    if captured.problem:
        log = run.path / SCRATCH / "log.txt"
        more = f" (its log: {log})" if log.exists() else ""
        _say(f"{captured.problem}{more}; the run itself is complete")
        return
    shutil.rmtree(run.path / SCRATCH, ignore_errors=True)
    _say(f"done; look at it with: analyze-nsys {quote(str(captured.sqlite))}")


def _say(line: str) -> None:
    sys.stderr.write(f"profile-train: nsys: {line}\n")
    sys.stderr.flush()
