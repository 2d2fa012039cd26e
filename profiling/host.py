"""Readings of the machine a job runs on, from psutil."""

from collections import Counter

import psutil

from ..record.telemetry import HostSample, Sample
from .job import Job


class HostSource:
    """CPU, memory and storage use: of the whole machine, and of the job's processes on it."""

    name = "host"

    def __init__(self, job: Job | None = None) -> None:
        """Without `job`, the job is this process and its children."""
        self._job = job or Job()
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
            **self._of_job(),
        )
        self._has_cpu = True
        return [sample]

    def close(self) -> None:
        """Nothing is held."""

    def _of_job(self) -> dict[str, int]:
        """Bytes of the job's living processes, summed, by the names of `HostSample`; what no process tells is absent.

        Memory that processes share is counted in each.
        """
        summed: Counter[str] = Counter()
        for process in self._job.processes():
            try:
                summed["job_rss_bytes"] += process.memory_info().rss
                storage = process.io_counters()
            except psutil.Error:  # it has ended meanwhile, or is not ours to look at
                continue
            summed["read_bytes"] += storage.read_bytes
            summed["write_bytes"] += storage.write_bytes
        return dict(summed)
