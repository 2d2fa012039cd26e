"""Which kernels an operator launched: those whose launch lies in its call, on its thread."""

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .activities import Ints, activities_of


class Launched:
    """The kernels of one rank, found by the calls that launched them."""

    def __init__(self, activities: pa.Table, launches: pa.Table) -> None:
        """Tables of one rank, with the columns of `timeline.ACTIVITIES` and `timeline.LAUNCHES`."""
        work = activities_of(activities)
        self.work = work.where(work.is_kernel)
        self._launches = launches.filter(pc.is_valid(launches["correlation"]))

    @cached_property
    def _threads(self) -> dict[tuple[int, int], tuple[Ints, Ints]]:
        """Thread → when its launches began, in order, and the row of the kernel that each launched."""
        correlation = np.asarray(self._launches["correlation"].to_numpy(), dtype=np.int64)
        order = np.argsort(correlation, kind="stable")
        at = np.minimum(np.searchsorted(correlation[order], self.work.correlation), max(0, len(order) - 1))
        if not len(order):
            return {}
        kernels = np.flatnonzero(correlation[order][at] == self.work.correlation)
        launch = order[at[kernels]]
        begins = np.asarray(self._launches["start"].to_numpy(), dtype=np.int64)[launch]
        process, thread = (np.asarray(self._launches[name].to_numpy())[launch] for name in ("process", "thread"))
        sort = np.lexsort((begins, thread, process))
        found = {}
        edges = np.flatnonzero(np.diff(process[sort]) | np.diff(thread[sort])) + 1
        for rows in np.split(sort, edges):
            if len(rows):
                found[int(process[rows[0]]), int(thread[rows[0]])] = begins[rows], kernels[rows]
        return found

    def within(self, thread: tuple[int, int], start: int, end: int) -> Ints:
        """Rows of `work`: the kernels launched in [start, end) on a thread, in order of their launch."""
        if thread not in self._threads:
            return np.empty(0, dtype=np.int64)
        begins, kernels = self._threads[thread]
        first, last = np.searchsorted(begins, (start, end))
        return kernels[first:last]

    def names(self, rows: Ints) -> list[str]:
        """The kernels' names, each once."""
        return list(dict.fromkeys(self.work.labels[code].name for code in self.work.label[rows].tolist()))

    def time_ns(self, rows: Ints) -> int | None:
        """Their durations summed; None where there are none."""
        return int(self.work.duration[rows].sum()) if len(rows) else None
