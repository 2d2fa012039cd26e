"""GPM, NVML's performance counters of Hopper and newer: means over the time between two samples of one device."""

import math
from contextlib import suppress
from typing import Any

import pynvml

from .nvml_calls import Handles, Values

_LEAST_NS = 120_000_000
"""The driver renews its counters every 100 ms, and samples closer together say nothing; a round has some jitter."""

_METRICS = {
    "sm_active_pct": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "sm_occupancy_pct": pynvml.NVML_GPM_METRIC_SM_OCCUPANCY,
    "tensor_active_pct": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_bandwidth_pct": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


class Gpm:
    """One device's. It holds two samples; the driver's memory for them is freed by `close`."""

    def __init__(self, device: Handles) -> None:
        """NVMLError where the device has no GPM."""
        if not pynvml.nvmlGpmQueryDeviceSupport(device.gpu).isSupportedDevice:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._device = device
        self._instance = pynvml.nvmlDeviceGetGpuInstanceId(device.own) if device.is_mig else None
        self._samples = []
        for _ in range(2):
            self._samples.append(pynvml.nvmlGpmSampleAlloc())
        self._taken_ns: int | None = None
        """When the first of the two samples was taken."""
        self._asked = pynvml.c_nvmlGpmMetricsGet_t()
        self._asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._asked.numMetrics = len(_METRICS)
        for place, number in enumerate(_METRICS.values()):
            self._asked.metrics[place].metricId = number

    def read(self, t_ns: int) -> Values:
        """The means since the sample before; nothing at first, and nothing yet where that was less than 120 ms ago."""
        before = self._taken_ns
        if before is not None and 0 <= t_ns - before < _LEAST_NS:
            return {}
        earlier, later = self._samples
        if before is None or t_ns < before:  # the machine's clock was set back: begin anew
            self._sample(earlier)
            self._taken_ns = t_ns
            return {}
        self._sample(later)
        self._samples, self._taken_ns = [later, earlier], t_ns
        self._asked.sample1, self._asked.sample2 = earlier, later
        pynvml.nvmlGpmMetricsGet(self._asked)
        means = {name: _mean(self._asked.metrics[place]) for place, name in enumerate(_METRICS)}
        return {"gpm_interval_ns": t_ns - before} | means

    def close(self) -> None:
        """Free the samples."""
        for sample in self._samples:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlGpmSampleFree(sample)
        self._samples = []

    def _sample(self, into: Any) -> None:
        if self._instance is None:
            pynvml.nvmlGpmSampleGet(self._device.gpu, into)
        else:
            pynvml.nvmlGpmMigSampleGet(self._device.gpu, self._instance, into)


def _mean(metric: Any) -> Any:
    if metric.nvmlReturn != pynvml.NVML_SUCCESS:
        return pynvml.NVMLError(metric.nvmlReturn)
    return round(metric.value, 3) if math.isfinite(metric.value) else pynvml.NVMLError(pynvml.NVML_ERROR_NO_DATA)
