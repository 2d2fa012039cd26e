"""Several ranks side by side: whose steps are longest, who comes last to collectives, and how long the others wait.

Clocks of different machines or captures differ. A collective ends on all ranks at about the same time, so the offset of
a rank's clock is the median difference of its ends from the first rank's, over the collectives that all ranks have. How
far single ones lie from it (`spread_ns`) says how good the alignment is.
"""

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from .activities import NONE, Activities, Ints, Mask
from .collectives import Names
from .steps import StepTime


class WorkerSkew(msgspec.Struct, frozen=True, kw_only=True):
    """One rank: a process on its device."""

    rank: int
    process: int
    device: int
    steps: int | None
    """None without steps."""
    step_median_ns: float | None
    comm_exposed_ns: int
    comm_exposed_pct: float
    """Of the device's span."""
    offset_ns: int | None
    """Its clock less that of the first; None where clocks could not be aligned."""
    spread_ns: float | None
    """95 % of collectives end within so much of the others, clocks aligned."""
    last_in: int | None
    """Collectives that it was the last to enter."""
    waited_ns: int | None
    """Time in collectives before the last one entered, summed."""


class StepSkew(msgspec.Struct, frozen=True, kw_only=True):
    """One step over all ranks."""

    number: int
    shortest_ns: int
    longest_ns: int
    slowest_rank: int
    slowest_process: int


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """Several ranks compared."""

    workers: list[WorkerSkew]
    communicates: bool
    """Whether any rank has communication kernels."""
    collectives: int
    """Matched over all ranks; 0: clocks are not aligned, and nobody is said to come last."""
    steps: list[StepSkew]
    """Of the steps that all ranks have."""


class Place(NamedTuple):
    """Which rank: the file's number, its process and its device."""

    rank: int
    process: int
    device: int


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What a comparison needs of a rank."""

    place: Place
    steps: list[StepTime]
    comm_exposed_ns: int
    span_ns: int
    communication: dict[tuple[int, str, int], tuple[int, int]]
    """(step or `NONE`, name, which of its name in the step) → when a communication kernel started and ended."""
    counts: dict[str, int]
    """Collectives by name, over all."""
    communicates: bool
    """Whether it has communication kernels of any kind."""


def communication_of(
    work: Activities, called: Names, mine: Mask, step: Ints
) -> dict[tuple[int, str, int], tuple[int, int]]:
    """The collectives of one rank by what finds them on another; `called` is the collective of each activity.

    Sends and receives are of few ranks, and left out.
    """
    rows = np.flatnonzero(mine & work.is_communication)
    rows = rows[called[rows] != "SendRecv"]
    rows = rows[np.lexsort((work.end[rows], work.start[rows]))]
    seen: dict[tuple[int, str], int] = {}
    found = {}
    for row in rows.tolist():
        key = (int(step[row]), str(called[row]))
        found[(*key, seen.get(key, 0))] = (int(work.start[row]), int(work.end[row]))
        seen[key] = seen.get(key, 0) + 1
    return found


def skew(workers: list[Worker]) -> Skew | None:
    """None with fewer than two ranks."""
    if len(workers) < 2:
        return None
    workers = sorted(workers, key=lambda worker: worker.place)
    keys = _matched(workers)
    starts, offsets, spreads = _aligned(workers, keys)
    last = _last(starts)
    waits = starts.max(axis=1, keepdims=True) - starts if len(keys) else starts
    ends = np.array([[worker.communication[key][1] for worker in workers] for key in keys], dtype=np.int64)
    if len(keys):
        waits = np.minimum(waits, np.maximum(ends - offsets - starts, 0))  # nobody waits beyond its own kernel's end
    return Skew(
        workers=[
            WorkerSkew(
                rank=worker.place.rank,
                process=worker.place.process,
                device=worker.place.device,
                steps=len(worker.steps) or None,
                step_median_ns=float(np.median([s.span_ns for s in worker.steps])) if worker.steps else None,
                comm_exposed_ns=worker.comm_exposed_ns,
                comm_exposed_pct=100 * worker.comm_exposed_ns / worker.span_ns if worker.span_ns else 0.0,
                offset_ns=int(offsets[at]) if len(keys) else None,
                spread_ns=float(spreads[at]) if len(keys) else None,
                last_in=int((last == at).sum()) if len(keys) else None,
                waited_ns=int(waits[:, at].sum()) if len(keys) else None,
            )
            for at, worker in enumerate(workers)
        ],
        communicates=any(worker.communicates for worker in workers),
        collectives=len(keys),
        steps=_step_skews(workers),
    )


def _last(starts: Ints) -> Ints:
    """Which rank started each collective last; `NONE` where two or more did at once."""
    if not len(starts):
        return np.empty(0, dtype=np.int64)
    together = (starts == starts.max(axis=1, keepdims=True)).sum(axis=1) > 1
    return np.where(together, NONE, np.argmax(starts, axis=1))


def _matched(workers: list[Worker]) -> list[tuple[int, str, int]]:
    """Collectives that all ranks have. Outside of steps they match only where all have as many of each name."""
    everywhere = set(workers[0].communication)
    for worker in workers[1:]:
        everywhere &= set(worker.communication)
    same = all(worker.counts == workers[0].counts for worker in workers)
    return sorted(key for key in everywhere if key[0] != NONE or same)


def _aligned(workers: list[Worker], keys: list[tuple[int, str, int]]) -> tuple[Ints, Ints, Ints]:
    """Starts on the first rank's clock (a row a collective, a column a rank), and each rank's offset and spread."""
    times = np.array([[worker.communication[key] for worker in workers] for key in keys], dtype=np.int64)
    if not len(keys):
        nothing = np.empty((0, len(workers)), dtype=np.int64)
        return nothing, nothing, nothing
    apart = times[:, :, 1] - times[:, :1, 1]
    same_clock = np.array([worker.place.rank == workers[0].place.rank for worker in workers])
    offsets = np.where(same_clock, 0, np.median(apart, axis=0).astype(np.int64))
    spreads = np.percentile(np.abs(apart - offsets), 95, axis=0).astype(np.int64)
    return times[:, :, 0] - offsets, offsets, spreads


def _step_skews(workers: list[Worker]) -> list[StepSkew]:
    spans = [{step.number: step.span_ns for step in worker.steps} for worker in workers]
    common = set(spans[0]).intersection(*spans[1:])
    found = []
    for number in sorted(common):
        of_all = [of_one[number] for of_one in spans]
        slowest = workers[of_all.index(max(of_all))].place
        found.append(
            StepSkew(
                number=number,
                shortest_ns=min(of_all),
                longest_ns=max(of_all),
                slowest_rank=slowest.rank,
                slowest_process=slowest.process,
            )
        )
    return found
