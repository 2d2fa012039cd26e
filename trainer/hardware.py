"""What this machine offers a training run. torch is imported only when asked."""

import os
from typing import NamedTuple

from ..record.recipes import Recipe, why_emulated


class Hardware(NamedTuple):
    """GPUs visible to this process, the least capable one's compute capability, and the CPU cores it may use."""

    gpus: int
    capability: tuple[int, int] | None
    cores: int

    def why_emulated(self, recipe: Recipe) -> str | None:
        """Why the recipe's FP8 must be emulated here; None where the hardware computes it, or nothing is FP8."""
        return why_emulated(recipe, self.capability)


def probe() -> Hardware:
    """Look at this machine."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    capability = min((torch.cuda.get_device_capability(gpu) for gpu in range(gpus)), default=None)
    return Hardware(gpus=gpus, capability=capability, cores=len(os.sched_getaffinity(0)))
