"""Readings of the machine a job runs on, from psutil."""

import time
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
        self._cpus = psutil.cpu_count() or 1
        self._read_s, self._cpu_s = time.monotonic(), dict[int, float]()
        psutil.cpu_percent()

    def read(self, t_ns: int) -> list[Sample]:
        """One reading."""
        memory = psutil.virtual_memory()
        cpu, of_job = psutil.cpu_percent(), self._cpu_of_job()
        sample = HostSample(
            t_ns=t_ns,
            cpu_pct=cpu if self._has_cpu else None,
            job_cpu_pct=of_job if self._has_cpu else None,
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            **self._of_job(),
        )
        self._has_cpu = True
        return [sample]

    def close(self) -> None:
        """Nothing is held."""

    def _cpu_of_job(self) -> float:
        """Percent of all CPUs that the job's processes had since the last call."""
        began, last = self._read_s, self._cpu_s
        self._read_s, self._cpu_s = time.monotonic(), {}
        spent_s = 0.0
        for process in self._job.processes():
            try:
                times = process.cpu_times()
            except psutil.Error:  # as below
                continue
            self._cpu_s[process.pid] = times.user + times.system
            spent_s += max(0.0, self._cpu_s[process.pid] - last.get(process.pid, 0.0))
        return round(min(100.0, 100 * spent_s / self._cpus / max(self._read_s - began, 1e-3)), 1)

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
