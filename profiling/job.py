"""Which processes a job has on this machine."""

import os
import time

import psutil

_SHARE = 1000


class Job:
    """This process and its children or, with `launcher_pid`, that one's children and theirs.

    To list them takes a look at every process of the machine, so a list is kept for 1000 times the time it took.
    """

    def __init__(self, launcher_pid: int | None = None) -> None:
        """Nothing is looked at yet."""
        self._pid = launcher_pid or os.getpid()
        self._with_root = launcher_pid is None
        self._known: list[psutil.Process] = []
        self._keep_until = 0.0

    def processes(self) -> list[psutil.Process]:
        """Those of the last look; some may have ended since."""
        began = time.monotonic()
        if began >= self._keep_until:
            self._known = self._look()
            ended = time.monotonic()
            self._keep_until = ended + _SHARE * (ended - began)
        return self._known

    def pids(self) -> set[int]:
        """Their ids."""
        return {process.pid for process in self.processes()}

    def _look(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._pid)
            children = root.children(recursive=True)
        except psutil.Error:
            return []
        return [root, *children] if self._with_root else children
