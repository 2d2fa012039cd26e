"""What the manifest says about where a run ran: devices, versions, the code's commit, and the command, without names.

Home directories are written as `~`, so that no user name is stored.
"""

import importlib
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from .. import __version__
from ..record.manifest import ENVIRONMENT_ALLOWED, Device
from .config import Config
from .resolve import SHIPPED, SHIPPED_DATA

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


def version_facts() -> dict[str, str]:
    """Versions as the imported modules state them; a package that is not there is left out."""
    found = {"stepscope": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
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


def without_home(values: Sequence[str]) -> list[str]:
    """Command-line words with the home directory written as `~`."""
    home = str(Path.home())
    return [value.replace(home, "~") if home != "/" else value for value in values]


def plain_settings(config: Config) -> dict[str, Any]:
    """The settings for a manifest: the home directory written as `~`, the shipped data set as what it is."""
    shown = {
        name: without_home([value])[0] if isinstance(value, str) else value for name, value in config.settings().items()
    }
    return shown | {"data": SHIPPED} if config.data == SHIPPED_DATA else shown


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
