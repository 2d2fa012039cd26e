"""Calls of the CUDA or HIP API as columns, and which of them launched each piece of device work.

A correlation id is unique within a process only, so the two are joined on (process, id).
"""

from dataclasses import dataclass

import numpy as np

from .activities import NONE, Activities, Codes, Ids, Ints, distinct


@dataclass(frozen=True, kw_only=True)
class Calls:
    """One row a call; times in ns."""

    start: Ints
    end: Ints
    thread: Ints
    """Process and thread in one number: process · 2²⁴ + thread."""
    correlation: Ids
    name: Codes
    names: tuple[str, ...]

    def __len__(self) -> int:
        """Rows."""
        return len(self.start)


def launched_by(work: Activities, calls: Calls) -> Ints:
    """For each activity the row of the call that launched it; `NONE` where there is no such call.

    Where a call was recorded twice under one id, as versions before 2022 do (`cudaMemcpy` and `cudaMemcpy_v3020`), it
    is the first to begin, then the longest.
    """
    found = np.full(len(work), NONE, dtype=np.int64)
    if not len(work) or not len(calls):
        return found
    lowest = int(min(work.correlation.min(), calls.correlation.min()))
    width = int(max(work.correlation.max(), calls.correlation.max())) - lowest + 1
    rows = _first_of_each(calls)
    for process in distinct(work.process).tolist():
        mine = rows[calls.thread[rows] >> 24 == process]
        wanted = np.flatnonzero((work.process == process) & (work.correlation != NONE))
        if not len(mine) or not len(wanted):
            continue
        ids, wanted_ids = calls.correlation[mine], work.correlation[wanted]
        if width <= _DENSE * (len(work) + len(calls)):
            table = np.full(width, NONE, dtype=np.int32)
            table[np.subtract(ids, lowest, dtype=np.int64)] = mine
            found[wanted] = table[np.subtract(wanted_ids, lowest, dtype=np.int64)]
        else:
            mine = mine[np.argsort(ids, kind="stable")]
            at = np.searchsorted(calls.correlation[mine], wanted_ids, side="right") - 1
            hit = (at >= 0) & (calls.correlation[mine][np.maximum(at, 0)] == wanted_ids)
            found[wanted[hit]] = mine[at[hit]]
    return found


_DENSE = 4
"""Ids are counted up from 1 in each process: a table over all of them is faster than a sort while it is no larger than
so many times the rows."""


def _first_of_each(calls: Calls) -> Ints:
    """Rows with an id, ordered such that the last of each (process, id) is the first to begin."""
    known = calls.correlation != NONE
    rows = np.flatnonzero(known)
    start = calls.start if known.all() else calls.start[rows]
    if (start[1:] > start[:-1]).all():
        return rows[::-1]
    return rows[np.lexsort((calls.end[rows], -start))]
