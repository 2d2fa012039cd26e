"""What looks into a run's steps: torch.profiler or nsys, FP8 statistics, an account of memory."""

import os
from typing import NamedTuple

from torch import nn
from torch.optim import Optimizer

from ..profiling.memory import MemoryWatch
from ..profiling.nsys_window import VARIABLE as NSYS_WINDOW
from ..profiling.nsys_window import NsysWindow
from ..profiling.numerics import Numerics
from ..profiling.schedule import Schedule, recording_ranks
from ..profiling.window import Recorded, TorchWindow
from ..record.run import RunDir
from ..record.steps import Mark
from .config import Config
from .place import Place
from .recording import schedule


class Instruments(NamedTuple):
    """The instruments of one rank; None for what was not asked for."""

    window: TorchWindow | NsysWindow | None = None
    numerics: Numerics | None = None
    memory: MemoryWatch | None = None

    def before(self, step: int) -> list[Mark]:
        """Step `step` is about to begin. Answers the marks of what looks into it."""
        marks: list[Mark] = ["profiled"] if self.window and self.window.recording else []
        if self.numerics and self.numerics.before(step):
            marks.append("numerics")
        if self.memory and self.memory.before(step):
            marks.append("memory")
        return marks

    def after(self, step: int) -> None:
        """The work of step `step` is done; torch.profiler's window moves on later, at the step's very end."""
        if self.memory:
            self.memory.after(step)
        if self.numerics:
            self.numerics.after(step)


def instruments_of(
    config: Config, model: nn.Module, optimizer: Optimizer, here: Place, run: RunDir, *, done: int
) -> Instruments:
    """The instruments of a run that goes on after `done` steps."""
    if spans := nsys_window().spans:
        return Instruments(NsysWindow(spans[0], cuda=here.device.type == "cuda", operators=config.nsys_operators))
    memory = None
    if config.memory_detail:
        memory = MemoryWatch(model, optimizer, run, here.rank, step=config.memory_detail)
    return Instruments(_torch_window(config, here, run, done), _fp8_statistics(config, model, here, run, done), memory)


def nsys_window() -> Schedule:
    """The steps that nsys records in this process; none where it watches nothing."""
    asked = os.environ.get(NSYS_WINDOW)
    return Schedule.at(asked) if asked else Schedule(spans=())


def _torch_window(config: Config, here: Place, run: RunDir, done: int) -> TorchWindow | None:
    ranks = recording_ranks(config.profile_ranks, world=here.world, local_world=here.local_world)
    if not config.profile or here.rank not in ranks:
        return None
    recorded = Recorded(shapes=config.profile_shapes, memory=config.profile_memory, stacks=config.profile_stacks)
    limit = round(config.profile_limit * 2**30)
    return TorchWindow(run, here.rank, schedule(config, done), after=done, recorded=recorded, limit_bytes=limit)


def _fp8_statistics(config: Config, model: nn.Module, here: Place, run: RunDir, done: int) -> Numerics | None:
    """--numerics, but for the steps that torch.profiler records on any rank: its traces show training alone."""
    if not config.numerics:
        return None
    recorded = schedule(config, done)
    return Numerics(
        model,
        run.numerics_path(),
        every=config.numerics,
        rank=here.rank,
        left_out=lambda step: config.profile and recorded.action(step) != "NONE",
    )
