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


class QueueDepth(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one device that was launched and had not begun."""

    device: int
    most: int
    mean: float
    """Over time, from the first launch to the last start."""
    empty_pct: float
    """Share of that time with nothing waiting: the device runs what was just launched, or stands idle."""
    latency_median_ns: float
    """From the beginning of the launch call to the start of the work."""
    latency_p95_ns: float


def queue_depth(device: int, launched: Ints, begins: Ints) -> QueueDepth | None:
    """`launched` is when the call of each piece of work began (`NONE`: not recorded); None without any."""
    known = launched != NONE
    launched, begins = launched[known], begins[known]
    if not len(launched):
        return None
    times = np.concatenate((launched, np.maximum(begins, launched)))
    change = np.concatenate((np.ones(len(launched), np.int64), -np.ones(len(launched), np.int64)))
    order = np.lexsort((-change, times))
    times, depth = times[order], np.cumsum(change[order])
    spent = np.diff(times)
    whole = int(spent.sum())
    latency = np.maximum(begins - launched, 0)
    return QueueDepth(
        device=device,
        most=int(depth.max()),
        mean=float((depth[:-1] * spent).sum() / whole) if whole else float(len(launched)),
        empty_pct=100 * int(spent[depth[:-1] == 0].sum()) / whole if whole else 0.0,
        latency_median_ns=float(np.median(latency)),
        latency_p95_ns=float(np.percentile(latency, 95)),
    )
