"""One rank of a run, from its process group to its last word in the manifest.

The same under torchrun and under our own launcher; the launcher names the run's folder in the environment, and without
it the first rank makes one.
"""

import json
import os
import sys
import time
import uuid
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ..profiling.facts import device_facts, environment_facts, git_commit, version_facts
from ..profiling.modules import ModuleRanges
from ..profiling.sampler import Sampler
from ..record.errors import UserError
from ..record.manifest import Device, Manifest, Outcome, World
from ..record.run import RunDir, default_run_name, new_run
from .build import build
from .check_data import check_data
from .checkpoints import Checkpoints, Trained
from .config import Config
from .export import save_model
from .hardware import Hardware
from .instruments import instruments_of, nsys_window
from .loop import Ended, train
from .outcome import LastWord, stopped
from .place import Place, place, process_group, ranks_without, same_everywhere
from .progress import progress_for
from .ranks import RUN_FOLDER, CommonError
from .resolve import plain_settings, resolved_recipe
from .resume import check_data_as_before, restore, rewind
from .stopping import StopRequest
from .watch import Watch
from .words import closing_words, longer_words, opening_words, precision_words

_SHOWN_WITHIN_S = 3.0


def work(config: Config, hardware: Hardware, arguments: list[str], stop: StopRequest) -> int:
    """Do this rank's share of the run and answer the process's exit code."""
    here = place(os.environ)
    with LastWord(here.rank) as last, process_group(here):
        if RUN_FOLDER not in os.environ:  # our own launcher has looked
            check_data_of_all(config)
        last.run = agree_on_run(config, here)
        if here.rank and RUN_FOLDER in os.environ:
            log_to(last.run.log_path(here.rank))
        ended = run_rank(config, hardware, arguments, here, last.run, stop)
        completed = Outcome(state="completed", exit_code=0, steps=ended.steps)
        last.ended = stopped(ended.signum, ended.steps) if ended.signum else completed
    if last.outcome.state == "failed":
        abandon(last, here)
    if here.rank == 0 and last.run and last.run.manifest_path.exists():
        sys.stderr.write(
            closing_words(last.run, last.outcome, hints=config.hints, torchrun=RUN_FOLDER not in os.environ)
        )
        sys.stdout.write(f"{last.run.path}\n")
    return last.exit_code


