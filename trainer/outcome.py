"""How a run ended, written down by whoever learns it: a rank while it can, else the launcher.

A rank that fails of itself is the cause; ranks that then lose contact with it are not, and never overwrite its word.
"""

import json
import os
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from ..record.errors import TraceError, UserError, plain_reason
from ..record.manifest import Outcome, without_home
from ..record.run import RunDir
from .place import Place
from .ranks import CommonError
from .stopping import Stopped, signal_name

LOST_CONTACT = "lost contact with another rank"
_LESS_MEMORY = "lower --micro-batch or --seq-len, or add --activation-checkpointing"
_NO_HOST_MEMORY = ("can't allocate memory", "not enough memory", "Cannot allocate memory", "std::bad_alloc")
_PEER_GONE = ("gloo", "Connection closed by peer", "Connection reset by peer", "NCCL", "Broken pipe")


def settle(run: RunDir | None, outcome: Outcome) -> Outcome:
    """Write `outcome` into a manifest that has none of weight yet; answers the one that stands there then.

    A run without a readable manifest keeps having none, and `outcome` is answered.
    """
    try:
        manifest = run.manifest() if run else None
    except TraceError:
        manifest = None
    if run is None or manifest is None:
        return outcome
    standing = manifest.outcome
    if standing.state == "running" or (standing.message or "").startswith(LOST_CONTACT):
        steps = steps_finished(run) if outcome.steps is None else outcome.steps
        manifest.outcome = msgspec.structs.replace(outcome, steps=steps)
        manifest.ended_ns = time.time_ns()
        with suppress(OSError):  # the folder is gone, or its disk full
            run.write_manifest(manifest)
    return manifest.outcome


class LastWord:
    """A `with` around a rank's work that turns whatever ends it into an outcome, one line, and an exit code."""

    def __init__(self, rank: int) -> None:
        """`rank` is this process's."""
        self.run: RunDir | None = None
        """The run, once the ranks have agreed on it."""
        self.ended: Outcome | None = None
        """How training ended, once it has."""
        self.outcome = Outcome()
        self.standing = Outcome()
        """What the manifest says: this rank's own outcome, or the word of the rank that was the cause."""
        self.shared = False
        """Whether other ranks have the same to say: all failed alike, or lost contact with the one that failed."""
        self._rank = rank

    @property
    def exit_code(self) -> int:
        """For the process: 0, 1 or 2 for a failure, 128 and the signal's number for a stop that was asked for."""
        return self.outcome.exit_code or 0

    def said_on(self, here: Place) -> bool:
        """Whether the cause is another rank of the same node, which says it itself."""
        cause = self.standing
        return (
            cause.rank not in (None, here.rank)
            and (cause.rank or 0) // here.local_world == here.node
            and not (cause.message or "").startswith(LOST_CONTACT)
        )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        """Settle the outcome; swallows everything but a request to leave Python."""
        if error is None:
            self.outcome = self.ended or self.outcome
            if self._rank == 0:
                settle(self.run, self.outcome)
            return True
        if isinstance(error, Stopped):
            self.outcome = stopped(error.signum, steps_finished(self.run) or 0)
        elif isinstance(error, Exception):
            code = error.exit_code if isinstance(error, UserError) else 1
            line = explain(error, self.run, self._rank)
            self.outcome = Outcome(state="failed", message=line, rank=self._rank, exit_code=code)
            self.shared = isinstance(error, CommonError) or is_lost_contact(error)
        else:
            return False
        self.standing = settle(self.run, self.outcome)
        _tell_launcher(self.outcome.message or "")
        return True


def stopped(signum: int, steps: int | None) -> Outcome:
    """The outcome of a run that a signal ended in good order."""
    when = f"after step {steps}" if steps else "before the first step"
    return Outcome(
        state="interrupted", message=f"stopped by {signal_name(signum)} {when}", exit_code=128 + signum, steps=steps
    )


def explain(error: Exception, run: RunDir | None, rank: int) -> str:
    """The failure in one line. The traceback of anything but a user's mistake goes to a file that the line names."""
    if isinstance(error, UserError):
        return str(error)
    text = " ".join(str(error).split()) or "no message"
    text = text if len(text) <= 300 else text[:297] + "..."
    kind = type(error).__name__
    if is_lost_contact(error):
        line = f"{LOST_CONTACT}: its process, its machine or the network ended; that node's log says more"
        line += f" (found by rank {rank}: {kind})"
    elif kind == "OutOfMemoryError":
        line = f"rank {rank} ran out of GPU memory; {_LESS_MEMORY}"
    elif is_out_of_host_memory(error):
        line = f"rank {rank} ran out of the machine's memory; {_LESS_MEMORY}, or start fewer processes with --nproc"
    elif isinstance(error, OSError):
        line = f"rank {rank} failed: {plain_reason(error)}"
    else:
        line = f"rank {rank} failed with {kind}: {text}"
    if run is None:
        return line
    path = run.error_path(rank)
    try:
        path.write_text("".join(without_home(traceback.format_exception(error))), encoding="utf-8")
    except OSError:  # the folder is gone, or its disk full
        return line
    return f"{line}; traceback in {path}"


def is_out_of_host_memory(error: Exception) -> bool:
    """Whether the machine had no memory left to give."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in _NO_HOST_MEMORY)
    )


def is_lost_contact(error: Exception) -> bool:
    """Whether the error is what another rank's death looks like from here."""
    from torch.distributed import DistError

    return isinstance(error, DistError) or (
        isinstance(error, RuntimeError) and any(sign in str(error) for sign in _PEER_GONE)
    )


def _tell_launcher(line: str) -> None:
    """Leave the one line where torch's launcher looks for it, if one started this process."""
    place = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if place:
        # torch's launcher takes the earliest failure for the cause: a lost contact is dated after the loss.
        when = int(time.time()) + line.startswith(LOST_CONTACT)
        message = {"message": line, "extraInfo": {"py_callstack": line, "timestamp": str(when)}}
        with suppress(OSError):
            Path(place).write_text(json.dumps({"message": message}), encoding="utf-8")


def steps_finished(run: RunDir | None) -> int | None:
    """Steps that every rank has written down; None where there are none to read."""
    try:
        steps = run.steps() if run else {}
    except TraceError:
        return None
    return min((len(of_rank) for of_rank in steps.values()), default=None)
