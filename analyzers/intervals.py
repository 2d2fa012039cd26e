"""Arithmetic of half-open intervals [start, end) in integer nanoseconds: unions, lengths, what lies before a time.

A set is an int64 array of shape (n, 2), sorted, disjoint and without empty members; `union` makes one of anything.
"""

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Intervals = npt.NDArray[np.int64]

EMPTY: Intervals = np.empty((0, 2), dtype=np.int64)


def union(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Intervals:
    """The set that intervals in any order cover together; touching ones become one, empty ones count for nothing."""
    real = ends > starts
    if not real.all():
        starts, ends = starts[real], ends[real]
    if not len(starts):
        return EMPTY
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    opens = np.concatenate(([True], starts[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return np.stack((starts[opens], reach[closes]), axis=1)


def length(intervals: Intervals) -> int:
    """Nanoseconds covered."""
    return int((intervals[:, 1] - intervals[:, 0]).sum())


def together(*sets: Intervals) -> Intervals:
    """What any of the sets covers."""
    some = [one for one in sets if len(one)]
    if len(some) < 2:
        return some[0] if some else EMPTY
    whole = np.concatenate(some)
    return union(whole[:, 0], whole[:, 1])


def covered_before(intervals: Intervals, times: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each time the nanoseconds that a set covers before it; differences are what it covers in between."""
    if not len(intervals):
        return np.zeros(len(times), dtype=np.int64)
    whole = np.concatenate(([0], np.cumsum(intervals[:, 1] - intervals[:, 0])))
    index = np.searchsorted(intervals[:, 0], times, side="right")
    last = np.maximum(index - 1, 0)
    beyond = np.where(index > 0, np.maximum(intervals[last, 1] - times, 0), 0)
    return whole[index] - beyond


def shared(left: Intervals, right: Intervals) -> Intervals:
    """What both sets cover."""
    edges, in_left, in_right = _cells(left, right)
    return _kept(edges, in_left & in_right)


def without(left: Intervals, right: Intervals) -> Intervals:
    """What `left` covers and `right` does not."""
    edges, in_left, in_right = _cells(left, right)
    return _kept(edges, in_left & ~in_right)


def _cells(left: Intervals, right: Intervals) -> tuple[npt.NDArray[np.int64], Mask, Mask]:
    """All edges in order, and for each cell between two neighbours whether either set covers it."""
    edges = np.unique(np.concatenate((left.ravel(), right.ravel())))
    return edges, covers(left, edges[:-1]), covers(right, edges[:-1])


def _kept(edges: npt.NDArray[np.int64], cells: Mask) -> Intervals:
    return union(edges[:-1][cells], edges[1:][cells])


def covers(intervals: Intervals, points: npt.NDArray[np.int64]) -> Mask:
    """Whether a set covers each of the points."""
    index = np.searchsorted(intervals[:, 0], points, side="right") - 1
    inside = index >= 0
    inside[inside] = points[inside] < intervals[index[inside], 1]
    return inside
