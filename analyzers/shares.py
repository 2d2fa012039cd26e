"""How long work of one name, or of one kind, ran on a device: the union of its intervals, as everything of the span.

Durations summed would say more than there is time for, where two streams run the same kernel at once.
"""

from typing import NamedTuple

import numpy as np

from .activities import Activities, Ints, Mask
from .intervals import length, union
from .work_kinds import work_kind


class Covered(NamedTuple):
    """ns of one device; those of one key never exceed its span."""

    labels: Ints
    """By the work's labels."""
    kinds: dict[str, int]
    """By kind of work, as `work_kinds.work_kind` has it."""


def covered(work: Activities) -> Covered:
    """What the work of one device covers, by label and by kind."""
    named = [work_kind(entry.name, entry.kind) for entry in work.labels]
    kinds = sorted(set(named))
    kind = np.array([kinds.index(one) for one in named], dtype=np.int64)
    streams, rows = np.unique(work.stream), np.arange(len(work.labels))
    place = work.label.astype(np.int64) * len(streams) + np.searchsorted(streams, work.stream)
    found = np.bincount(place, minlength=len(rows) * len(streams)).reshape(len(rows), -1) > 0
    summed = np.bincount(work.label, weights=work.duration, minlength=len(rows)).astype(np.int64)  # exact below 2⁵³ ns
    by_kind = np.zeros(len(kinds), dtype=np.int64)
    on_streams = np.zeros((len(kinds), len(streams)), dtype=bool)
    np.add.at(by_kind, kind, summed)
    np.logical_or.at(on_streams, kind, found)
    return Covered(
        labels=_once(work, rows, summed, found),
        kinds=dict(zip(kinds, _once(work, kind, by_kind, on_streams).tolist(), strict=True)),
    )


def _once(work: Activities, group: Ints, summed: Ints, on_streams: Mask) -> Ints:
    """The sums of groups of labels, united where a group has work on several streams, or more of it than there is time.

    A stream runs one thing after another, so that elsewhere the union is the sum.
    """
    span_ns = int(work.end.max() - work.start.min())
    united = summed.copy()
    for one in np.flatnonzero((on_streams.sum(axis=1) > 1) | (summed > span_ns)).tolist():
        mine = (group == one)[work.label]
        united[one] = length(union(work.start[mine], work.end[mine]))
    return united