def agree_on_run(config: Config, here: Place) -> RunDir:
    """The folder that our launcher has made, or one that the first rank makes now; the same on every rank.

    Each rank takes it by its own --out. CommonError where some do not find there what the first rank has put into it.
    """
    if RUN_FOLDER in os.environ:
        return RunDir(Path(os.environ[RUN_FOLDER]))
    resumed = RunDir(config.resume) if config.resume else None
    name = mark = ""
    if here.rank == 0:
        first = resumed or new_run(config.out, config.run_name or default_run_name(config.recipe))
        name, mark = first.name, _leave_mark(first)
    run = resumed or RunDir(config.out / same_everywhere(name))
    path = run.path / same_everywhere(mark)
    blind = ranks_without(_appears(path))
    if here.rank == 0 and mark:
        path.unlink(missing_ok=True)
    if not blind:
        return run
    if here.rank == 0 and not resumed:
        run.path.rmdir()
    nodes = ", ".join(str(node) for node in sorted({rank // here.local_world for rank in blind}))
    raise CommonError(
        f"node {nodes} does not see what rank 0 has put into the run's folder, {run.path.absolute()} here; it must be "
        f"on storage that all nodes see, and {'--resume' if resumed else '--out'} must name it on each"
    )


def check_data_of_all(config: Config) -> None:
    """CommonError on every rank where one cannot read its data."""
    wrong = None
    try:
        check_data(config)
    except UserError as error:
        wrong = error
    if not ranks_without(wrong is None):
        return
    common = CommonError(str(wrong or "--data: another node cannot read it, and says why"))
    common.exit_code = wrong.exit_code if wrong else 1
    raise common


def check_same_data(facts: dict[str, Any], here: Place) -> None:
    """CommonError where a rank has read other data than the first: the order of rows, and the steps, would differ."""
    read = json.dumps({name: facts.get(name) for name in ("sha256", "examples", "training_rows")})
    others = ranks_without(read == same_everywhere(read))
    if others:
        nodes = ", ".join(str(node) for node in sorted({rank // here.local_world for rank in others}))
        raise CommonError(f"--data: node {nodes} has read other data than rank 0; give every node the same file")


def _leave_mark(run: RunDir) -> str:
    """Put an empty file into the run's folder and answer its name; none where there is no such folder."""
    mark = run.path / f".seen-by-all.{uuid.uuid4().hex}"
    try:
        mark.touch()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UserError(f"{run.path}: cannot be written to ({error.strerror})") from None
    return mark.name


def _appears(path: Path) -> bool:
    """Whether `path` is there; network storage has a few seconds to show it."""
    until = time.monotonic() + _SHOWN_WITHIN_S
    while not os.path.exists(path):  # false, not an error, where a folder may not be entered
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def run_rank(
    config: Config, hardware: Hardware, arguments: list[str], here: Place, run: RunDir, stop: StopRequest
) -> Ended:
    """Build, train and save."""
    manifest = first_manifest(config, hardware, arguments, here, run)
    earlier = None
    if config.resume:
        earlier = rewind(run, manifest, steps=config.steps or 0, rank=here.rank)
    with ExitStack() as stack:
        progress = stack.enter_context(closing(progress_for(rank=here.rank, every=config.log_every)))
        progress.note(opening_words(manifest, run))
        if here.rank == 0:
            run.write_manifest(manifest)
        if here.local_rank == 0 and config.telemetry_period:
            telemetry = run.telemetry_path(here.node)
            stack.enter_context(Sampler(telemetry, config.telemetry_period, device_uuids(here), os.getppid()))
        built = build(config, here, hardware)
        check_same_data(built.data_facts, here)
        if earlier:
            check_data_as_before(earlier, built.data_facts)
        manifest.model, manifest.data = built.model_facts, built.data_facts
        manifest.linear_layers = built.precision.linears
        job, config = built.job, built.job.config
        manifest.config = plain_settings(config)
        if words := precision_words(manifest):
            progress.note(words)
        if here.rank == 0:
            run.write_manifest(manifest)
        until = nsys_window().last or job.steps
        progress.expect(until)
        trained = Trained(job.model, job.optimizer)
        done = restore(run, trained, precompute=job.recipe.precompute_scales) if config.resume else 0
        if earlier and (planned := earlier.config.get("steps")) != job.steps:
            progress.note(longer_words(planned, job.steps, done))
        checkpoints = Checkpoints(run, trained, every=config.checkpoint_every, keep=config.checkpoint_keep)
        watch = stack.enter_context(Watch(run, here.rank, manifest, progress, wandb=config.wandb, done=done))
        if config.module_ranges:
            stack.enter_context(ModuleRanges(job.model))
        instruments = instruments_of(config, job.model, job.optimizer, here, run, done=done)
        if instruments.window:
            stack.enter_context(instruments.window)
        dist.barrier()  # whatever the first rank has opened for itself, as wandb, is no part of anyone's first step
        stop.training = True
        ended = train(job, instruments, watch, checkpoints, stop, done=done, until=until)
    if config.save_model and not ended.signum:
        save_model(built.job.model, built.tokenizer, run.model_path, rank=here.rank)
    dist.barrier()
    return ended


def first_manifest(config: Config, hardware: Hardware, arguments: list[str], here: Place, run: RunDir) -> Manifest:
    """The manifest as far as it is known before the model is. All ranks call it: each names its device."""
    recipe = resolved_recipe(config)
    devices: list[Device] = [device_facts(here.device)] * here.world
    dist.all_gather_object(devices, device_facts(here.device))
    emulated_why = hardware.why_emulated(recipe)
    return Manifest(
        run=run.name,
        recipe=recipe,
        emulated=emulated_why is not None,
        emulated_why=emulated_why,
        config=plain_settings(config),
        world=World(size=here.world, nodes=here.nodes, backend=here.backend),
        devices=devices,
        model={"name": config.model},
        versions=version_facts(),
        environment=environment_facts(),
        argv=["profile-train", *arguments],
        git_commit=git_commit(),
        started_ns=time.time_ns(),
    )


def log_to(path: Path) -> None:
    """Send this process's stderr, native libraries' included, to a file; the launcher removes it if it stays empty."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 2)
    os.close(file)


def abandon(last: LastWord, here: Place) -> None:
    """End a failed rank's process at once: a process group with a dead member may never let go.

    Under our own launcher the launcher says why, once for all ranks. Elsewhere the rank that failed does, and one rank
    a node where all failed alike or lost contact with one of another node.
    """
    if RUN_FOLDER not in os.environ and (not last.shared or (here.local_rank == 0 and not last.said_on(here))):
        sys.stderr.write(f"profile-train: {last.standing.message or 'failed'}\n")
    sys.stderr.flush()
    os._exit(last.outcome.exit_code or 1)


def device_uuids(here: Place) -> list[str]:
    """NVML's names of this node's devices, by local rank; none without GPUs."""
    if here.device.type != "cuda":
        return []
    return [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(here.local_world)]
