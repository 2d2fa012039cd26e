"""Readings of the machine a job runs on, from psutil."""

import os
from collections import Counter

import psutil

from ..record.telemetry import HostSample, Sample


class HostSource:
    """CPU, memory and storage use: of the whole machine, and of the job's processes on it."""

    name = "host"

    def __init__(self, launcher_pid: int | None = None) -> None:
        """The job is this process and its children or, with `launcher_pid`, that one's children and theirs."""
        self._pid = launcher_pid or os.getpid()
        self._with_root = launcher_pid is None
        self._has_cpu = False  # the first reading has no interval to be a mean of
        psutil.cpu_percent()

    def read(self, t_ns: int) -> list[Sample]:
        """One reading."""
        memory = psutil.virtual_memory()
        cpu = psutil.cpu_percent()
        sample = HostSample(
            t_ns=t_ns,
            cpu_pct=cpu if self._has_cpu else None,
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            **self._job(),
        )
        self._has_cpu = True
        return [sample]

    def close(self) -> None:
        """Nothing is held."""

    def _job(self) -> dict[str, int]:
        """Bytes of the job's living processes, summed, by the names of `HostSample`; what no process tells is absent.

        Memory that processes share is counted in each.
        """
        summed: Counter[str] = Counter()
        for process in self._processes():
            try:
                summed["job_rss_bytes"] += process.memory_info().rss
                storage = process.io_counters()
            except psutil.Error:  # it has ended meanwhile, or is not ours to look at
                continue
            summed["read_bytes"] += storage.read_bytes
            summed["write_bytes"] += storage.write_bytes
        return dict(summed)

    def _processes(self) -> list[psutil.Process]:
        try:
            root = psutil.Process(self._pid)
            children = root.children(recursive=True)
        except psutil.Error:
            return []
        return [root, *children] if self._with_root else children
