"""One rank of a run, from its process group to its last word in the manifest.

The same under torchrun and under our own launcher; the launcher names the run's folder in the environment, and without
it the first rank makes one.
"""

import os
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import torch
import torch.distributed as dist

from ..profiling.sampler import Sampler
from ..profiling.window import Schedule, TorchWindow
from ..record.manifest import Device, Manifest, Outcome, World
from ..record.run import RunDir, default_run_name, new_run
from .build import build
from .checkpoints import Checkpoints, Trained
from .config import Config
from .export import save_model
from .facts import device_facts, environment_facts, git_commit, plain_settings, version_facts, without_home
from .hardware import Hardware
from .loop import Ended, train
from .outcome import LOST_CONTACT, LastWord, stopped
from .place import Place, place, process_group, same_everywhere
from .progress import progress_for
from .ranks import RUN_FOLDER
from .resolve import resolved_recipe
from .resume import restore, rewind
from .stopping import StopRequest
from .watch import Watch
from .words import closing_words, opening_words


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
        abandon(last.outcome, here)
    if here.rank == 0 and last.run:
        sys.stderr.write(closing_words(last.run, last.outcome, hints=config.hints))
        sys.stdout.write(f"{last.run.path}\n")
    return last.exit_code


def agree_on_run(config: Config, here: Place) -> RunDir:
    """The folder that our launcher has made, or one that the first rank makes now; the same on every rank."""
    made = os.environ.get(RUN_FOLDER) or (str(config.resume) if config.resume else None)
    if made is None and here.rank == 0:
        made = str(new_run(config.out, config.run_name or default_run_name(config.recipe)).path)
    return RunDir(Path(same_everywhere(made)))


def run_rank(
    config: Config, hardware: Hardware, arguments: list[str], here: Place, run: RunDir, stop: StopRequest
) -> Ended:
    """Build, train and save."""
    manifest = first_manifest(config, hardware, arguments, here, run)
    if config.resume:
        rewind(run, manifest, steps=config.steps or 0, rank=here.rank)
    with ExitStack() as stack:
        progress = stack.enter_context(closing(progress_for(rank=here.rank, every=config.log_every)))
        progress.note(opening_words(manifest, run))
        if here.rank == 0:
            run.write_manifest(manifest)
        if here.local_rank == 0 and config.telemetry_period:
            telemetry = run.telemetry_path(here.node)
            stack.enter_context(Sampler(telemetry, config.telemetry_period, device_uuids(here), os.getppid()))
        built = build(config, here, hardware)
        manifest.model, manifest.data, manifest.linears = built.model_facts, built.data_facts, built.precision.linears
        job, config = built.job, built.job.config
        manifest.config = plain_settings(config)
        if here.rank == 0:
            run.write_manifest(manifest)
        progress.expect(job.steps)
        trained = Trained(job.model, job.optimizer)
        done = restore(run, trained, precompute=job.recipe.precompute_scales) if config.resume else 0
        checkpoints = Checkpoints(run, trained, every=config.checkpoint_every, keep=config.checkpoint_keep)
        watch = stack.enter_context(Watch(run, here.rank, manifest, progress, wandb=config.wandb))
        window = TorchWindow(run, here.rank, schedule(config), after=done) if config.profile else None
        if window:
            stack.enter_context(window)
        stop.training = True
        ended = train(job, window, watch, checkpoints, stop, done=done)
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


def schedule(config: Config) -> Schedule:
    """When the profiler records."""
    return Schedule(
        wait=config.profile_wait or 0,
        warmup=config.profile_warmup,
        active=config.profile_active or 1,
        repeat=config.profile_repeat,
    )


def log_to(path: Path) -> None:
    """Send this process's stderr, native libraries' included, to a file; the launcher removes it if it stays empty."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 2)
    os.close(file)


def abandon(outcome: Outcome, here: Place) -> None:
    """End a failed rank's process at once: a process group with a dead member may never let go.

    Under our own launcher the launcher says why, once for all ranks; elsewhere the rank that failed does.
    """
    message = outcome.message or "failed"
    if RUN_FOLDER not in os.environ and not message.startswith(LOST_CONTACT):
        sys.stderr.write(f"profile-train: {message}\n")
    sys.stderr.flush()
    os._exit(outcome.exit_code or 1)


def device_uuids(here: Place) -> list[str]:
    """NVML's names of this node's devices, by local rank; none without GPUs."""
    if here.device.type != "cuda":
        return []
    return [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(here.local_world)]
