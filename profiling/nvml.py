"""Readings of NVIDIA GPUs through NVML (`pynvml` of the distribution nvidia-ml-py).

Devices are found by UUID, since NVML's order is not CUDA's. Each counter is a row of a table; the newest call is tried
first and older drivers' calls after it.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from ..record.telemetry import GpuSample, Sample, Unavailable

_ABSENT = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_NO_PERMISSION,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
)
"""Errors that will not go away: the counter is dropped for this device."""

_GONE = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
"""Errors that end the device."""


def _temperature(handle: Any) -> int:
    try:
        return int(pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU))
    except pynvml.NVMLError_FunctionNotFound:
        return int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


def _throttle_reasons(handle: Any) -> int:
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError_FunctionNotFound:
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _memory(handle: Any) -> dict[str, int]:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return {
        "memory_used_bytes": memory.used,
        "memory_reserved_bytes": memory.reserved,
        "memory_total_bytes": memory.total,
    }


COUNTERS: dict[str, Callable[[Any], dict[str, int]]] = {
    "utilization": lambda handle: {"utilization_pct": pynvml.nvmlDeviceGetUtilizationRates(handle).gpu},
    "memory": _memory,
    "power": lambda handle: {"power_mw": pynvml.nvmlDeviceGetPowerUsage(handle)},
    "energy": lambda handle: {"energy_mj": pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)},
    "temperature": lambda handle: {"temperature_c": _temperature(handle)},
    "sm_clock": lambda handle: {"sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)},
    "memory_clock": lambda handle: {"memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)},
    "throttle_reasons": lambda handle: {"throttle_reasons": _throttle_reasons(handle)},
}
"""Counter → how to read it, as fields of `GpuSample`."""


class NvmlSource:
    """The GPUs of a job on this node. Made without a usable driver it reads nothing and says why, once."""

    name = "nvml"

    def __init__(self, uuids: Sequence[str]) -> None:
        """`uuids` in the order of CUDA ordinals, as `GPU-…`."""
        self._handles: dict[int, Any] = {}
        self._counters: dict[int, list[str]] = {}
        self._unsaid: list[Sample] = []
        self._open = False
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._unsaid.append(_unavailable(time.time_ns(), "gpu", error))
            return
        self._open = True
        for device, uuid in enumerate(uuids):
            try:
                self._handles[device] = pynvml.nvmlDeviceGetHandleByUUID(uuid)
                self._counters[device] = list(COUNTERS)
            except pynvml.NVMLError as error:
                self._unsaid.append(_unavailable(time.time_ns(), "gpu", error, device))

    def read(self, t_ns: int) -> list[Sample]:
        """One reading of every device that still answers, after what has become unavailable since the last."""
        samples = [self._device(device, t_ns) for device in list(self._handles)]
        said, self._unsaid = self._unsaid, []
        return [*said, *(sample for sample in samples if sample)]

    def close(self) -> None:
        """Shut NVML down."""
        if self._open:
            pynvml.nvmlShutdown()

    def _device(self, device: int, t_ns: int) -> GpuSample | None:
        values: dict[str, int] = {}
        for counter in list(self._counters[device]):
            try:
                values |= COUNTERS[counter](self._handles[device])
            except pynvml.NVMLError as error:
                if error.value in _GONE:
                    del self._handles[device]
                    self._unsaid.append(_unavailable(t_ns, "gpu", error, device))
                    break
                if error.value in _ABSENT:
                    self._counters[device].remove(counter)
                    self._unsaid.append(_unavailable(t_ns, counter, error, device))
        return GpuSample(t_ns=t_ns, device=device, **values) if values else None


def _unavailable(t_ns: int, counter: str, error: Exception, device: int | None = None) -> Unavailable:
    return Unavailable(t_ns=t_ns, counter=counter, reason=f"NVML: {error}", device=device)
