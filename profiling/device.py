"""One GPU, or one instance of a GPU, as long as it answers: what it has is read, what it lacks is told once."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil
import pynvml

from ..record.telemetry import Unavailable, XidEvent
from .gpm import Gpm
from .job import Job
from .nvml_calls import CHEAP, DEAR, Handles, Values, processes
from .xid import XidWatch

DEAR_PERIOD_NS = 30_000_000_000
"""Listing processes takes some drivers 5 ms under a lock that the job's kernel launches need too."""

_ABSENT = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,  # what some calls answer to a MIG instance
)
"""Errors that will not go away: the counter is dropped for this device."""

_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
"""Errors that end the device."""

_IN_A_ROW = 3
"""Readings that a counter may miss before it is told; it is still asked."""


class GoneError(Exception):
    """The device has been lost."""


class Device:
    """Reads one device. GoneError from any call: there is no more to be had from it."""

    def __init__(self, number: int, device: Handles, job: Job) -> None:
        """`number` is its CUDA ordinal; of its processes, the job's are told."""
        self.number, self.is_mig = number, device.is_mig
        self.untold: list[Unavailable] = []
        """What has been found wanting since this list was last emptied."""
        self._device, self._job = device, job
        self._cheap: dict[str, Callable[[int], Values]] = {
            **{name: _of(read, device) for name, read in CHEAP.items()},
            "gpm": self._means,
        }
        self._dear: dict[str, Callable[[int], Values]] = {
            **{name: _of(read, device) for name, read in DEAR.items()},
            "processes": self._processes,
        }
        self._dear_ns: int | None = None
        self._gpm: Gpm | None = None
        self._xids: XidWatch | None = None
        self._has_xids = True
        self._missed: Counter[str] = Counter()
        self._told: set[str] = set()

    def cheap(self, t_ns: int) -> Values:
        """What is read every time."""
        return self._read(self._cheap, t_ns)

    def dear(self, t_ns: int) -> Values:
        """What is read every 30 s; nothing in between."""
        if self._dear_ns is not None and 0 <= t_ns - self._dear_ns < DEAR_PERIOD_NS:
            return {}
        self._dear_ns = t_ns
        return self._read(self._dear, t_ns)

    def xids(self, t_ns: int) -> list[XidEvent]:
        """Critical errors since the reading before."""
        if not self._has_xids:
            return []
        try:
            self._xids = self._xids or XidWatch(self._device)
            return [XidEvent(t_ns=t_ns, device=self.number, xid=xid) for xid in self._xids.read()]
        except pynvml.NVMLError as error:
            self._has_xids = not self._misses("xid", error, t_ns)
            return []

    def close(self) -> None:
        """Give back what the driver holds for it."""
        for part in (self._gpm, self._xids):
            if part:
                with suppress(pynvml.NVMLError):
                    part.close()

    def _read(self, readers: dict[str, Callable[[int], Values]], t_ns: int) -> Values:
        values: Values = {}
        for name, read in list(readers.items()):
            try:
                found = read(t_ns)
            except pynvml.NVMLError as error:
                if self._misses(name, error, t_ns):
                    del readers[name]
                continue
            self._missed.pop(name, None)
            for field, value in found.items():
                if isinstance(value, pynvml.NVMLError):
                    self._misses(field, value, t_ns)
                else:
                    self._missed.pop(field, None)
                    values[field] = value
        return values

    def _misses(self, counter: str, error: Any, t_ns: int) -> bool:
        """Tell of a missing counter, once, unless it may come back; whether there is no use in asking again."""
        if error.value in _GONE:
            self._tell("gpu", error, t_ns)
            raise GoneError
        self._missed[counter] += 1
        absent = error.value in _ABSENT
        if absent or self._missed[counter] >= _IN_A_ROW:
            self._tell(counter, error, t_ns)
        return absent

    def _tell(self, counter: str, reason: object, t_ns: int) -> None:
        if counter not in self._told:
            self._told.add(counter)
            self.untold.append(unavailable(t_ns, counter, reason, self.number))

    def _means(self, t_ns: int) -> Values:
        self._gpm = self._gpm or Gpm(self._device)
        return self._gpm.read(t_ns)

    def _processes(self, t_ns: int) -> Values:
        listed = processes(self._device)
        known = {pid: used for pid, used in listed.items() if used is not None}
        if listed and not known:
            self._tell("processes", "the driver does not tell memory by process", t_ns)
            return {}
        ours = self._job.pids() & known.keys()
        if known and not ours and not any(psutil.pid_exists(pid) for pid in known):
            self._tell("processes", "it names processes that are not to be seen from inside this container", t_ns)
            return {}
        return {"process_bytes": {pid: known[pid] for pid in sorted(ours)}}


def unavailable(t_ns: int, counter: str, reason: object, device: int | None = None) -> Unavailable:
    """The line that tells of a counter, or of all (`gpu`), that NVML does not have."""
    return Unavailable(t_ns=t_ns, counter=counter, reason=f"NVML: {reason}", device=device)


def _of(read: Callable[[Handles], Values], device: Handles) -> Callable[[int], Values]:
    return lambda _t_ns: read(device)
