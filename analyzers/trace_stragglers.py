"""Who the other ranks wait for in collectives, and what that rank spends its time on that they do not."""

import msgspec
import numpy as np

from .answer import DeviceAnswer
from .skew import Skew

_MORE_OFTEN = 1.5
"""Times its share of the collectives that a straggler enters last."""


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """The rank that enters most collectives last."""

    rank: int
    process: int
    device: int
    last_in: int
    collectives: int
    waited_ns: int
    """What the others waited in collectives for the last one, summed over all of them."""
    cause: str | None
    """The part of its device's span that exceeds the others' median most; None where none does."""
    cause_ns: int | None
    """That part of it."""
    others_ns: int | None
    """The median of the others'."""


def straggler(compared: Skew | None, devices: dict[tuple[int, int], DeviceAnswer]) -> Straggler | None:
    """`devices` by rank and device. A rank is one only if it is last much more often than its share."""
    if compared is None or not compared.collectives:
        return None
    last = max(compared.workers, key=lambda row: row.last_in or 0)
    if (last.last_in or 0) * len(compared.workers) <= _MORE_OFTEN * compared.collectives:
        return None
    mine = _parts(devices[last.rank, last.device])
    others = [_parts(devices[row.rank, row.device]) for row in compared.workers if row is not last]
    excess = {part: value - float(np.median([of[part] for of in others])) for part, value in mine.items()}
    cause = max(excess, key=lambda part: excess[part])
    found = excess[cause] > 0
    return Straggler(
        rank=last.rank,
        process=last.process,
        device=last.device,
        last_in=last.last_in or 0,
        collectives=compared.collectives,
        waited_ns=sum(row.waited_ns or 0 for row in compared.workers),
        cause=cause if found else None,
        cause_ns=mine[cause] if found else None,
        others_ns=int(mine[cause] - excess[cause]) if found else None,
    )


def _parts(device: DeviceAnswer) -> dict[str, int]:
    """What a rank can be late by; exposed communication is what waiting for others looks like, and is left out."""
    idle = device.idle
    return {
        "compute": device.compute_ns - device.comm_overlapped_ns,
        "copies": device.memory_ns,
        "idle, the host busy with something else": idle.host_bound_ns,
        "idle, the host waiting for the device": idle.synchronisation_ns,
        "idle, the host waiting for data": idle.data_ns,
        "idle after the launch": idle.after_launch_ns,
        "idle, why is not known": idle.unknown_ns,
    }
