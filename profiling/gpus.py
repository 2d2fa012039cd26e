"""The GPUs that a program would see, without torch.

CUDA numbers GPUs by PCI bus where CUDA_DEVICE_ORDER=PCI_BUS_ID and, unless told so, the fastest first: on machines with
GPUs of one kind that is the same. NVML's own order is neither for certain, so that names here are UUIDs.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pynvml

from ..record.manifest import Device
from .nvml_calls import handles


def visible_gpus(environment: Mapping[str, str]) -> tuple[list[Device], list[str]]:
    """What CUDA_VISIBLE_DEVICES leaves of this machine's GPUs, and their UUIDs, in CUDA's order.

    Nothing where there is no driver. All GPUs by PCI bus where the variable counts GPUs of several kinds, whose order
    in CUDA only CUDA knows.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return [], []
    try:
        found = _chosen(environment, _by_bus())
        return list(found.values()), list(found)
    except pynvml.NVMLError:
        return [], []
    finally:
        pynvml.nvmlShutdown()


def _by_bus() -> dict[str, Device]:
    """UUID → facts of every GPU that answers."""
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            found.append((pynvml.nvmlDeviceGetPciInfo(handle).busId, pynvml.nvmlDeviceGetUUID(handle), _facts(handle)))
    return {uuid: facts for _, uuid, facts in sorted(found, key=lambda each: each[0])}


def _chosen(environment: Mapping[str, str], gpus: dict[str, Device]) -> dict[str, Device]:
    """As CUDA reads the variable: up to the first word that names no GPU."""
    asked = environment.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return gpus
    counts = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in gpus.values()}) <= 1
    found: dict[str, Device] = {}
    for word in (word.strip() for word in asked.split(",")):
        if word.isdecimal() and not counts:
            return gpus
        named = _named(word, gpus)
        if named is None or named[0] in found:
            break
        found[named[0]] = named[1]
    return found


def _named(word: str, gpus: dict[str, Device]) -> tuple[str, Device] | None:
    """The device that a number, a UUID or the beginning of one names; None where it names none, or several."""
    if word.startswith("MIG-"):
        try:
            return word, _facts(handles(word).own)
        except pynvml.NVMLError:
            return None
    if word.isdecimal():
        named = [*gpus.items()][int(word) :][:1]
    else:
        named = [(uuid, facts) for uuid, facts in gpus.items() if word and uuid.startswith(word)]
    return named[0] if len(named) == 1 else None


def _facts(handle: Any) -> Device:
    return Device(
        kind="cuda",
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=memory_bytes(handle),
        driver=pynvml.nvmlSystemGetDriverVersion(),
    )


def memory_bytes(handle: Any) -> int | None:
    """All of its memory; None where that is not told, as of a GPU cut into MIG instances in a container."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError:
        return None
