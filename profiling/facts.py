"""What the manifest says about where a run ran: devices, versions, the code's commit, and the command, without names.

Home directories are written as `~`, so that no user name is stored.
"""

import importlib
import os
import platform
import subprocess
import sys
from pathlib import Path

import psutil
import torch

from .. import __version__
from ..record.manifest import ENVIRONMENT_ALLOWED, Device

_PACKAGES = ("torch", "torchao", "transformers", "tokenizers", "numpy", "tensorboard", "nvtx")


def device_facts(device: torch.device) -> Device:
    """What this rank computes on."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return Device(
            kind="cuda",
            name=properties.name,
            memory_bytes=properties.total_memory,
            capability=f"{properties.major}.{properties.minor}",
            driver=_driver(),
        )
    return Device(kind="cpu", name=_cpu_name(), memory_bytes=psutil.virtual_memory().total)


def device_uuids() -> list[str]:
    """NVML's names of the GPUs that this process sees, in the order of CUDA ordinals; none without GPUs."""
    if not torch.cuda.is_available():
        return []
    return [f"GPU-{torch.cuda.get_device_properties(index).uuid}" for index in range(torch.cuda.device_count())]


def version_facts(*, loaded: bool = False) -> dict[str, str]:
    """Versions as the imported modules state them; of those already imported only, if `loaded`."""
    found = {"stepscope": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        if loaded and name not in sys.modules:
            continue
        try:
            version = getattr(importlib.import_module(name), "__version__", None)
        except ImportError:
            continue
        if version:
            found[name] = str(version)
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def environment_facts() -> dict[str, str]:
    """The variables of the allow-list that are set."""
    return {name: os.environ[name] for name in ENVIRONMENT_ALLOWED if name in os.environ}


def git_commit() -> str | None:
    """The commit of this checkout, `-dirty` appended where files differ from it; None where this is no checkout."""
    root = Path(__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def _driver() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
