"""What watching costs: step time with our whole instrumentation and without any, outside of capture windows.

On: `trainer.loop.train` with ranges, step clock, steps file, scalars, progress lines, the sampler at its default period
of 1 s, and a torch.profiler window that waits and never opens. Off: the same optimizer step of the same job, on the
same batches, with a clock that does nothing; nothing is recorded and no sampler runs.
"""

from contextlib import ExitStack

import numpy as np
import torch
from pairs import (
    LEFT_OUT,
    Asked,
    Ours,
    asked,
    cpu,
    interleaved,
    on_two_ranks,
    print_pairs,
    print_setting,
    spent,
    spread,
    wall,
)

from stepscope.trainer.clock import NoClock
from stepscope.trainer.loop import optimizer_step
from stepscope.trainer.place import Place


def without(ours: Ours, numbers: range) -> None:
    """The optimizer steps of these numbers and nothing else."""
    for number in numbers:
        optimizer_step(ours.job, NoClock(), number, ours.stop)


def measure(here: Place, what: Asked) -> None:
    """Train with and without in turns; the first rank prints what came out."""
    with ExitStack() as stack:
        ours = Ours(what, here, stack, window=True)
        assert not torch.autograd._profiler_enabled(), "the window waits, and so weighs on neither side"
        if here.rank == 0:
            print_setting("instrumentation: a step with all of it, and with none", what)
        pairs = interleaved(what.blocks, ours.spent, lambda block: spent(lambda: without(ours, block)))[LEFT_OUT:]
        if here.rank == 0:
            print_pairs(pairs, what, ours="on", theirs="off")
            for name, of in (("step time", wall), ("CPU time of a step, both ranks", cpu)):
                on_s, off_s = of(pairs)
                print(f"{name}: median [95 % interval of the median]")
                print(f"  off          {spread(off_s / what.block * 1e6, '.0f')}   µs per step")
                print(f"  on - off     {spread((on_s - off_s) / what.block * 1e6, '.0f')}   µs per step")
                print(f"  overhead     {spread((on_s / off_s - 1) * 100, '.2f')}   %")
                print(f"  of medians   {(np.median(on_s) / np.median(off_s) - 1) * 100:.2f} %\n")


if __name__ == "__main__":
    what = asked(__doc__, block=4, pairs=100)
    on_two_ranks(__file__, lambda here: measure(here, what))
