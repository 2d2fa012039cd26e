"""A trainer in which one rank fails at step 3; run in place of `profile-train` by test_trainer_failures.py.

`one_rank_fails.py KIND RANK FLAGS...`. The launcher starts its workers with sys.executable, so that is this file again.
"""

import os
import shlex
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from stepscope.record.run import RunDir
from stepscope.trainer import loop
from stepscope.trainer.command import main
from stepscope.trainer.ranks import RUN_FOLDER

ERRORS = {
    "bug": lambda: ValueError("a bug of ours"),
    "gpu-memory": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "memory": lambda: torch.empty(1 << 50),  # the allocator's own words: a pebibyte is not to be had anywhere
}


def until_all_have_written(step: int) -> None:
    """The failure of one rank ends the others at once, in the middle of a line if it comes to that."""
    run = RunDir(Path(os.environ[RUN_FOLDER]))
    while not all(len(of_rank) >= step for of_rank in run.steps().values()) or len(run.steps()) < 2:
        time.sleep(0.01)


def main_of_worker(kind: str, rank: str, flags: list[str]) -> int:
    step = loop.optimizer_step

    def failing(job: Any, clock: Any, number: int, stop: Any) -> Any:
        if number == 3 and str(job.rank) == rank:
            until_all_have_written(number - 1)
            raise ERRORS[kind]()
        return step(job, clock, number, stop)

    loop.optimizer_step = failing
    return main(flags)


def main_of_launcher(kind: str, rank: str, flags: list[str]) -> int:
    with TemporaryDirectory() as folder:
        again = Path(folder, "python")
        again.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, __file__, kind, rank])} "$@"\n')
        again.chmod(0o755)
        sys.executable = str(again)
        return main(flags)


if __name__ == "__main__":
    kind, rank, *flags = sys.argv[1:]
    if "RANK" in os.environ:
        sys.exit(main_of_worker(kind, rank, [flag for flag in flags if flag not in ("-m", "stepscope.trainer", "-u")]))
    sys.exit(main_of_launcher(kind, rank, flags))
