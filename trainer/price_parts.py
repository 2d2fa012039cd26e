"""The parts of the price list: how a step is taken with each, and without it.

Both ways train the same step on the same batch. What a part does once for many steps (placing hooks, opening a window)
is outside the timed step, and a price of its own where it is more than nothing.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import NamedTuple

from ..profiling.facts import device_uuids
from ..profiling.host import HostSource
from ..profiling.job import Job as Processes
from ..profiling.memory import MemoryWatch
from ..profiling.modules import ModuleRanges
from ..profiling.numerics import Numerics
from ..profiling.nvml import NvmlSource
from ..profiling.ranges import region
from ..profiling.sampler import Sampler, Source
from ..profiling.schedule import Schedule
from ..profiling.window import TorchWindow
from ..record.run import RunDir
from .checkpoints import Checkpoints, Trained
from .clock import NoClock, StepClock
from .config import Config
from .hardware import Hardware
from .instruments import Instruments
from .loop import Job, optimizer_step, train
from .place import Place
from .progress import Lines
from .stopping import StopRequest
from .watch import Watch
from .worker import first_manifest

_NEVER = 10**9
_NUMERICS = "FP8 statistics"

Step = Callable[[int], object]


class Part(NamedTuple):
    """One line of the list."""

    name: str
    paid: str
    """When it is paid: `every step`, `a recorded step`, …"""
    on: Step
    off: Step
    around: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext()
    """Entered before a step that is `on`, untimed."""
    least_s: float = 0.0
    """Steps are repeated until they fill this, and their mean counts."""


class Once(NamedTuple):
    """What is paid once for many steps, collected while the parts are measured."""

    name: str
    paid: str
    spent_ns: list[int]


class Bench:
    """A job of one rank, and every way to take a step of it."""

    def __init__(
        self, job: Job, config: Config, hardware: Hardware, here: Place, run: RunDir, open_: ExitStack
    ) -> None:
        """Everything it writes goes to the folder of `run`; `open_` closes what it opens."""
        self.job, self._run = job, run
        self.clock = time.perf_counter_ns if hardware.gpus else time.process_time_ns
        """What times are taken by, ns."""
        self._stop = StopRequest()
        self._checkpoints = Checkpoints(self._run, Trained(job.model, job.optimizer), every=0, keep=1)
        manifest = first_manifest(config, hardware, [], here, self._run)
        self._watch = open_.enter_context(Watch(self._run, 0, manifest, Lines(config.log_every), wandb=False))
        idle = TorchWindow(self._run, 0, Schedule(spans=((_NEVER, _NEVER),)))
        self._idle = Instruments(
            window=open_.enter_context(idle),
            numerics=Numerics(job.model, self._run.numerics_path(1), every=_NEVER) if job.recipe.is_float8 else None,
            memory=MemoryWatch(job.model, job.optimizer, self._run, 1, step=_NEVER),
        )
        self._numerics = Numerics(job.model, self._run.numerics_path(), every=1) if job.recipe.is_float8 else None
        self.opened = Once("opening a torch.profiler window, writing its trace", "a window", [])

    def parts(self) -> list[Part]:
        """All of them."""
        return [
            Part("all that watches outside of windows", "every step", self._watched, self._bare),
            Part("of it: ranges and phase times", "every step", self._plain, self._bare),
            Part("telemetry every second", "every step", self._plain, self._plain, self._sampled, least_s=1.0),
            Part("ranges of modules", "every step", self._plain, self._plain, self._hooked),
            Part("torch.profiler", "a recorded step", self._plain, self._plain, self._recorded),
            Part(_NUMERICS, "a step with them", self._counted, self._plain),
            Part("memory detail", "that one step", self._followed, self._plain),
        ]

    def missing(self) -> dict[str, str]:
        """Part → why it cannot be measured here, as far as that is known beforehand."""
        return {} if self._numerics else {_NUMERICS: f"recipe {self.job.recipe.name} computes nothing in FP8"}

    def readings(self, count: int) -> Once:
        """CPU time of the thread that reads telemetry, a reading each."""
        uuids = device_uuids()
        job = Processes(os.getpid())
        sources: Sequence[Source] = [HostSource(job), *([NvmlSource(uuids, job)] if uuids else [])]
        spent = []
        for _ in range(count + 1):
            began = time.thread_time_ns()
            for source in sources:
                source.read(time.time_ns())
            spent.append(time.thread_time_ns() - began)
            time.sleep(0.2)
        for source in sources:
            source.close()
        return Once("CPU time of a telemetry reading", "a second, on a thread of its own", spent[1:])

    def _bare(self, number: int) -> None:
        optimizer_step(self.job, NoClock(), number, self._stop)

    def _plain(self, number: int) -> None:
        clock = StepClock(self.job.device)
        with region("step"):
            optimizer_step(self.job, clock, number, self._stop)
        clock.durations_ns()

    def _watched(self, number: int) -> None:
        train(self.job, self._idle, self._watch, self._checkpoints, self._stop, done=number - 1, until=number)

    def _counted(self, number: int) -> None:
        if self._numerics:
            self._numerics.before(number)
            self._plain(number)
            self._numerics.after(number)

    def _followed(self, number: int) -> None:
        memory = MemoryWatch(self.job.model, self.job.optimizer, self._run, 0, step=number)
        memory.before(number)
        self._plain(number)
        memory.after(number)

    @contextmanager
    def _sampled(self, number: int) -> Iterator[None]:
        with Sampler(self._run.telemetry_path(number), 1.0, device_uuids()):
            time.sleep(0.3)  # its first reading looks at all processes of the machine, and is paid once
            yield

    @contextmanager
    def _hooked(self, _: int) -> Iterator[None]:
        with ModuleRanges(self.job.model):
            yield

    @contextmanager
    def _recorded(self, number: int) -> Iterator[None]:
        window = TorchWindow(self._run, 0, Schedule(spans=((number, number),), warmup=0), after=number - 1)
        began = self.clock()
        with window:
            opened = self.clock()
            yield
            ended = self.clock()
            window.step(number)
            self.opened.spent_ns.append(self.clock() - ended + opened - began)
