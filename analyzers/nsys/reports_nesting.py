"""Which intervals of one thread lie in which: ranges in ranges, and launching calls in ranges.

Both ends count: an interval lies in another that starts no later and ends no earlier.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .reports_engine import NO_NUMBER, Array

_MOST_CALLS_AT_ONCE = 64


class OverlapError(ValueError):
    """More calls of one thread overlap than a thread can be in."""


@dataclass(frozen=True, kw_only=True)
class Nesting:
    """Of every range: the index of the innermost other one around it (NO_NUMBER: none), and the depth that makes."""

    parent: Array
    level: Array

    def stacks(self, ids: Array) -> list[str]:
        """Of every range the ids of those around it and its own, outermost first: `:1:8:9`."""
        stacks: list[str] = [""] * len(ids)
        for index in np.argsort(self.level, kind="stable").tolist():
            parent = int(self.parent[index])
            stacks[index] = f"{stacks[parent] if parent >= 0 else ''}:{ids[index]}"
        return stacks


def nested(start: Array, end: Array, thread: Array) -> Nesting:
    """Each range's place among those of its thread. Of two equal ranges the earlier row is the outer one."""
    parent = np.full(len(start), NO_NUMBER, dtype=np.int64)
    level = np.zeros(len(start), dtype=np.int64)
    order = np.lexsort((np.arange(len(start)), -end, start, thread)).tolist()
    ends, threads = end.tolist(), thread.tolist()
    around: list[int] = []
    """Ranges that a later one may lie in: each starts later and ends no later than the one before it."""
    for index in order:
        if around and threads[around[-1]] != threads[index]:
            around.clear()
        while around and ends[around[-1]] < ends[index]:
            around.pop()
        if around:
            parent[index], level[index] = around[-1], level[around[-1]] + 1
        around.append(index)
    return Nesting(parent=parent, level=level)


def enclosed(
    start: Array, end: Array, call_start: Array, call_end: Array
) -> Iterator[tuple[Array, Array, Array, bool]]:
    """The calls of a thread that lie in each of its ranges, in one pass for each depth at which calls overlap.

    A pass gives some of the calls' indices in order, for every range the first and the one after the last of its calls
    among them, and whether it is the only pass.
    """
    left = np.lexsort((-call_end, call_start))
    for depth in range(_MOST_CALLS_AT_ONCE):
        if not len(left):
            return
        latest = np.maximum.accumulate(call_end[left])
        apart = np.ones(len(left), dtype=bool)
        apart[1:] = call_start[left[1:]] >= latest[:-1]
        calls, left = left[apart], left[~apart]
        first = np.searchsorted(call_start[calls], start, side="left")
        last = np.searchsorted(call_end[calls], end, side="right")
        yield calls, first, np.maximum(first, last), depth == 0 and not len(left)
    if len(left):
        raise OverlapError(f"more than {_MOST_CALLS_AT_ONCE} API calls of one thread overlap")


def indices(first: Array, counts: Array) -> Array:
    """first[0], first[0] + 1, … counts[0] of them, then those from first[1], and so on."""
    offsets = np.cumsum(counts) - counts
    return np.repeat(first - offsets, counts) + np.arange(int(counts.sum()))
