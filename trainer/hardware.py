"""What this machine offers a training run. torch is imported only when asked."""

import os
from typing import NamedTuple

from ..record.recipes import Recipe

FP8_CAPABILITY = (8, 9)
"""First CUDA compute capability with FP8 tensor cores (Ada; Hopper is 9.0)."""

MX_CAPABILITY = (10, 0)
"""First CUDA compute capability whose tensor cores take a scale per 32 values (Blackwell)."""


class Hardware(NamedTuple):
    """GPUs visible to this process, the least capable one's compute capability, and the CPU cores it may use."""

    gpus: int
    capability: tuple[int, int] | None
    cores: int

    def why_emulated(self, recipe: Recipe) -> str | None:
        """Why the recipe's FP8 must be emulated here; None where the hardware computes it, or nothing is FP8."""
        if not recipe.is_float8:
            return None
        if self.capability is None:
            return "no GPU"
        needed = MX_CAPABILITY if recipe.is_microscaled else FP8_CAPABILITY
        if self.capability < needed:
            has, needs = (".".join(map(str, pair)) for pair in (self.capability, needed))
            return f"the GPU's compute capability is {has}; {recipe.name} needs {needs} or more"
        return None


def probe() -> Hardware:
    """Look at this machine."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    capability = min((torch.cuda.get_device_capability(gpu) for gpu in range(gpus)), default=None)
    return Hardware(gpus=gpus, capability=capability, cores=len(os.sched_getaffinity(0)))
