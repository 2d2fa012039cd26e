"""What this machine offers a training run. torch is imported only when asked."""

import os
from typing import NamedTuple

FP8_CAPABILITY = (8, 9)
"""First CUDA compute capability with FP8 tensor cores (Ada; Hopper is 9.0)."""


class Hardware(NamedTuple):
    """GPUs visible to this process, the least capable one's compute capability, and the CPU cores it may use."""

    gpus: int
    capability: tuple[int, int] | None
    cores: int

    @property
    def why_no_fp8(self) -> str | None:
        """Why FP8 must be emulated here; None where the hardware computes it."""
        if self.capability is None:
            return "no GPU"
        if self.capability < FP8_CAPABILITY:
            return f"the GPU's compute capability is {self.capability[0]}.{self.capability[1]}; FP8 needs 8.9 or more"
        return None


def probe() -> Hardware:
    """Look at this machine."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    capability = min((torch.cuda.get_device_capability(gpu) for gpu in range(gpus)), default=None)
    return Hardware(gpus=gpus, capability=capability, cores=len(os.sched_getaffinity(0)))
