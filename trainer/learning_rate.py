"""The learning rate as a function of the step: up in a line, then down to 0 in half a cosine."""

import math


def lr_factor(done: int, warmup: int, steps: int) -> float:
    """The learning rate's share of its peak after `done` of `steps` steps, the first `warmup` of them rising."""
    if done < warmup:
        return (done + 1) / (warmup + 1)
    return 0.5 * (1 + math.cos(math.pi * (done - warmup) / max(1, steps - warmup)))
