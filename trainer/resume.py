"""Going on with a run: from its newest checkpoint, in its own folder, its step files cut back to that step."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch.distributed as dist

from ..record.atomic import write_atomically
from ..record.errors import UserError
from ..record.manifest import Manifest, Outcome, Resumption
from ..record.memory import read_memory
from ..record.run import RunDir
from ..record.steps import read_steps
from .checkpoints import Facts, Trained, latest, load
from .precision import precompute_scales
from .ranks import CommonError


def reopen(run: RunDir, steps: int) -> None:
    """Mark an ended run as running again. UserError where it has no checkpoint, or nothing is left to do.

    A run that has trained all its `steps` and was ended before it was closed has only its closing left.
    """
    _unfinished(run, steps)
    manifest = run.manifest()
    manifest.outcome, manifest.ended_ns = Outcome(), None
    run.write_manifest(manifest)


def rewind(run: RunDir, manifest: Manifest, *, steps: int, rank: int) -> Manifest:
    """Cut the run's files back to its newest checkpoint, and hand its history on to `manifest`. All ranks call it.

    Answers the manifest as it was before.
    """
    facts = _unfinished(run, steps)
    earlier = run.manifest()
    undone = max((len(of_rank) for of_rank in run.steps().values()), default=0) - facts.step
    this = Resumption(
        at_ns=time.time_ns(), from_step=facts.step, undone_steps=max(0, undone), world_size=manifest.world.size
    )
    manifest.started_ns, manifest.resumed = earlier.started_ns, [*earlier.resumed, this]
    manifest.captures = earlier.captures
    dist.barrier()  # every rank has read before the first writes
    if rank == 0:
        for of_rank in run.steps():
            _cut(run, of_rank, facts.step)
        if statistics := run.numerics():
            _rewrite(run.numerics_path(), [found for found in statistics if found.step <= facts.step])
        for path in run.memory_details():
            _rewrite(path, [detail for detail in read_memory(path) if detail.step <= facts.step])
    dist.barrier()
    return earlier


def check_data_as_before(earlier: Manifest, facts: dict[str, Any]) -> None:
    """CommonError where the data is no longer what the run was trained on: no step would be what it was to be."""
    before = earlier.data.get("sha256")
    if before not in (None, facts.get("sha256")):
        raise CommonError(
            f"--data: {facts.get('file')} has changed since this run was trained on it, so it cannot be gone on with; "
            "put the earlier data back, or start a new run"
        )


def restore(run: RunDir, trained: Trained, *, precompute: bool) -> int:
    """Put the newest checkpoint's state in place on this rank, and answer its step."""
    folder, facts = latest(run)
    load(folder, trained)
    if precompute:
        precompute_scales(trained.model)
    return facts.step


def _unfinished(run: RunDir, steps: int) -> Facts:
    _, facts = latest(run)
    if facts.step > steps:
        raise UserError(f"{run.path}: is at step {facts.step} already, beyond the {steps} of --steps")
    if facts.step == steps and run.manifest().outcome.state == "completed":
        raise UserError(f"{run.path}: has finished its {facts.step} steps; give more with --steps to go on")
    return facts


def _cut(run: RunDir, rank: int, last: int) -> None:
    kept = [step for step in read_steps(run.steps_path(rank)) if step.step <= last]
    _rewrite(run.steps_path(rank), kept)


def _rewrite(path: Path, records: Sequence[msgspec.Struct]) -> None:
    write_atomically(path, b"".join(msgspec.json.encode(record) + b"\n" for record in records))
