"""Named ranges that both profilers see: NVTX for Nsight Systems, record_function for torch.profiler.

Neither tool records the other's ranges. Without a tool attached a range costs a few microseconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import nvtx
from torch.autograd.profiler import record_function


@contextmanager
def region(name: str) -> Iterator[None]:
    """A range called `name` around what happens inside, on this thread."""
    with nvtx.annotate(name), record_function(name):
        yield
