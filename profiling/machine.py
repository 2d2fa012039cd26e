"""The facts about this machine that the doctor reads, each asked for only when needed; tests put others in place."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .nsys import VARIABLE as NSYS


class Gpu(NamedTuple):
    """One GPU as NVML has it."""

    name: str
    memory_bytes: int | None
    """None where the driver does not tell."""
    capability: tuple[int, int]
    counters: tuple[str, ...]
    lacking: Mapping[str, str]
    """Counter → why it cannot be read."""


class Nvml(NamedTuple):
    """What NVML says: the driver's version, or the error's number; neither where the binding is not installed."""

    driver: str | None = None
    error: int | None = None
    message: str = ""
    gpus: tuple[Gpu, ...] = ()


class Nsys(NamedTuple):
    """The nsys that $STEPSCOPE_NSYS names, or that is on PATH."""

    version: str | None
    failure: str = ""


class Machine:
    """This machine."""

    def __init__(self) -> None:
        """Nothing is read yet."""
        self.python = sys.version_info[:3]
        self.environment: Mapping[str, str] = os.environ
        self.nvml = cache(_nvml)

    def distribution(self, name: str) -> str | None:
        """The version of an installed distribution."""
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None

    def torch(self) -> tuple[str, str | None] | None:
        """torch's version and the CUDA version it was built for; None where it is not installed."""
        try:
            import torch
        except ModuleNotFoundError:
            return None
        return str(torch.__version__), torch.version.cuda

    def has_nvidia_device(self) -> bool:
        """Whether the kernel knows an NVIDIA GPU."""
        return Path("/dev/nvidia0").exists()

    def nsys(self) -> Nsys | None:
        """The nsys that captures would use, asked for its version without a shell."""
        path = shutil.which(self.environment.get(NSYS) or "nsys")
        if path is None:
            return None
        try:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Nsys(None, type(error).__name__)
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines:
            return Nsys(None, f"exit code {done.returncode}")
        return Nsys(lines[-1].strip())

    def which(self, name: str) -> str | None:
        """Where a program is."""
        return shutil.which(name)

    def text(self, path: str) -> str | None:
        """A small text file; None where it cannot be read."""
        try:
            return Path(path).read_text(errors="replace")
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """A file that holds a number."""
        text = self.text(path)
        return int(text) if text is not None else None

    def is_root(self) -> bool:
        """Whether this process may do everything."""
        return os.geteuid() == 0

    def processes(self) -> set[str]:
        """The names of all processes that can be seen."""
        found = (self.text(str(path)) for path in Path("/proc").glob("[0-9]*/comm"))
        return {name.strip() for name in found if name}

    def free_bytes(self, folder: str) -> int:
        """Room on the disk of `folder`, which need not exist yet."""
        path = Path(folder).absolute()
        while not path.exists():
            path = path.parent
        return shutil.disk_usage(path).free


def _nvml() -> Nvml:
    try:
        import pynvml
    except ModuleNotFoundError:
        return Nvml()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Nvml(error=int(error.value), message=str(error))
    try:
        count = pynvml.nvmlDeviceGetCount()
        gpus = tuple(_gpu(pynvml.nvmlDeviceGetHandleByIndex(index)) for index in range(count))
        return Nvml(driver=str(pynvml.nvmlSystemGetDriverVersion()), gpus=gpus)
    except pynvml.NVMLError as error:
        return Nvml(error=int(error.value), message=str(error))
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: Any) -> Gpu:
    import pynvml

    from .gpus import memory_bytes
    from .nvml_calls import CHEAP, DEAR, Handles

    readers = CHEAP | DEAR | {"gpm": _gpm, "processes": _processes}
    works, lacking = [], {}
    for name, read in readers.items():
        try:
            values = read(Handles(handle, handle))
            refused = next((value for value in values.values() if isinstance(value, pynvml.NVMLError)), None)
            if refused is not None:
                raise refused
            works.append(name)
        except pynvml.NVMLError as error:
            lacking[name] = str(error)
    return Gpu(
        name=str(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=memory_bytes(handle),
        capability=tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)),
        counters=tuple(works),
        lacking=lacking,
    )


def _gpm(device: Any) -> dict[str, Any]:
    """Whether the means of GPM can be had; NVMLError where not."""
    from .gpm import Gpm

    Gpm(device).close()
    return {}


def _processes(device: Any) -> dict[str, Any]:
    """Whether memory by process can be had; NVMLError where not."""
    from .nvml_calls import processes

    processes(device)
    return {}
