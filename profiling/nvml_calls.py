"""NVML's counters as a table: name → the call that reads it, as fields of `GpuSample`.

The newest call is tried first and older drivers' calls after it. A call that reads several values, each with an error
code of its own, answers the error in place of the value.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pynvml

_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024

_FIELDS = {
    "pcie_tx_bytes": (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0, 1),
    "pcie_rx_bytes": (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0, 1),
    "nvlink_tx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS, _KIB),
    "nvlink_rx_bytes": (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS, _KIB),
}
"""Field of `GpuSample` → NVML's field id, its scope, and the bytes of its unit."""

_ASKED = [(number, scope) for number, scope, _ in _FIELDS.values()]

_MEMBER = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}
"""How a field says its type → the member of the union that holds it."""

Values = dict[str, Any]
"""Fields of `GpuSample`, or the `NVMLError` that stands in a field's place."""


class Handles(NamedTuple):
    """What NVML calls a device by. The two differ where it is a MIG instance."""

    own: Any
    """The device itself."""
    gpu: Any
    """The GPU that it is, or is a part of."""

    @property
    def is_mig(self) -> bool:
        """Whether the device is a part of a GPU."""
        return self.own is not self.gpu


def handles(uuid: str) -> Handles:
    """The device that CUDA calls `GPU-…`; CUDA gives a MIG instance's UUID without saying that it is one's."""
    try:
        own = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError_NotFound:
        if not uuid.startswith("GPU-"):
            raise
        uuid = uuid.replace("GPU-", "MIG-", 1)
        try:
            own = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND) from None
    if uuid.startswith("MIG-"):
        return Handles(own, pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(own))
    return Handles(own, own)


def _utilization(device: Handles) -> Values:
    return {"utilization_pct": pynvml.nvmlDeviceGetUtilizationRates(device.own).gpu}


def _memory(device: Handles) -> Values:
    memory = pynvml.nvmlDeviceGetMemoryInfo(device.own, version=pynvml.nvmlMemory_v2)
    return {
        "memory_used_bytes": memory.used,
        "memory_reserved_bytes": memory.reserved,
        "memory_total_bytes": memory.total,
    }


def _temperature(device: Handles) -> Values:
    try:
        return {"temperature_c": pynvml.nvmlDeviceGetTemperatureV(device.gpu, pynvml.NVML_TEMPERATURE_GPU)}
    except pynvml.NVMLError_FunctionNotFound:
        return {"temperature_c": pynvml.nvmlDeviceGetTemperature(device.gpu, pynvml.NVML_TEMPERATURE_GPU)}


def _throttle_reasons(device: Handles) -> Values:
    try:
        return {"throttle_reasons": pynvml.nvmlDeviceGetCurrentClocksEventReasons(device.gpu)}
    except pynvml.NVMLError_FunctionNotFound:
        return {"throttle_reasons": pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device.gpu)}


def _traffic(device: Handles) -> Values:
    """Bytes moved so far; never `nvmlDeviceGetPcieThroughput`, which waits 20 ms."""
    read = pynvml.nvmlDeviceGetFieldValues(device.gpu, _ASKED)
    found: Values = {}
    for (name, (_, _, unit)), value in zip(_FIELDS.items(), read, strict=True):
        if value.nvmlReturn == pynvml.NVML_SUCCESS:
            found[name] = int(getattr(value.value, _MEMBER[value.valueType])) * unit
        else:
            found[name] = pynvml.NVMLError(value.nvmlReturn)
    return found


def _ecc(device: Handles) -> Values:
    read, volatile = pynvml.nvmlDeviceGetTotalEccErrors, pynvml.NVML_VOLATILE_ECC
    return {
        "ecc_corrected": read(device.gpu, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, volatile),
        "ecc_uncorrected": read(device.gpu, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, volatile),
    }


CHEAP: dict[str, Callable[[Handles], Values]] = {
    "utilization": _utilization,
    "memory": _memory,
    "power": lambda device: {"power_mw": pynvml.nvmlDeviceGetPowerUsage(device.gpu)},
    "energy": lambda device: {"energy_mj": pynvml.nvmlDeviceGetTotalEnergyConsumption(device.gpu)},
    "temperature": _temperature,
    "sm_clock": lambda device: {"sm_clock_mhz": pynvml.nvmlDeviceGetClockInfo(device.gpu, pynvml.NVML_CLOCK_SM)},
    "memory_clock": lambda device: {
        "memory_clock_mhz": pynvml.nvmlDeviceGetClockInfo(device.gpu, pynvml.NVML_CLOCK_MEM)
    },
    "throttle_reasons": _throttle_reasons,
    "traffic": _traffic,
}
"""Read every time."""

DEAR: dict[str, Callable[[Handles], Values]] = {"ecc": _ecc}
"""Read now and then; processes too, which need to know the job's."""


def processes(device: Handles) -> dict[int, int | None]:
    """Process id → bytes of this device's memory, of whoever computes on it; None where the driver does not tell."""
    try:
        read = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device.own)
    except pynvml.NVMLError_FunctionNotFound:
        read = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(device.own)
    return {process.pid: process.usedGpuMemory for process in read}
