"""Named ranges that both profilers see: NVTX for Nsight Systems, record_function for torch.profiler.

Neither tool records the other's ranges. Without a tool attached a range costs a few microseconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import nvtx
from torch._C._autograd import _profiler_type
from torch._C._profiler import ActiveProfilerType
from torch.autograd.profiler import record_function


@contextmanager
def region(name: str) -> Iterator[None]:
    """A range called `name` around what happens inside, on this thread."""
    with nvtx.annotate(name):
        if _profiler_type() == ActiveProfilerType.NVTX:  # emit_nvtx: record_function would be the same range again
            yield
            return
        with record_function(name):
            yield


@contextmanager
def fsdp_phases() -> Iterator[None]:
    """While it is open, NVTX has FSDP2's phases: `FSDP::all_gather (model.layers.0)`, `FSDP::post_backward_reduce` ….

    FSDP2 tells them to torch.profiler alone; this puts `region` in the place of its `record_function`.
    """
    fsdp: Any = import_module("torch.distributed.fsdp._fully_shard._fsdp_param_group")
    theirs, fsdp.record_function = fsdp.record_function, region
    try:
        yield
    finally:
        fsdp.record_function = theirs
