"""What launching costs: the calls that launched work, how long they took, and how long the work then waited."""

import msgspec
import numpy as np

from .activities import NONE, Codes, Ints


class LaunchCost(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one name that launched work."""

    call: str
    count: int
    """Calls; a graph's launch is one, whatever it runs."""
    activities: int
    """Pieces of work that they launched."""
    total_ns: int
    """Time in the calls."""
    mean_ns: float
    median_ns: float
    queued_median_ns: float | None
    """From the call's end to the work's start, over those that start after it; None where none does."""


def launch_costs(
    call: Ints, name: Codes, start: Ints, end: Ints, names: tuple[str, ...], begins: Ints
) -> list[LaunchCost]:
    """Largest time first.

    `call` says for each activity which call launched it (`NONE`: none recorded) and `begins` when it starts; `name`
    (a code into `names`), `start` and `end` are of the calls.
    """
    known = call != NONE
    call, begins = call[known], begins[known]
    used = np.zeros(len(start), dtype=bool)
    used[call] = True
    queued = begins - end[call]
    found = []
    for code in np.unique(name[used]).tolist():
        duration = (end - start)[used & (name == code)]
        mine = name[call] == code
        waited = queued[mine & (queued > 0)]
        found.append(
            LaunchCost(
                call=names[code],
                count=len(duration),
                activities=int(mine.sum()),
                total_ns=int(duration.sum()),
                mean_ns=int(duration.sum()) / len(duration),
                median_ns=float(np.median(duration)),
                queued_median_ns=float(np.median(waited)) if len(waited) else None,
            )
        )
    return sorted(found, key=lambda row: (-row.total_ns, row.call))
