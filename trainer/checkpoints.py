"""Checkpoints: written beside training, whole or not at all, and read back so that training goes on bit for bit.

A checkpoint is a folder `checkpoints/step-<N>` of torch.distributed.checkpoint, renamed into place when every rank has
written its part; `step.json` in it says what it is. Data order and learning rate are functions of the step.
"""

import pickle
import shutil
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_state
from torch.distributed.checkpoint.state_dict_saver import async_save
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves

from ..profiling.ranges import region
from ..record.errors import NO_SPACE, UserError, first_line
from ..record.run import RunDir
from .ranks import CommonError
from .sharding import unwrapped

_FACTS = "step.json"
_PART = ".step-{}.part"
_UNREADABLE = (
    CheckpointException, OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError, LookupError,
    AttributeError, TypeError, ImportError,
)  # fmt: skip
"""What reading broken or foreign bytes may raise: a checkpoint's metadata is a pickle."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a checkpoint is."""

    step: int
    eval_loss: float | None
    world: int


class Trained(NamedTuple):
    """What training changes."""

    model: Any
    optimizer: torch.optim.Optimizer


class Checkpoints:
    """Writes a run's checkpoints, one at a time, and keeps the newest ones and the best. All ranks call it together."""

    def __init__(self, run: RunDir, trained: Trained, *, every: int, keep: int) -> None:
        """`every` so many steps (0: never), keeping `keep` and the best by eval loss."""
        self._folder = run.checkpoints
        self._trained = trained
        self._every, self._keep = every, keep
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        if every and self._rank == 0:  # what a kill has left half-written, of steps that may not come due again
            for part in self._folder.glob(_PART.format("*")):
                shutil.rmtree(part, ignore_errors=True)
        # Its collectives run on another thread than training's and must not mix with them.
        self._group = dist.new_group(backend="gloo") if every else None
        self._writing: tuple[Facts, Future[Any]] | None = None
        self._needs_bytes = 0
        """Of the tensors in the checkpoint that is being written."""

    @property
    def writing(self) -> bool:
        """Whether one is being written beside training."""
        return self._writing is not None

    def after(self, step: int, eval_loss: float | None, *, last: bool) -> int | None:
        """Save if step `step` is due or the last, which is waited for; the ns it held training up, None if not due."""
        if not self._every:
            return None
        began = time.perf_counter_ns()
        due = step % self._every == 0 or last
        if due:
            with region("checkpoint"):
                self._save(Facts(step=step, eval_loss=eval_loss, world=self._world))
        self._settle(wait=last)
        return time.perf_counter_ns() - began if due else None

    def _save(self, facts: Facts) -> None:
        self._settle(wait=True)
        part = self._part(facts.step)
        if self._rank == 0:
            shutil.rmtree(part, ignore_errors=True)
        state = _state(self._trained, self._rank)
        self._needs_bytes = self._world * _bytes_here(state)
        future = async_save(state, checkpoint_id=str(part), process_group=self._group)
        assert isinstance(future, Future)
        self._writing = facts, future

    def _settle(self, *, wait: bool) -> None:
        """Take notice of a finished write: the first rank makes it a checkpoint and drops what is no longer kept."""
        if self._writing is None or not (wait or self._writing[1].done()):
            return
        facts, future = self._writing
        self._writing = None
        try:
            future.result()
            if self._rank == 0:
                self._publish(facts)
        except (CheckpointException, OSError, RuntimeError) as error:
            line = self._failure(facts.step, error)
            if self._rank == 0:  # what there is of it may be what fills the disk
                shutil.rmtree(self._part(facts.step), ignore_errors=True)
            # torch tells every rank when one fails; only the first rank publishes
            raise (CommonError if isinstance(error, CheckpointException) else UserError)(line) from error

    def _publish(self, facts: Facts) -> None:
        part, whole = self._part(facts.step), self._folder / f"step-{facts.step}"
        (part / _FACTS).write_bytes(msgspec.json.encode(facts))
        shutil.rmtree(whole, ignore_errors=True)  # of a run that was resumed from before it
        part.rename(whole)
        kept = set(to_keep(all_checkpoints(self._folder), self._keep))
        for folder, found in all_checkpoints(self._folder).items():
            if folder not in kept and found.step != facts.step:
                shutil.rmtree(folder)

    def _part(self, step: int) -> Path:
        return self._folder / _PART.format(step)

    def _failure(self, step: int, error: BaseException) -> str:
        causes = [cause for cause, _ in error.failures.values()] if isinstance(error, CheckpointException) else [error]
        if any(_is_full(cause, self._folder, self._needs_bytes) for cause in causes):
            reason, mend = "the disk is full", "make room"
        else:
            reason, mend = " ".join(str(causes[0]).split())[:300] or type(causes[0]).__name__, "mend that"
        way = ways_on(RunDir(self._folder.parent))
        return f"the checkpoint of step {step} could not be written ({reason}); {mend}, then {way}"


