"""Work that is worth more than one CPU, in forked processes: they see what this one holds without a copy."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

_tasks: Sequence[Callable[[], Any]] = ()


def cpus() -> int:
    """How many CPUs this process may use; 1 where it cannot fork, as on systems other than Linux."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


@contextmanager
def forked(processes: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of forked processes, ended with the block; what has not begun by then is dropped."""
    with warnings.catch_warnings():
        # Python 3.12 warns of fork beside threads, such as that of a progress bar: the children take no lock of theirs
        warnings.simplefilter("ignore", DeprecationWarning)
        pool = ProcessPoolExecutor(processes, mp_context=get_context("fork"))
        try:
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def side_by_side(tasks: Sequence[Callable[[], Any]], *, worth_it: bool) -> list[Any]:
    """What the tasks return, in their order; in as many processes as there are CPUs, where that is `worth_it`."""
    global _tasks
    processes = min(cpus(), len(tasks))
    if not worth_it or processes < 2:
        return [task() for task in tasks]
    _tasks = tasks
    try:
        with forked(processes) as pool:
            return [future.result() for future in [pool.submit(_run, at) for at in range(len(tasks))]]
    finally:
        _tasks = ()


def _run(at: int) -> Any:
    return _tasks[at]()
