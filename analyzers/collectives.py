"""Communication kernels by collective, told from their name: NCCL old and new, its symmetric-memory kernels, RCCL."""

import re
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from .activities import Activities
from .breakdown import name_times

COLLECTIVES: tuple[tuple[str, str], ...] = (
    ("AllReduce", r"all_?reduce|multimem.*reduce"),
    ("ReduceScatter", r"reduce_?scatter"),
    ("AllGather", r"all_?gather"),
    ("AllToAll", r"all_?to_?all"),
    ("Broadcast", r"broadcast|bcast"),
    ("SendRecv", r"send_?recv|nccl.*(?:send|recv)"),
    ("Reduce", r"(?:nccl|rccl)\w*_?reduce"),
)
"""Collective → pattern over the lower-cased name, tried in this order. RCCL's `Generic` kernel says none of them."""

_COMPILED = tuple((collective, re.compile(pattern)) for collective, pattern in COLLECTIVES)
Names = npt.NDArray[np.object_]
OTHER = "unnamed"
"""Of kernels that do many, as RCCL's generic one."""


@lru_cache(maxsize=4096)
def collective_of(name: str) -> str:
    """The collective that the communication kernel (or NCCL call) called `name` does."""
    lowered = name.lower().split("(")[0]
    return next((collective for collective, pattern in _COMPILED if pattern.search(lowered)), OTHER)


class CollectiveTime(msgspec.Struct, frozen=True, kw_only=True):
    """All kernels of one collective, over all devices of a trace."""

    collective: str
    count: int
    total_ns: int
    """Summed, waiting for other ranks included."""
    median_ns: float
    p95_ns: float
    max_ns: int
    calls: int | None
    """Calls whose size was recorded; None where none was."""
    bytes: int | None
    """Sum of the sizes that NCCL recorded with its calls: what one rank hands in."""
    bytes_per_s: float | None
    """Over `total_ns`; None unless each kernel is of one call with a size, so that the two belong together."""


class Sizes(NamedTuple):
    """Calls of one collective with a size, and what the sizes come to."""

    calls: int
    bytes: int


def collective_names(work: Activities) -> Names:
    """The collective of each activity, told from its name alone; what is none is `OTHER`."""
    found: Names = np.array([collective_of(entry.name) for entry in work.labels], dtype=object)
    return found[work.label] if len(found) else np.empty(0, dtype=object)


def collective_times(work: Activities, called: Names, sizes: dict[str, Sizes]) -> list[CollectiveTime]:
    """Largest time first, then by name; `called` is the collective of each activity."""
    mine = work.is_communication
    if not mine.any():
        return []
    names, code = np.unique(called[mine].astype(str), return_inverse=True)
    keys = [(name, "communication") for name in names.tolist()]
    found = []
    for row in name_times(code.astype(np.int32), work.duration[mine], keys):
        size = sizes.get(row.name)
        matches = size is not None and size.calls == row.count and row.total_ns > 0
        found.append(
            CollectiveTime(
                collective=row.name,
                count=row.count,
                total_ns=row.total_ns,
                median_ns=row.median_ns,
                p95_ns=row.p95_ns,
                max_ns=row.max_ns,
                calls=size.calls if size else None,
                bytes=size.bytes if size else None,
                bytes_per_s=size.bytes * 1e9 / row.total_ns if size and matches else None,
            )
        )
    return found
