"""`stepscope capture -- COMMAND…`: what the machine does while any program runs, without a change to the program.

Neither this module nor what it imports loads torch: it stands beside the program, not in it.
"""

import os
import re
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import psutil
from cyclopts import Group, Parameter

from .. import __version__
from ..record.errors import ConfigError, TraceError, plain_reason
from ..record.manifest import ENVIRONMENT_ALLOWED, Device, Manifest, Outcome, World
from ..record.recipes import CAPTURED
from ..record.run import RunDir, check_name, default_run_name, new_run
from ..record.telemetry import GpuSample, HostSample, check_period
from ..record.units import show_bytes, show_ns, show_pct
from .children import wait_for
from .gpus import visible_gpus
from .nsys import nsys_asked
from .nsys_note import note, remark
from .nsys_program import ProgramUnderNsys
from .sampler import Sampler

_PRICE = Group("Price list", sort_key=1)
Switch = Annotated[bool, Parameter(negative="", show_default=False)]


def capture(
    *command: Annotated[str, Parameter(allow_leading_hyphen=True)],
    out: Path = Path("traces"),
    run_name: str | None = None,
    telemetry_period: float = 1.0,
    capture: Literal["none", "nsys"] = "none",
    nsys_window: Switch = False,
    nsys_graph_nodes: Switch = False,
    nsys_memory: Switch = False,
    price: Annotated[bool, Parameter(negative="", show_default=False, group=_PRICE)] = False,
    recipe: Annotated[str | None, Parameter(group=_PRICE)] = None,
    model: Annotated[str | None, Parameter(group=_PRICE)] = None,
    seq_len: Annotated[int | None, Parameter(group=_PRICE)] = None,
    steps: Annotated[int | None, Parameter(group=_PRICE)] = None,
    format: Annotated[Literal["table", "csv", "json"] | None, Parameter(group=_PRICE)] = None,
) -> int:
    """Record what the machine does while a program runs: GPUs through NVML, CPU, memory and storage of the host.

    The program's output, exit code and signals stay its own. For step times and torch.profiler, put five lines into the
    program: see docs/capture.md.

    Example: `stepscope capture -- torchrun --nproc-per-node 4 train.py --lr 1e-5`

    Parameters
    ----------
    command
        The program and its arguments, after `--`.
    out
        Folder that receives the run's folder.
    run_name
        Name of the run's folder; a number is added where it is taken. [default: the program's name and UTC time]
    telemetry_period
        Seconds between samples.
    capture
        nsys: run the program under Nsight Systems too, which slows it.
    nsys_window
        Let nsys record only what the program puts between cudaProfilerStart and cudaProfilerStop.
    nsys_graph_nodes
        Let nsys record each kernel of a CUDA graph rather than the graph; costs more.
    nsys_memory
        Let nsys record device memory taken and given back; costs more.
    price
        Run no program, but say what each part of a capture costs a step of our own trainer on this machine.
    recipe
        Precision recipe of those steps. [default: mxtw]
    model
        As in profile-train. [default: tiny; llama-1b on GPUs]
    seq_len
        Positions per row. [default: 256; 2048 on GPUs]
    steps
        Pairs of steps with and without each part. [default: 12]
    format
        table, csv or json. [default: table]
    """
    settings = {"recipe": recipe, "model": model, "seq-len": seq_len, "steps": steps, "format": format}
    given = {name: str(value) for name, value in settings.items() if value is not None}
    if price:
        return _price_list(command, given)
    if given:
        raise ConfigError(f"--{next(iter(given))} goes with --price; the program's own arguments go after --")
    check_period(telemetry_period)
    if run_name is not None:
        check_name(run_name)
    program = [_checked(command), *command[1:]]
    nsys = nsys_asked(os.environ) if capture == "nsys" else None
    run = new_run(out, run_name or default_run_name(_plain_name(program[0])))
    under = None
    if nsys:
        under = ProgramUnderNsys(run, nsys, window=nsys_window, graph_nodes=nsys_graph_nodes, memory=nsys_memory)
    if nsys and (minded := remark(nsys)):
        _say(f"version {nsys.version}{minded}")
    code = _recorded(run, list(command), program, telemetry_period, under)
    if nsys and under:
        note(run, nsys, under.finish(), _say, steps=None, stands="the program ran to its end")
    return code


