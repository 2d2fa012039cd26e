"""Two loops side by side in one job of two ranks: blocks of steps in the order a b b a, and their times by pairs."""

import argparse
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch
import torch.distributed as dist

from stepscope.profiling.sampler import Sampler
from stepscope.profiling.schedule import Schedule
from stepscope.profiling.window import TorchWindow
from stepscope.record.run import RunDir
from stepscope.record.steps import Step
from stepscope.trainer.build import build
from stepscope.trainer.checkpoints import Checkpoints, Trained
from stepscope.trainer.config import Config
from stepscope.trainer.hardware import probe
from stepscope.trainer.instruments import Instruments
from stepscope.trainer.loop import train
from stepscope.trainer.place import Place, place, process_group, same_everywhere
from stepscope.trainer.progress import progress_for
from stepscope.trainer.quiet import silence_known_noise
from stepscope.trainer.resolve import resolved
from stepscope.trainer.stopping import StopRequest
from stepscope.trainer.watch import Watch
from stepscope.trainer.worker import first_manifest

LEFT_OUT = 2
"""Pairs at the beginning that warm things up, one of each order."""
_NEVER = 10**9


class Spent(NamedTuple):
    """What a block of steps took."""

    wall_s: float
    cpu_s: float
    """CPU time of all ranks, all threads: what other processes on the machine hardly change."""
    others: float
    """Share of the machine's CPU time meanwhile that went to other processes."""


class Pair(NamedTuple):
    """The same block of steps in either loop."""

    ours: Spent
    theirs: Spent


class Asked(NamedTuple):
    """What the command line asks for."""

    model: str
    seq_len: int
    block: int
    """Steps of a block."""
    pairs: int

    @property
    def steps(self) -> int:
        """Steps of either loop, the pairs that are left out included."""
        return self.block * (self.pairs + LEFT_OUT)

    @property
    def blocks(self) -> list[range]:
        """The numbers of each block's steps, from 1."""
        return [range(first, first + self.block) for first in range(1, self.steps + 1, self.block)]


def asked(description: str, *, block: int, pairs: int) -> Asked:
    """The command line, read."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--model", default="tiny", help="a shape of trainer/shapes.py (default: %(default)s)")
    parser.add_argument("--seq-len", type=int, default=256, help="positions per row (default: %(default)s)")
    parser.add_argument("--block", type=int, default=block, help="steps of a block, 2 or more (default: %(default)s)")
    parser.add_argument("--pairs", type=int, default=pairs, help="pairs of blocks measured (default: %(default)s)")
    given = parser.parse_args()
    if given.block < 2 or given.pairs < 2:
        parser.error("--block and --pairs must be 2 or more")
    return Asked(given.model, given.seq_len, given.block, given.pairs)


def on_two_ranks(script: str, measure: Callable[[Place], None]) -> None:
    """Run `measure` on two ranks: under torchrun at once, otherwise by starting `script` again under torchrun."""
    silence_known_noise()
    if "RANK" in os.environ:
        here = place(os.environ)
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[here.local_rank % len(cores)]})  # moving between cores is most of the noise
        with process_group(here):
            measure(here)
            dist.barrier()
        # Two models' process groups are torn down at exit in no order.
        sys.stdout.flush()
        os._exit(0)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    sys.exit(subprocess.run([*torchrun, script, *sys.argv[1:]], env=environment).returncode)


class _BlockWatch(Watch):
    """A run's own watch, which asks for a stop before the last step of a block."""

    def __init__(self, run: RunDir, rank: int, manifest: Any, progress: Any, stop: StopRequest) -> None:
        super().__init__(run, rank, manifest, progress, wandb=False)
        self.stop, self.last = stop, 0

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        super().record(step, tokens_of_all=tokens_of_all)
        if step.step == self.last - 1:
            self.stop.signum = signal.SIGTERM


