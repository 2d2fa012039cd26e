"""What the categories of every era of torch.profiler mean, in one table: PyTorch 1.8 (capitalised) to today."""

from typing import Literal

from .events import Event

Meaning = Literal["kernel", "memcpy", "memset", "sync", "launch", "op", "range", "memory"]

CATEGORIES: dict[str, Meaning] = {
    "kernel": "kernel",
    "Kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "Memcpy": "memcpy",
    "gpu_memset": "memset",
    "Memset": "memset",
    "cuda_sync": "sync",
    "cuda_runtime": "launch",
    "cuda_driver": "launch",
    "hip_runtime": "launch",
    "hip_driver": "launch",
    "xpu_runtime": "launch",
    "privateuse1_runtime": "launch",
    "Runtime": "launch",
    "cpu_op": "op",
    "Operator": "op",
    "user_annotation": "range",
    "User_annotation": "range",
    "cpu_instant_event": "memory",
}
"""Categories that are not here (arrows, the profiler's own spans, GPU copies of host ranges, Python frames other than
modules) are left out: what they say is said by others, or nobody asks yet."""

ON_DEVICE: frozenset[Meaning] = frozenset({"kernel", "memcpy", "memset", "sync"})
STEP_PREFIX = "ProfilerStep#"
MODULE_PREFIX = "nn.Module: "
"""Of the Python frames that are calls of modules (with_modules, with_stack)."""
COMMUNICATION_PREFIXES = ("nccl:", "gloo:", "ucc:", "mpi:", "xccl:", "hccl:")
"""Of ranges that c10d opens around a collective."""
_FRAME = "python_function"
_MEMORY_NAME = "[memory]"


def meaning_of(event: Event) -> Meaning | None:
    """What the event stands for; None where it tells us nothing. Before 2022 allocations had a name and no category."""
    if event.cat is None:
        return "memory" if event.name == _MEMORY_NAME else None
    if event.cat == _FRAME:
        return "range" if event.name.startswith(MODULE_PREFIX) else None
    return CATEGORIES.get(event.cat)


def style_of(name: str) -> str:
    """The style of a range, by its name."""
    if name.startswith(STEP_PREFIX):
        return "step"
    return "module" if name.startswith(MODULE_PREFIX) else "annotation"