def _recorded(
    run: RunDir, command: list[str], program: list[str], period: float, under: ProgramUnderNsys | None
) -> int:
    """Run the program with the sampler beside it, write the manifest, say what was used; answer its exit code."""
    devices, uuids = visible_gpus(os.environ)
    manifest = _manifest(run, command, devices)
    run.write_manifest(manifest)
    try:
        with Sampler(run.telemetry_path(0), period, uuids, os.getpid()):
            code = under.run(program) if under else wait_for(program)
    except OSError as error:
        shutil.rmtree(run.path, ignore_errors=True)
        raise ConfigError(f"{command[0]}: does not start ({plain_reason(error)})") from None
    manifest.outcome, manifest.ended_ns = _outcome(code), time.time_ns()
    try:
        run.write_manifest(manifest)
        said = _summary(run, manifest, code)
    except (OSError, TraceError) as error:  # the folder is gone, or its disk full
        said = f"stepscope: exit code {code}; what was recorded is not whole: {' '.join(str(error).split())}\n"
    sys.stderr.write(said)
    return code


def _price_list(command: tuple[str, ...], given: dict[str, str]) -> int:
    """Start the program that measures it: the trainer, with torch in it, which this module never loads."""
    if command:
        raise ConfigError("--price runs our own trainer and no other program; leave out what comes after --")
    flags = [word for name, value in given.items() for word in (f"--{name}", value)]
    return wait_for([sys.executable, "-P", "-m", "stepscope.trainer.price", *flags])


def _say(line: str) -> None:
    sys.stderr.write(f"stepscope: nsys: {line}\n")
    sys.stderr.flush()


def _plain_name(program: str) -> str:
    """The program's name as a part of a folder's: its first 100 letters, digits and the like."""
    return re.sub(r"[^\w.+-]", "_", Path(program).stem, flags=re.ASCII)[:100]


def _checked(command: tuple[str, ...]) -> str:
    if not command:
        raise ConfigError("name the program to run after --, like: stepscope capture -- python train.py")
    program = shutil.which(command[0])
    if program is None:
        raise ConfigError(f"{command[0]}: there is no such program on the PATH")
    return program


def _manifest(run: RunDir, command: list[str], gpus: list[Device]) -> Manifest:
    host = Device(kind="cpu", name="host", memory_bytes=psutil.virtual_memory().total)
    return Manifest(
        run=run.name,
        recipe=CAPTURED,
        emulated=False,
        config={},
        world=World(size=1, nodes=1, backend="none"),
        devices=gpus or [host],
        model={},
        versions={"stepscope": __version__},
        environment={name: os.environ[name] for name in ENVIRONMENT_ALLOWED if name in os.environ},
        argv=["stepscope", "capture", "--", *command],
        started_ns=time.time_ns(),
    )


def _outcome(code: int) -> Outcome:
    if code == 0:
        return Outcome(state="completed", exit_code=0)
    if code in (129, 130, 143):
        return Outcome(state="interrupted", message=f"stopped with exit code {code}", exit_code=code)
    return Outcome(state="failed", message=f"the program ended with exit code {code}", exit_code=code)


def _summary(run: RunDir, manifest: Manifest, code: int) -> str:
    """How long it took and what it used, in two lines."""
    samples = [sample for of_node in run.telemetry().values() for sample in of_node]
    host = [sample for sample in samples if isinstance(sample, HostSample)]
    gpus = [sample for sample in samples if isinstance(sample, GpuSample)]
    shares = {
        "the machine's CPUs": _mean(sample.cpu_pct for sample in host),
        "GPU": _mean(sample.utilization_pct for sample in gpus),
    }
    peaks = {
        "memory": _most(sample.job_rss_bytes for sample in host),
        "GPU memory": _most(sample.memory_used_bytes for sample in gpus),
    }
    parts = [f"{name} {show_pct(share)}" for name, share in shares.items() if share is not None]
    parts += [f"{name} up to {show_bytes(peak)}" for name, peak in peaks.items() if peak is not None]
    took = show_ns((manifest.ended_ns or 0) - manifest.started_ns)
    used = f"; {', '.join(parts)}" if parts else ""
    return f"stepscope: ran {took}, exit code {code}{used}; recorded in {run.path}\n"


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