class Ours:
    """Our trainer as `profile-train --no-profile` runs it: steps file, scalars, progress lines, telemetry.

    `train` itself does the steps. At the end of a block it is stopped as a signal would stop it, and gone on with as
    from a checkpoint, so that the schedule stays that of the whole run.
    """

    def __init__(self, asked: Asked, here: Place, stack: ExitStack, *, window: bool = False, **settings: Any) -> None:
        """`window`: with a torch.profiler window that waits and never opens. `settings` are those of `Config`."""
        hardware = probe()
        config = Config(
            model=asked.model, seq_len=asked.seq_len, steps=asked.steps, eval_samples=0, profile=False, **settings
        )
        self.config, self.here = resolved(config, hardware, os.environ), here
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="stepscope-benchmark-"))
        self.run = RunDir(Path(same_everywhere(scratch)))
        self.job = build(self.config, here, hardware).job
        self.stop = StopRequest()
        self._checkpoints = Checkpoints(self.run, Trained(self.job.model, self.job.optimizer), every=0, keep=1)
        self._log = stack.enter_context((self.run.path / f"progress{here.rank}.txt").open("w"))
        manifest = first_manifest(self.config, hardware, [], here, self.run)
        progress = progress_for(rank=here.rank, every=self.config.log_every)
        progress.expect(asked.steps)
        self._watch = stack.enter_context(_BlockWatch(self.run, here.rank, manifest, progress, self.stop))
        self._window = TorchWindow(self.run, here.rank, Schedule(spans=((_NEVER, _NEVER),))) if window else None
        if self._window:
            stack.enter_context(self._window)

    @contextmanager
    def telemetry(self) -> Iterator[None]:
        """The sampler as a run has it, on the first rank. It reads at once, so a block bears one reading at least."""
        if self.here.local_rank:
            yield
            return
        with Sampler(self.run.telemetry_path(0), self.config.telemetry_period, launcher_pid=os.getppid()):
            yield

    def train(self, numbers: range) -> None:
        """Train the steps of these numbers."""
        self._watch.last = numbers[-1]
        with redirect_stderr(self._log):
            ended = train(
                self.job, Instruments(self._window), self._watch, self._checkpoints, self.stop, done=numbers[0] - 1
            )
        assert ended.steps == numbers[-1]
        self.stop.signum = 0

    def spent(self, numbers: range) -> Spent:
        """What a block takes."""
        with self.telemetry():
            return spent(lambda: self.train(numbers))

    def losses(self) -> list[float]:
        """The losses of all steps so far, as this rank's steps file has them."""
        return [step.loss for step in self.run.steps()[self.here.rank]]

    def tokens_per_block(self, blocks: list[range]) -> list[int]:
        """Unmasked tokens of all ranks in each block."""
        return [sum(self.job.rows.step(number)[1] for number in numbers) for numbers in blocks]


class Stopwatch:
    """Runs from its making, on all ranks together, until it is read."""

    def __init__(self) -> None:
        """Starts once all ranks are here."""
        dist.barrier()
        self._busy_s, self._cpu_s, self._began_s = _busy_s(), time.process_time(), time.perf_counter()

    def read(self) -> Spent:
        """What it took until all ranks are here."""
        dist.barrier()
        wall_s, busy_s = time.perf_counter() - self._began_s, _busy_s() - self._busy_s
        cpu_s = torch.tensor(time.process_time() - self._cpu_s, dtype=torch.float64)
        dist.all_reduce(cpu_s)
        others_s = max(0.0, busy_s - cpu_s.item())
        return Spent(wall_s, cpu_s.item(), others_s / (wall_s * (os.cpu_count() or 1)))


def spent(work: Callable[[], None]) -> Spent:
    """What `work` takes. All ranks call it together."""
    watch = Stopwatch()
    work()
    return watch.read()


