"""One rank of a run, from its process group to its last word in the manifest.

The same under torchrun and under our own launcher; the launcher names the run's folder in the environment, and without
it the first rank makes one.
"""

import os
import sys
import time
import uuid
from contextlib import ExitStack, closing
from pathlib import Path

import torch
import torch.distributed as dist

from ..profiling.memory import MemoryWatch
from ..profiling.numerics import Numerics
from ..profiling.sampler import Sampler
from ..profiling.window import Recorded, TorchWindow
from ..record.errors import UserError
from ..record.manifest import Device, Manifest, Outcome, World
from ..record.run import RunDir, default_run_name, new_run
from .build import build
from .checkpoints import Checkpoints, Trained
from .config import Config
from .export import save_model
from .facts import device_facts, environment_facts, git_commit, plain_settings, version_facts, without_home
from .hardware import Hardware
from .loop import Ended, Job, train
from .outcome import LastWord, stopped
from .place import Place, place, process_group, ranks_without, same_everywhere
from .progress import progress_for
from .ranks import RUN_FOLDER, CommonError
from .recording import recording_ranks, schedule
from .resolve import resolved_recipe
from .resume import restore, rewind
from .stopping import StopRequest
from .watch import Watch
from .words import closing_words, longer_words, opening_words, precision_words

_SHOWN_WITHIN_S = 3.0


def work(config: Config, hardware: Hardware, arguments: list[str], stop: StopRequest) -> int:
    """Do this rank's share of the run and answer the process's exit code."""
    here = place(os.environ)
    with LastWord(here.rank) as last, process_group(here):
        last.run = agree_on_run(config, here)
        if here.rank and RUN_FOLDER in os.environ:
            log_to(last.run.log_path(here.rank))
        ended = run_rank(config, hardware, arguments, here, last.run, stop)
        completed = Outcome(state="completed", exit_code=0, steps=ended.steps)
        last.ended = stopped(ended.signum, ended.steps) if ended.signum else completed
    if last.outcome.state == "failed":
        abandon(last, here)
    if here.rank == 0 and last.run and last.run.manifest_path.exists():
        sys.stderr.write(closing_words(last.run, last.outcome, hints=config.hints))
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
    planned = None
    if config.resume:
        planned = rewind(run, manifest, steps=config.steps or 0, rank=here.rank)
    with ExitStack() as stack:
        progress = stack.enter_context(closing(progress_for(rank=here.rank, every=config.log_every)))
        progress.note(opening_words(manifest, run))
        if here.rank == 0:
            run.write_manifest(manifest)
        if here.local_rank == 0 and config.telemetry_period:
            telemetry = run.telemetry_path(here.node)
            stack.enter_context(Sampler(telemetry, config.telemetry_period, device_uuids(here), os.getppid()))
        built = build(config, here, hardware)
        manifest.model, manifest.data = built.model_facts, built.data_facts
        manifest.linear_layers = built.precision.linears
        job, config = built.job, built.job.config
        manifest.config = plain_settings(config)
        if words := precision_words(manifest):
            progress.note(words)
        if here.rank == 0:
            run.write_manifest(manifest)
        progress.expect(job.steps)
        trained = Trained(job.model, job.optimizer)
        done = restore(run, trained, precompute=job.recipe.precompute_scales) if config.resume else 0
        if config.resume and planned != job.steps:
            progress.note(longer_words(planned, job.steps, done))
        checkpoints = Checkpoints(run, trained, every=config.checkpoint_every, keep=config.checkpoint_keep)
        watch = stack.enter_context(Watch(run, here.rank, manifest, progress))
        window = profiler(config, here, run, done)
        if window:
            stack.enter_context(window)
        numerics = fp8_statistics(job, run, done)
        memory = None
        if config.memory_detail:
            memory = MemoryWatch(job.model, job.optimizer, run, here.rank, step=config.memory_detail)
        stop.training = True
        ended = train(job, window, watch, checkpoints, stop, numerics=numerics, memory=memory, done=done)
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
        argv=["profile-train", *without_home(arguments)],
        git_commit=git_commit(),
        started_ns=time.time_ns(),
    )


def profiler(config: Config, here: Place, run: RunDir, done: int) -> TorchWindow | None:
    """torch.profiler for a run that goes on after `done` steps; None if this rank records nothing."""
    ranks = recording_ranks(config.profile_ranks, world=here.world, local_world=here.local_world)
    if not config.profile or here.rank not in ranks:
        return None
    recorded = Recorded(shapes=config.profile_shapes, memory=config.profile_memory, stacks=config.profile_stacks)
    limit = round(config.profile_limit * 2**30)
    return TorchWindow(run, here.rank, schedule(config, done), after=done, recorded=recorded, limit_bytes=limit)


def fp8_statistics(job: Job, run: RunDir, done: int) -> Numerics | None:
    """--numerics, but for the steps that torch.profiler records on any rank: its traces show training alone."""
    config = job.config
    if not config.numerics:
        return None
    recorded = schedule(config, done)
    return Numerics(
        job.model,
        run.numerics_path(),
        every=config.numerics,
        rank=job.rank,
        left_out=lambda step: config.profile and recorded.action(step) != "NONE",
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
