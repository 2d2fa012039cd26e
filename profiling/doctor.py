"""`stepscope doctor`: what this machine can train and capture, and why not, each with the fix to type.

A table of small checks over the facts of a `Machine`. Each stands alone: one that fails says so and ends nothing.
"""

import csv
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ..record.errors import first_line
from .machine import Machine

SCHEMA = "stepscope.doctor/1"

Format = Literal["table", "csv", "json"]
State = Literal["ok", "warning", "missing", "broken"]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What one check found. `missing` is something optional; `broken` something that training or capture needs."""

    state: State
    detail: str
    fix: str | None = None
    """What to type or do."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the doctor's."""

    name: str
    means: str
    """What it is good for."""
    state: State
    detail: str
    fix: str | None = None


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, for machines."""

    schema: str = SCHEMA
    can_train_and_capture: bool
    checks: list[Check]


def doctor(*, format: Format = "table") -> int:
    """Say what this machine can train and capture, and why not, each with the fix to type.

    Exit code 0: training and capture are possible; 1: something that they need is broken.

    Example: `stepscope doctor`

    Parameters
    ----------
    format
        table, csv or json.
    """
    diagnosis = diagnose(Machine())
    if format == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(diagnosis), indent=2).decode() + "\n")
    elif format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(Check.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(check) for check in diagnosis.checks)
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(in_words(diagnosis, width))
    return 0 if diagnosis.can_train_and_capture else 1


def diagnose(machine: Machine, checks: "Sequence[Row] | None" = None) -> Diagnosis:
    """Run every check; an exception in one becomes its result."""
    found = []
    for name, means, look in CHECKS if checks is None else checks:
        try:
            result = look(machine)
        except Exception as error:  # noqa: BLE001 - a check that fails must not end the doctor
            result = Result(
                state="warning", detail=f"could not be checked: {type(error).__name__}: {first_line(error)}"
            )
        found.append(Check(name=name, means=means, **msgspec.structs.asdict(result)))
    works = all(check.state != "broken" for check in found)
    return Diagnosis(can_train_and_capture=works, checks=found)


def in_words(diagnosis: Diagnosis, width: int | None = None) -> str:
    """Lines for people, of `width` characters at most if words allow: state, name, detail; below it the fix."""
    wide = max(len(check.name) for check in diagnosis.checks)
    lines = []
    for check in diagnosis.checks:
        said = [f"{check.state:<8} {check.name:<{wide}}  {_printable(check.detail)}"]
        if check.state != "ok":
            said.append(f"{'':<8} {'':<{wide}}  for: {check.means}")
        if check.fix:
            said.append(f"{'':<8} {'':<{wide}}  fix: {check.fix}")
        lines += [part for line in said for part in _wrapped(line, width, " " * (wide + 11))]
    end = "Training and capture work here." if diagnosis.can_train_and_capture else "Mend what is broken first."
    return "\n".join([*lines, "", end, ""])


def _wrapped(line: str, width: int | None, indent: str) -> list[str]:
    if width is None or len(line) <= width:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "·" for char in text)


_INSTALL = "pip install 'stepscope[train]'"


def _python(machine: Machine) -> Result:
    version = machine.python
    shown = ".".join(map(str, version))
    if version < (3, 11):
        return Result(state="broken", detail=shown, fix="use Python 3.11 or newer")
    return Result(state="ok", detail=shown)


def _torch(machine: Machine) -> Result:
    try:
        found = machine.torch()
    except (ImportError, OSError) as error:
        return Result(state="broken", detail=f"does not load: {first_line(error)}", fix=f"{_INSTALL} --force-reinstall")
    if found is None:
        return Result(state="broken", detail="not installed", fix=_INSTALL)
    version, cuda = found
    detail = f"{version}, built for {'CUDA ' + cuda if cuda else 'CPU only'}"
    if _numbers(version) < (2, 9):
        return Result(state="broken", detail=f"{detail}; 2.9 or newer is needed", fix="pip install 'torch>=2.9'")
    if cuda is None and machine.has_nvidia_device():
        fix = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128"
        return Result(state="warning", detail=f"{detail}, and there is an NVIDIA GPU", fix=fix)
    return Result(state="ok", detail=detail)


def _package(name: str, least: tuple[int, ...], below: tuple[int, ...]) -> Callable[[Machine], Result]:
    def look(machine: Machine) -> Result:
        version = machine.distribution(name)
        if version is None:
            return Result(state="broken", detail="not installed", fix=_INSTALL)
        if not least <= _numbers(version) < below:
            needs = f"{name}>={'.'.join(map(str, least))},<{'.'.join(map(str, below))}"
            return Result(state="broken", detail=f"{version} is not supported", fix=f"pip install '{needs}'")
        return Result(state="ok", detail=version)

    return look


_DRIVER_ERRORS = {
    9: ("the driver is not loaded", "sudo modprobe nvidia; nvidia-smi"),
    12: ("no NVIDIA driver library", "install the driver, or start the container with --gpus all"),
    18: ("driver and library are of different versions", "reboot, or reload the nvidia kernel modules"),
}


def _driver(machine: Machine) -> Result:
    nvml = machine.nvml()
    if nvml.driver is not None:
        return Result(state="ok", detail=nvml.driver)
    if nvml.error is None:
        return Result(state="missing", detail="nvidia-ml-py is not installed", fix=_INSTALL)
    what, fix = _DRIVER_ERRORS.get(nvml.error, (f"NVML fails to start: {nvml.message}", "nvidia-smi shows more"))
    state: State = "missing" if nvml.error == 12 else "broken"
    return Result(state=state, detail=what, fix=fix if nvml.error != 12 else f"{fix}; training on the CPU works")


def _gpus(machine: Machine) -> Result:
    gpus = machine.nvml().gpus
    if not gpus:
        return Result(state="missing", detail="no GPU; FP8 recipes are emulated, their times are no speed results")
    said = []
    for gpu in gpus:
        fp8 = "native" if gpu.capability >= (8, 9) else "emulated"
        mx = "native" if gpu.capability >= (10, 0) else "emulated"
        major, minor = gpu.capability
        size = "memory not told" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.1f} GiB"
        said.append(f"{gpu.name}, {size}, compute capability {major}.{minor}: FP8 {fp8}, mxfp8 {mx}")
    return Result(state="ok", detail="; ".join(said))


def _counters(machine: Machine) -> Result:
    nvml = machine.nvml()
    if not nvml.gpus:
        return Result(state="missing", detail="no GPU; the host's CPU, memory and storage are read instead")
    works = sorted(set(nvml.gpus[0].counters))
    lacking = sorted({f"{name} ({why})" for gpu in nvml.gpus for name, why in gpu.lacking.items()})
    if lacking:
        fix = "nothing to type: the driver does not offer them for this device"
        return Result(state="warning", detail=f"{', '.join(works)}; not {', '.join(lacking)}", fix=fix)
    return Result(state="ok", detail=", ".join(works))


def _nsys(machine: Machine) -> Result:
    found = machine.nsys()
    fix = "install Nsight Systems from developer.nvidia.com/nsight-systems and put nsys on PATH (or in STEPSCOPE_NSYS)"
    if found is None:
        return Result(state="missing", detail="no nsys on PATH", fix=fix)
    if found.version is None:
        return Result(state="warning", detail=f"cannot be used: {found.failure}", fix=fix)
    return Result(state="ok", detail=found.version)


def _perf(machine: Machine) -> Result:
    level = machine.number("/proc/sys/kernel/perf_event_paranoid")
    if level is None:
        return Result(state="warning", detail="perf_event_paranoid cannot be read", fix="profile with --sample=none")
    if level > 2:
        return Result(
            state="warning",
            detail=f"perf_event_paranoid is {level}: nsys cannot sample the CPU",
            fix="sudo sysctl kernel.perf_event_paranoid=2 (or profile with --sample=none)",
        )
    return Result(state="ok", detail=f"perf_event_paranoid is {level}")


def _counter_permission(machine: Machine) -> Result:
    text = machine.text("/proc/driver/nvidia/params")
    if text is None:
        return Result(state="missing", detail="no NVIDIA kernel module")
    if "RmProfilingAdminOnly: 1" in text and not machine.is_root():
        fix = (
            "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-prof.conf, "
            "then reboot"
        )
        return Result(state="warning", detail="GPU performance counters are for administrators only", fix=fix)
    return Result(state="ok", detail="GPU performance counters may be read")


def _other_client(machine: Machine) -> Result:
    around = sorted(name for name in machine.environment if name.startswith("NSYS_") or name == "CUDA_INJECTION64_PATH")
    if around:
        detail = f"this process runs under a profiler ({', '.join(around)})"
        return Result(state="warning", detail=detail, fix="run torch.profiler and nsys in separate passes")
    others = sorted({"nv-hostengine", "dcgm-exporter"} & machine.processes())
    if others:
        detail = f"{', '.join(others)} may hold the GPU's counters"
        return Result(state="warning", detail=detail, fix="dcgmi profile --pause, and --resume afterwards")
    return Result(state="ok", detail="none seen")


def _disk(machine: Machine) -> Result:
    free = machine.free_bytes("traces")
    detail = f"{free / 2**30:.1f} GiB free for traces/"
    if not machine.may_write("traces"):
        detail = "traces/ cannot be written to here"
        return Result(state="warning", detail=detail, fix="profile-train --out FOLDER where you may write")
    if free < 1 << 30:
        return Result(state="warning", detail=detail, fix="profile-train --out FOLDER on a larger disk")
    return Result(state="ok", detail=detail)


def _compiler(machine: Machine) -> Result:
    found = next((name for name in ("g++", "clang++", "c++") if machine.which(name)), None)
    if found is None:
        return Result(state="missing", detail="no C++ compiler", fix="sudo apt-get install g++")
    return Result(state="ok", detail=found)


def _tensorboard(machine: Machine) -> Result:
    version = machine.distribution("tensorboard")
    if version is None:
        return Result(state="missing", detail="not installed", fix="pip install tensorboard")
    if machine.distribution("torch-tb-profiler") is None:
        return Result(
            state="warning",
            detail=f"{version}, without the plugin for traces (stepscope trace reads them too)",
            fix="pip install torch-tb-profiler",
        )
    return Result(state="ok", detail=f"{version}, with torch-tb-profiler")


def _old_pynvml(machine: Machine) -> Result:
    if machine.distribution("pynvml") is None:
        return Result(state="ok", detail="not there, as it should be")
    return Result(state="warning", detail="installed: torch warns about it with every run", fix="pip uninstall pynvml")


def _images(machine: Machine) -> Result:
    browser = next((name for name in ("chromium", "google-chrome", "chrome") if machine.which(name)), None)
    kaleido = machine.distribution("kaleido")
    if browser is None or kaleido is None:
        lacks = " and ".join(what for what, found in (("a browser", browser), ("kaleido", kaleido)) if found is None)
        return Result(state="missing", detail=f"no {lacks}", fix="pip install kaleido; sudo apt-get install chromium")
    return Result(state="ok", detail=f"kaleido {kaleido}, {browser}")


Row = tuple[str, str, Callable[[Machine], Result]]

CHECKS: tuple[Row, ...] = (
    ("Python", "everything", _python),
    ("torch", "training and torch.profiler", _torch),
    ("torchao", "FP8 recipes", _package("torchao", (0, 18), (0, 19))),
    ("transformers", "the models", _package("transformers", (5, 17), (6,))),
    ("NVIDIA driver", "training and telemetry on a GPU", _driver),
    ("GPUs", "speed results of FP8", _gpus),
    ("NVML counters", "telemetry", _counters),
    ("nsys", "captures by Nsight Systems", _nsys),
    ("perf events", "CPU samples in nsys captures", _perf),
    ("GPU counters", "hardware counters in nsys captures", _counter_permission),
    ("other profilers", "only one profiler can use CUPTI at a time", _other_client),
    ("disk", "room for traces", _disk),
    ("C++ compiler", "torch.compile on a CPU", _compiler),
    ("TensorBoard", "looking at runs and traces in a browser", _tensorboard),
    ("old pynvml", "a deprecated package beside nvidia-ml-py", _old_pynvml),
    ("images", "charts as PNG files", _images),
)
"""Name, what it is good for, and the check."""


def _numbers(version: str) -> tuple[int, ...]:
    """`2.13.0+cpu` as (2, 13, 0)."""
    parts = []
    for part in version.partition("+")[0].split("."):
        digits = part[: next((at for at, char in enumerate(part) if not char.isdigit()), len(part))]
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts)