def _busy_s() -> float:
    """CPU seconds that all processes of the machine have used so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def interleaved(blocks: list[range], ours: Callable[[range], Spent], theirs: Callable[[range], Spent]) -> list[Pair]:
    """Both loops over every block, each first in every other pair, so that a drift favours neither."""
    pairs = []
    for index, numbers in enumerate(blocks):
        if index % 2:
            second = theirs(numbers)
            pairs.append(Pair(ours(numbers), second))
        else:
            pairs.append(Pair(ours(numbers), theirs(numbers)))
    return pairs


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """The median, and the 95 % interval of the median by bootstrap over the pairs."""
    drawn = np.random.default_rng(0).choice(values, (10_000, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(np.median(values)), float(low), float(high)


def spread(values: np.ndarray, form: str) -> str:
    """`median [95 % interval]  min, quartiles, max` in the format `form`."""
    shown = [format(value, form) for value in (*interval(values), *np.percentile(values, [0, 25, 75, 100]))]
    median, low, high, *rest = shown
    return f"{median} [{low}, {high}]   min {rest[0]}, quartiles {rest[1]} and {rest[2]}, max {rest[3]}"


def print_setting(title: str, asked: Asked, *packages: str) -> None:
    """What is measured, and on what. No host name, no user, no paths."""
    named = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = named[0].split(":", 1)[1].strip() if named else platform.machine()
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", *packages))
    one, five, _ = os.getloadavg()
    print(
        f"{title}\n"
        f"{datetime.now(UTC):%Y-%m-%d}, {model}, {os.cpu_count()} cores\n"
        f"Python {platform.python_version()}, {versions}\n"
        f"2 ranks over gloo, each with {torch.get_num_threads()} thread on its own core; bf16, model {asked.model}, "
        f"seq {asked.seq_len}, 2 rows a rank\n"
        f"{asked.pairs} pairs of blocks of {asked.block} steps; {LEFT_OUT} pairs before them left out\n"
        f"load average at the start (1 and 5 minutes): {one:.2f}, {five:.2f}\n",
        flush=True,
    )


def print_pairs(pairs: list[Pair], asked: Asked, *, ours: str, theirs: str) -> None:
    """Every pair measured: ms per step on the clock and of CPU time, and the CPU share of other processes."""
    print(f"{'ms per step':>26}{'CPU ms per step':>23}{'CPU of others':>21}")
    print(f" pair {ours:>10}{theirs:>10}{ours:>13}{theirs:>10}{ours:>11}{theirs:>10}")
    for index, (one, two) in enumerate(pairs, start=1):
        ms = [value / asked.block * 1e3 for value in (one.wall_s, two.wall_s, one.cpu_s, two.cpu_s)]
        print(f" {index:4} {ms[0]:10.2f}{ms[1]:10.2f}{ms[2]:13.2f}{ms[3]:10.2f}{one.others:11.1%}{two.others:10.1%}")
    print()


def print_throughput(pairs: list[Pair], tokens: list[int], *, ours: str, theirs: str) -> None:
    """Both loops' unmasked tokens per second over the pairs, and their ratio."""
    for unit, of in (("tokens/s", wall), ("tokens per CPU second", cpu)):
        ours_s, theirs_s = of(pairs)
        print(f"{unit}: median [95 % interval of the median]")
        print(f"  {ours:12} {spread(np.array(tokens) / ours_s, '.0f')}")
        print(f"  {theirs:12} {spread(np.array(tokens) / theirs_s, '.0f')}")
        print(f"  paired ratio {spread(theirs_s / ours_s, '.4f')}\n")


def wall(pairs: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of ours and of theirs, by pair."""
    return np.array([pair.ours.wall_s for pair in pairs]), np.array([pair.theirs.wall_s for pair in pairs])


def cpu(pairs: list[Pair]) -> tuple[np.ndarray, np.ndarray]:
    """CPU seconds of ours and of theirs, by pair."""
    return np.array([pair.ours.cpu_s for pair in pairs]), np.array([pair.theirs.cpu_s for pair in pairs])
