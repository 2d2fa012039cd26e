"""Which kernels an operator launched: those whose launch lies in its call, on its thread."""

from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .activities import Ints, Mask, activities_of
from .op_calls import Call


class Launches(NamedTuple):
    """What each of some calls launched: a stretch, from `first` until `last`, of all kernels in launch order."""

    first: Ints
    last: Ints


class _InOrder(NamedTuple):
    """The kernels whose launch is known, by thread and launch."""

    begins: Ints
    """When each was launched."""
    kernels: Ints
    """Its row of `work`."""
    threads: dict[tuple[int, int], tuple[int, int]]
    """Process and thread → its stretch of the other two."""


class Launched:
    """The kernels of one rank, found by the calls that launched them."""

    def __init__(self, activities: pa.Table, launches: pa.Table) -> None:
        """Tables of one rank, with the columns of `timeline.ACTIVITIES` and `timeline.LAUNCHES`."""
        work = activities_of(activities)
        self.work = work.where(work.is_kernel)
        self._launches = launches.filter(pc.is_valid(launches["correlation"]))

    @cached_property
    def _in_order(self) -> _InOrder:
        correlation = np.asarray(self._launches["correlation"].to_numpy(), dtype=np.int64)
        if not len(correlation):
            nothing = np.empty(0, dtype=np.int64)
            return _InOrder(nothing, nothing, {})
        order = np.argsort(correlation, kind="stable")
        at = np.minimum(np.searchsorted(correlation[order], self.work.correlation), len(order) - 1)
        kernels = np.flatnonzero(correlation[order][at] == self.work.correlation)
        launch = order[at[kernels]]
        begins = np.asarray(self._launches["start"].to_numpy(), dtype=np.int64)[launch]
        process, thread = (np.asarray(self._launches[name].to_numpy())[launch] for name in ("process", "thread"))
        sort = np.lexsort((begins, thread, process))
        edges = np.flatnonzero(np.diff(process[sort]) | np.diff(thread[sort])) + 1
        bounds = [0, *edges.tolist(), len(sort)] if len(sort) else []
        threads = {
            (int(process[sort[first]]), int(thread[sort[first]])): (first, last) for first, last in pairwise(bounds)
        }
        return _InOrder(begins[sort], kernels[sort], threads)

    def by(self, calls: Sequence[Call]) -> Launches:
        """What each call launched between its start and its end."""
        first, last = np.zeros((2, len(calls)), dtype=np.int64)
        of_thread: dict[tuple[int, int], list[int]] = defaultdict(list)
        for at, call in enumerate(calls):
            of_thread[call.thread].append(at)
        begins, _, threads = self._in_order
        for thread, places in of_thread.items():
            if thread in threads:
                begin, end = threads[thread]
                for found, moments in (
                    (first, [calls[at].start for at in places]),
                    (last, [calls[at].end for at in places]),
                ):
                    found[places] = begin + np.searchsorted(begins[begin:end], moments)
        return Launches(first, last)

    def rows(self, launches: Launches) -> Mask:
        """Which of `work` any of the calls launched."""
        kernels = self._in_order.kernels
        change = np.zeros(len(kernels) + 1, dtype=np.int64)
        np.add.at(change, launches.first, 1)
        np.add.at(change, launches.last, -1)
        found = np.zeros(len(self.work), dtype=bool)
        found[kernels[np.cumsum(change)[:-1] > 0]] = True
        return found

    def time_ns(self, launches: Launches, of: Mask | None = None) -> list[int | None]:
        """Of each call the durations of what it launched, or of those that `of` picks, summed; None where it has none.

        `of`: of the rows of `work`.
        """
        kernels = self._in_order.kernels
        picked = np.ones(len(kernels), dtype=bool) if of is None else of[kernels]
        durations = np.where(picked, self.work.duration[kernels], 0)
        sums, counts = (np.concatenate(([0], np.cumsum(values))) for values in (durations, picked))
        times = (sums[launches.last] - sums[launches.first]).tolist()
        any_there = (counts[launches.last] > counts[launches.first]).tolist()
        return [time if there else None for time, there in zip(times, any_there, strict=True)]

    def names(self, launches: Launches) -> list[tuple[str, ...]]:
        """Of each call the names of the kernels that it launched, each once, in launch order."""
        labels = [label.name for label in self.work.labels]
        codes = self.work.label[self._in_order.kernels].tolist()
        known: dict[tuple[int, ...], tuple[str, ...]] = {}
        found = []
        for first, last in zip(launches.first.tolist(), launches.last.tolist(), strict=True):
            key = tuple(codes[first:last])
            if key not in known:
                known[key] = tuple(dict.fromkeys(labels[code] for code in key))
            found.append(known[key])
        return found
