"""One sampler per node: GPU readings through NVML, and host CPU, memory and storage through psutil, beside the job.

A thread reads every `period_s` seconds, first at once and last on the way out. A counter that a device does not have
is named once with the reason and not asked for again; a lost device is named and the others go on.
"""

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, Self

from ..record.errors import ConfigError
from ..record.jsonl import JsonlWriter
from ..record.telemetry import Sample, SamplerNote
from .guard import Part
from .host import HostSource
from .job import Job
from .nvml import NvmlSource

LEAST_PERIOD_S = 1 / 6
"""Between two of its own readings, a driver answers with the last."""


def check_period(period_s: float, name: str) -> None:
    """ConfigError, which names the setting, for a period that is none or too short to read anything new."""
    if not (math.isfinite(period_s) and period_s > 0):
        raise ConfigError(f"{name}: must be more than 0, not {period_s}")
    if period_s < LEAST_PERIOD_S:
        raise ConfigError(
            f"{name}: drivers read GPUs no more than six times a second, so {period_s} s would only repeat values; "
            "give 0.17 or more"
        )


class Source(Protocol):
    """Something that can be read again and again."""

    name: str

    def read(self, t_ns: int) -> list[Sample]:
        """One reading, taken at Unix time `t_ns`."""

    def close(self) -> None:
        """Let go of what it holds."""


class Sampler:
    """Samples into a telemetry file while its context is open. A failure ends the sampling, never the job."""

    def __init__(
        self, path: Path, period_s: float, device_uuids: Sequence[str] = (), launcher_pid: int | None = None
    ) -> None:
        """`device_uuids` are NVML names in the order of CUDA ordinals; none: no GPU is read.

        The job's processes are this one and its children or, with `launcher_pid`, all children of that one.
        """
        self._path, self._period_s = path, period_s
        job = Job(launcher_pid)
        self._makers: list[Callable[[], Source]] = [lambda: HostSource(job)]
        if device_uuids:
            self._makers.append(lambda: NvmlSource(device_uuids, job))
        self._part = Part("telemetry")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="stepscope-telemetry", daemon=True)

    def __enter__(self) -> Self:
        """Start sampling."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take a last reading and close the file; a driver that hangs is waited for no longer than ten seconds."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _sample(self) -> None:
        with self._part.guarded(), ExitStack() as stack:
            writer = stack.enter_context(JsonlWriter(self._path))
            sources = [make() for make in self._makers]
            for source in sources:
                stack.callback(source.close)
                writer.write(SamplerNote(t_ns=time.time_ns(), source=source.name, period_s=self._period_s))
            samples = self._until_stopped(sources, writer)
            last = SamplerNote(
                t_ns=time.time_ns(),
                source="+".join(source.name for source in sources),
                period_s=self._period_s,
                samples=samples,
                cpu_s=round(time.thread_time(), 4),
            )
            writer.write(last)

    def _until_stopped(self, sources: list[Source], writer: JsonlWriter) -> int:
        began, count = time.monotonic(), 0
        while True:
            for source in sources:
                for sample in source.read(time.time_ns()):
                    writer.write(sample)
            count += 1
            if self._stop.is_set():
                return count
            elapsed = time.monotonic() - began
            due = (int(elapsed / self._period_s) + 1) * self._period_s  # on the grid, however long a reading took
            self._stop.wait(due - elapsed)
