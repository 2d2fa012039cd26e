"""What FP8 statistics cost a step that takes them: paired steps with and without, of one process.

    python benchmarks/numerics.py [RECIPE] [MODEL] [SEQ_LEN] [PAIRS]

Prints the medians of both, the median of the differences within a pair, and what it is over 50 steps. Steps without
statistics have no hooks: the last line gives the cost of asking whether a step is due.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

from stepscope.profiling.numerics import Numerics
from stepscope.trainer.build import build
from stepscope.trainer.clock import StepClock
from stepscope.trainer.config import Config
from stepscope.trainer.hardware import probe
from stepscope.trainer.loop import Job, optimizer_step
from stepscope.trainer.place import Place
from stepscope.trainer.quiet import silence_known_noise
from stepscope.trainer.resolve import resolved
from stepscope.trainer.stopping import StopRequest


def timed_ms(job: Job, numerics: Numerics | None, number: int) -> float:
    """Wall time of one optimizer step, statistics written, in ms."""
    before = time.perf_counter_ns()
    if numerics:
        numerics.before(number)
    optimizer_step(job, StepClock(job.device), number, StopRequest())
    if numerics:
        numerics.after(number)
    return (time.perf_counter_ns() - before) / 1e6


def main() -> None:
    """Build one rank's job and measure."""
    recipe, model, seq_len, pairs = (sys.argv[1:] + ["mxtw", "pico", "64", "20"][len(sys.argv) - 1 :])[:4]
    silence_known_noise()
    hardware = probe()
    device = torch.device("cuda", 0) if hardware.gpus else torch.device("cpu")
    backend = "nccl" if hardware.gpus else "gloo"
    dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    here = Place(rank=0, local_rank=0, world=1, local_world=1, node=0, device=device)
    count = int(pairs)
    config = Config(recipe=recipe, model=model, seq_len=int(seq_len), steps=2 * count + 4, profile=False, nproc=1)
    job = build(resolved(config, hardware, {}), here, hardware).job
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "numerics.rank0.jsonl"
        numerics = Numerics(job.model, path, every=1)
        for number in range(1, 5):
            timed_ms(job, numerics if number % 2 else None, number)
        found = [
            (timed_ms(job, None, number), timed_ms(job, numerics, number + 1)) for number in range(5, 2 * count + 5, 2)
        ]
        size = path.stat().st_size / (count + 2)
    off, on = (statistics.median(column) for column in zip(*found, strict=True))
    more = statistics.median(with_them - without for without, with_them in found)
    begun = time.perf_counter_ns()
    idle = Numerics(job.model, path, every=10**9)
    for number in range(1, 1001):
        idle.before(number)
        idle.after(number)
    idle_us = (time.perf_counter_ns() - begun) / 1e6
    print(f"{recipe}, {model}, {seq_len} positions × {job.config.micro_batch}, {device.type}, {count} pairs")
    print(f"without {off:.1f} ms, with {on:.1f} ms, difference {more:+.1f} ms ({100 * more / off:+.0f} %)")
    print(f"every 50th step: {100 * more / off / 50:+.2f} % of the run; {size / 1000:.1f} kB a sampled step")
    print(f"a step without statistics: {idle_us:.1f} µs")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
