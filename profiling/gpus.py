"""The GPUs that the driver shows, without torch."""

import pynvml

from ..record.manifest import Device


def visible_gpus() -> tuple[list[Device], list[str]]:
    """Every GPU of this machine in NVML's order, and their UUIDs; nothing where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return [], []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        return [_facts(handle) for handle in handles], [pynvml.nvmlDeviceGetUUID(handle) for handle in handles]
    except pynvml.NVMLError:
        return [], []
    finally:
        pynvml.nvmlShutdown()


def _facts(handle: object) -> Device:
    return Device(
        kind="cuda",
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        driver=pynvml.nvmlSystemGetDriverVersion(),
    )