def ways_on(run: RunDir) -> str:
    """How to go on with a run that had to stop."""
    good = max((facts.step for facts in all_checkpoints(run.checkpoints).values()), default=None)
    if good is None:
        return "start again (there is no checkpoint to go on from)"
    return f"go on from step {good} with --resume {quote(str(run.path))}"


def _is_full(error: BaseException | None, folder: Path, needs_bytes: int) -> bool:
    """Whether the error, or one that led to it, is that the disk is full.

    torch's own writer does not say why. Another rank may have removed the part by now, so that what counts is whether
    there is room for all of it.
    """
    if error is None:
        return False
    if isinstance(error, OSError):
        return error.errno in NO_SPACE
    if "failed writing" in str(error) or "unexpected pos" in str(error):
        with suppress(OSError):
            return shutil.disk_usage(folder).free < needs_bytes
    return _is_full(error.__cause__ or error.__context__, folder, needs_bytes)


def all_checkpoints(folder: Path) -> dict[Path, Facts]:
    """The whole checkpoints in `folder`; a part left by a crash is none."""
    found: dict[Path, Facts] = {}
    for path in folder.glob("step-*"):
        try:
            found[path] = msgspec.json.decode((path / _FACTS).read_bytes(), type=Facts)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
    return found


def to_keep(checkpoints: dict[Path, Facts], newest: int) -> list[Path]:
    """The `newest` of them by step, and the one with the lowest eval loss."""
    kept = sorted(checkpoints, key=lambda path: checkpoints[path].step)[-newest:]
    evaluated = [path for path, facts in checkpoints.items() if facts.eval_loss is not None]
    best = min(evaluated, key=lambda path: (checkpoints[path].eval_loss, -checkpoints[path].step), default=None)
    return kept if best is None or best in kept else [*kept, best]


def latest(run: RunDir) -> tuple[Path, Facts]:
    """The newest whole checkpoint of a run; UserError where it has none."""
    found = all_checkpoints(run.checkpoints)
    if not found:
        raise UserError(f"{run.path}: has no checkpoint to resume from; train with --checkpoint-every to have some")
    return max(found.items(), key=lambda item: item[1].step)


def load(folder: Path, trained: Trained) -> None:
    """Put a checkpoint's weights, optimizer state and random state in place. Any number of ranks may read it.

    UserError where it does not fit the model.
    """
    rank = dist.get_rank()
    state = _state(trained, rank)
    reader = FileSystemReader(str(folder))
    try:
        known = reader.read_metadata().state_dict_metadata
        if _random_key(rank) not in known:  # it was written by fewer ranks
            del state[_random_key(rank)]
        load_state(state, storage_reader=reader)
    except _UNREADABLE as error:
        raise UserError(
            f"{folder}: cannot be read as a checkpoint of this model ({first_line(error)}); without this folder, "
            "--resume goes on from the one before it"
        ) from error
    set_state_dict(
        trained.model,
        trained.optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    if _random_key(rank) in state:
        torch.set_rng_state(state[_random_key(rank)])


def _state(trained: Trained, rank: int) -> dict[str, Any]:
    model, optimizer = get_state_dict(trained.model, trained.optimizer)
    return {
        "model": {name: unwrapped(weight) for name, weight in model.items()},
        "optimizer": optimizer,
        _random_key(rank): torch.get_rng_state(),
    }


def _bytes_here(state: dict[str, Any]) -> int:
    """Bytes of this rank's tensors."""
    tensors = [leaf for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)]
    return sum((tensor.to_local() if isinstance(tensor, DTensor) else tensor).nbytes for tensor in tensors)


def _random_key(rank: int) -> str:
    return f"random.rank{rank}"
