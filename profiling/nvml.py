"""Readings of NVIDIA GPUs through NVML (`pynvml` of the distribution nvidia-ml-py).

Devices are found by UUID, since NVML's order is not CUDA's.
"""

import time
from collections.abc import Callable, Sequence

import pynvml

from ..record.telemetry import GpuSample, Sample
from .device import Device, GoneError, unavailable
from .job import Job
from .nvml_calls import Values, handles

LATE_NS = 5_000_000
"""A reading that has ended this long after its round began says how long."""


class NvmlSource:
    """The GPUs of a job on this node. Made without a usable driver it reads nothing and says why, once."""

    name = "nvml"

    def __init__(self, uuids: Sequence[str], job: Job | None = None, now: Callable[[], int] = time.time_ns) -> None:
        """`uuids` in the order of CUDA ordinals, as `GPU-…` or `MIG-…`; `now` tells Unix time in ns."""
        self._now = now
        self._devices: list[Device] = []
        self._unsaid: list[Sample] = []
        self._open = False
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._unsaid.append(unavailable(now(), "gpu", error))
            return
        self._open = True
        job = job or Job()
        for number, uuid in enumerate(uuids):
            try:
                self._devices.append(Device(number, handles(uuid), job))
            except pynvml.NVMLError as error:
                self._unsaid.append(unavailable(now(), "gpu", error, number))

    def read(self, t_ns: int) -> list[Sample]:
        """One reading of every device that still answers, after what has become unavailable since the last.

        What takes long is read when the rest of every device has been.
        """
        said, self._unsaid = self._unsaid, []
        values: dict[int, Values] = {}
        for device in list(self._devices):
            values[device.number] = {}
            try:
                said += device.xids(t_ns)
                values[device.number] = device.cheap(t_ns)
            except GoneError:
                self._lose(device, said)
            late = self._now() - t_ns
            if values[device.number] and late > LATE_NS:
                values[device.number]["late_ns"] = late
        for device in list(self._devices):
            try:
                values[device.number] |= device.dear(t_ns)
            except GoneError:
                self._lose(device, said)
            said += device.untold
            device.untold = []
            values[device.number] |= {"mig": True} if device.is_mig and values[device.number] else {}
        return [*said, *(GpuSample(t_ns=t_ns, device=number, **found) for number, found in values.items() if found)]

    def close(self) -> None:
        """Shut NVML down."""
        if self._open:
            for device in self._devices:
                device.close()
            pynvml.nvmlShutdown()

    def _lose(self, device: Device, said: list[Sample]) -> None:
        said += device.untold
        self._devices.remove(device)
        device.close()
