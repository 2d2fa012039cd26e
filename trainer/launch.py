"""Launching a run's workers on this machine, and saying in one line what became of them."""

import os
import signal
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from ..record.errors import UserError
from ..record.manifest import Outcome
from ..record.run import RunDir, default_run_name, new_run
from .check_data import check_data
from .config import Config
from .hardware import Hardware
from .nsys_pass import nsys_of, nsys_pass
from .outcome import LOST_CONTACT, settle, steps_finished, stopped
from .ranks import RUN_FOLDER
from .stopping import nothing_recorded, signal_name

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def launch(config: Config, hardware: Hardware, arguments: list[str]) -> int:
    """Start one worker per process asked for, wait, and answer the exit code; the manifest tells how it ended."""
    nsys = nsys_of(config)
    check_data(config)
    processes = config.nproc or 1
    missing = [folder for folder in (config.out, *config.out.parents) if not folder.exists()]
    run = _folder(config)
    os.environ[RUN_FOLDER] = str(run.path)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, hardware.cores // processes)))
    # How long a stop waits for the step and its checkpoint before workers are killed; torch's own 30 s is too short.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "600")
    try:
        outcome = _supervise(run, processes, arguments)
    finally:
        _end_stragglers()
        _tidy(run, processes, missing)
    code = _answer(run, outcome)
    return nsys_pass(config, run, nsys) if nsys and not code else code


def _folder(config: Config) -> RunDir:
    if config.resume is None:
        return new_run(config.out, config.run_name or default_run_name(config.recipe))
    from .resume import reopen

    run = RunDir(config.resume)
    reopen(run, config.steps or 0)
    return run


def _supervise(run: RunDir, processes: int, arguments: list[str]) -> Outcome | None:
    """Run the workers under torch's agent; answers what the workers could not write down themselves, if anything."""
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with TemporaryDirectory(prefix="stepscope-launch-", ignore_cleanup_errors=True) as scratch:
        job = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=scratch),
            # Under nohup SIGHUP is ignored, and torch would take it up again.
            signals_to_handle=",".join(s.name for s in _ENDING if signal.getsignal(s) != signal.SIG_IGN),
        )
        try:
            elastic_launch(job, sys.executable)("-m", "stepscope.trainer", *arguments)
        except SignalException as signalled:
            return settle(run, stopped(int(signalled.sigval), steps_finished(run)))
        except ChildFailedError as failed:
            return settle(run, _cause(failed.failures))
    return None


def _cause(failures: dict[int, Any]) -> Outcome:
    """The outcome for the rank that failed first of itself: killed ones before raising ones before bereaved ones."""

    def message(rank: int) -> str:
        told = failures[rank].message
        return str(told["message"] if isinstance(told, dict) else told)

    def order(rank: int) -> tuple[bool, bool, int]:
        failure = failures[rank]
        return failure.exitcode >= 0, message(rank).startswith(LOST_CONTACT), failure.timestamp

    rank = min(failures, key=order)
    code = failures[rank].exitcode
    if code < 0:
        name = signal_name(-code)
        why = " (the system ends processes so when memory runs out)" if name == "SIGKILL" else ""
        return Outcome(state="failed", message=f"rank {rank} was ended by {name}{why}", rank=rank, exit_code=1)
    told = isinstance(failures[rank].message, dict)
    text = message(rank) if told else f"rank {rank} ended with exit code {code}"
    return Outcome(state="failed", message=text, rank=rank, exit_code=code)


def _answer(run: RunDir, outcome: Outcome | None) -> int:
    if outcome is None or outcome.state == "completed":
        return 0
    if outcome.state == "interrupted":
        code = outcome.exit_code or 130
        if not run.manifest_path.exists():
            sys.stderr.write(nothing_recorded(code - 128))
        return code
    message = outcome.message or "a worker failed"
    if run.path.exists() and str(run.path) not in message:
        message += f" (the run is in {run.path})"
    error = UserError(message)
    error.exit_code = outcome.exit_code or 1
    raise error


def _tidy(run: RunDir, processes: int, made: list[Path]) -> None:
    """Remove what holds nothing: logs without a line, and the run's folder and those `made` for it if all are empty."""
    for rank in range(processes):
        log = run.log_path(rank)
        with suppress(OSError):
            if log.stat().st_size == 0:
                log.unlink()
    with suppress(OSError):
        for folder in (run.path, *made):
            folder.rmdir()


def _end_stragglers() -> None:
    """End workers that outlived the agent, as after a second Ctrl-C."""
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            child.kill()
