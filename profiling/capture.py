"""Recording a training loop of one's own: five lines around it, and it leaves a run folder as `profile-train` does.

    from stepscope.profiling.capture import capture

    with capture("traces/mine", window="10:12") as cap:
        for batch in batches:
            train(batch)
            cap.step(loss=loss)

Under torchrun every rank enters it, after `init_process_group`. Whatever fails in here is logged once and ends that
part of the recording; nothing is raised into the loop, and nothing of the loop's is changed.
"""

import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, SupportsFloat, SupportsInt

import msgspec
import torch
import torch.distributed as dist

from ..record.errors import first_line
from ..record.jsonl import JsonlWriter
from ..record.manifest import Device, Manifest, Outcome, World
from ..record.recipes import CAPTURED, recipe, why_emulated
from ..record.run import RunDir, new_run
from ..record.steps import Mark, Step
from ..record.telemetry import check_period
from .facts import device_facts, device_uuids, environment_facts, version_facts
from .guard import Part
from .sampler import Sampler
from .schedule import Schedule, recording_ranks
from .window import Recorded, TorchWindow

_log = logging.getLogger("stepscope.profiling")


class Capture:
    """What `capture` answers: call `step` after every optimizer step."""

    def __init__(
        self,
        out: Path,
        *,
        schedule: Schedule | None,
        recipe_name: str | None,
        recorded: Recorded,
        telemetry_period: float,
        settings: Mapping[str, Any],
    ) -> None:
        """Nothing is opened yet."""
        self.run: RunDir | None = None
        """The run's folder; None while there is none."""
        self._out, self._schedule, self._recorded = out, schedule, recorded
        self._recipe_name, self._period, self._settings = recipe_name, telemetry_period, settings
        self._part = Part("capture")
        self._pid = os.getpid()
        self._open = ExitStack()
        self._rank, self._world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self._local_rank = int(os.environ.get("LOCAL_RANK", 0))
        self._node = int(os.environ.get("GROUP_RANK", 0))
        self._steps: JsonlWriter | None = None
        self._window: TorchWindow | None = None
        self._number = 0
        self._began = self._began_unix = 0
        self._recording = False

    def step(
        self,
        *,
        loss: SupportsFloat | None = None,
        tokens: SupportsInt | None = None,
        positions: SupportsInt | None = None,
        lr: SupportsFloat | None = None,
        grad_norm: SupportsFloat | None = None,
    ) -> None:
        """An optimizer step has ended; what is not told is not measured.

        Its duration is host time since the step before it: on a GPU, whose work is queued, single steps blur into each
        other unless something waits for it, while their mean holds. A loss that is still a tensor on the GPU is read
        here, which waits.
        """
        with self._part.guarded():
            if self.run is None or self._steps is None or not self._part.works or os.getpid() != self._pid:
                return
            ended = time.perf_counter_ns()
            self._number += 1
            marks: list[Mark] = ["first"] if self._number == 1 else []
            marks += ["profiled"] if self._recording else []
            profiler_ns = None
            if self._window:
                self._window.step(self._number)
                profiler_ns = time.perf_counter_ns() - ended
            self._steps.write(
                Step(
                    step=self._number,
                    rank=self._rank,
                    start_ns=self._began_unix,
                    duration_ns=ended - self._began,
                    profiler_ns=profiler_ns,
                    loss=_float(loss),
                    tokens=None if tokens is None else int(tokens),
                    positions=None if positions is None else int(positions),
                    lr=_float(lr),
                    grad_norm=_float(grad_norm),
                    marks=tuple(marks),
                    **_memory(),
                )
            )
            self._next()

    def __enter__(self) -> Self:
        """Make the run's folder and start recording; the same on every rank."""
        with self._part.guarded():
            self.run = self._agreed_folder()
        with self._part.guarded():
            if self.run:
                self._start(self.run)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Write what is open, and how the loop ended. An exception of the loop's goes on its way."""
        if os.getpid() != self._pid:  # a child that was forked within: the recording is its parent's
            return
        with self._part.guarded():
            self._open.close()
        with Part("run.json").guarded():
            if self.run and (error or self._rank == 0):
                _settle(self.run, _outcome(error, self._rank, self._number))
                if self._rank == 0:
                    sys.stderr.write(f"stepscope: {self._number} steps recorded in {self.run.path}\n")

    def _agreed_folder(self) -> RunDir | None:
        """The folder that the first rank makes. All ranks come here; none leaves the others waiting."""
        together = self._world > 1
        if together and not dist.is_initialized():
            _log.warning("nothing is recorded: enter capture after torch.distributed.init_process_group")
            return None
        told: list[str | None] = [None]
        if self._rank == 0:
            with self._part.guarded():
                told = [str(new_run(self._out.parent, self._out.name).path)]
        if together:
            dist.broadcast_object_list(told)
        return RunDir(Path(told[0])) if told[0] else None

    def _start(self, run: RunDir) -> None:
        device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
        devices: list[Device] = [device_facts(device)] * self._world
        if self._world > 1:
            dist.all_gather_object(devices, device_facts(device))
        if self._rank == 0:
            run.write_manifest(self._manifest(run, devices))
        self._steps = self._open.enter_context(JsonlWriter(run.steps_path(self._rank)))
        if self._local_rank == 0 and self._period:
            telemetry = run.telemetry_path(self._node)
            launcher = os.getppid() if "LOCAL_RANK" in os.environ else None  # torchrun, with all ranks below it
            self._open.enter_context(Sampler(telemetry, self._period, device_uuids(), launcher))
        local_world = int(os.environ.get("LOCAL_WORLD_SIZE", self._world))
        if self._schedule and self._rank in recording_ranks(None, world=self._world, local_world=local_world):
            os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # its lines at each start and stop, on the loop's stderr
            self._window = TorchWindow(run, self._rank, self._schedule, recorded=self._recorded)
            self._open.enter_context(self._window)
        self._next()

    def _next(self) -> None:
        self._recording = bool(self._window and self._window.recording)
        self._began_unix, self._began = time.time_ns(), time.perf_counter_ns()

    def _manifest(self, run: RunDir, devices: list[Device]) -> Manifest:
        local_world = int(os.environ.get("LOCAL_WORLD_SIZE", self._world))
        stated = recipe(self._recipe_name) if self._recipe_name else CAPTURED
        emulated_why = why_emulated(stated, _least_capability(devices))
        return Manifest(
            run=run.name,
            recipe=stated,
            recipe_as_stated=self._recipe_name is not None,
            emulated=emulated_why is not None,
            emulated_why=emulated_why,
            config=_plain(self._settings),
            world=World(
                size=self._world,
                nodes=max(1, self._world // local_world),
                backend=dist.get_backend() if dist.is_initialized() else "none",
            ),
            devices=devices,
            model={},
            versions=version_facts(loaded=True),
            environment=environment_facts(),
            argv=list(sys.argv),
            started_ns=time.time_ns(),
        )


def capture(
    out: Path | str,
    *,
    window: str | None = "10:12",
    recipe: str | None = None,
    shapes: bool = True,
    memory: bool = True,
    stacks: bool = False,
    telemetry_period: float = 1.0,
    settings: Mapping[str, Any] | None = None,
) -> Capture:
    """Record a loop into the folder `out`; where that is taken, `out-2`, `out-3`, …

    `window` names the steps that torch.profiler records, like `10:15,100:105` (None: none); `recipe` the precision
    recipe that the loop trains in, if it is one of ours; `settings` whatever runs are to be compared by, as JSON
    values; `telemetry_period` is in seconds (0: no telemetry). Of more than 8 ranks, the first of each machine are
    profiled. ConfigError for a window, recipe or period that is none.
    """
    _check_recipe(recipe)
    if telemetry_period:
        check_period(telemetry_period, "; or 0 for no telemetry")
    place = Path(out)
    return Capture(
        place if place.name not in ("", "..") else Path(os.path.abspath(place)),
        schedule=Schedule.at(window) if window else None,
        recipe_name=recipe,
        recorded=Recorded(shapes=shapes, memory=memory, stacks=stacks),
        telemetry_period=telemetry_period,
        settings=settings or {},
    )


def _check_recipe(name: str | None) -> None:
    if name is not None:
        recipe(name)


def _least_capability(devices: list[Device]) -> tuple[int, int] | None:
    """The compute capability of the least GPU; None where a rank has none."""
    known = [device.capability.partition(".") for device in devices if device.capability]
    return min((int(major), int(minor)) for major, _, minor in known) if len(known) == len(devices) else None


def _float(value: SupportsFloat | None) -> float | None:
    return float(value.detach() if isinstance(value, torch.Tensor) else value) if value is not None else None


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON values: NumPy's and torch's single numbers as numbers, whatever else is none as its text."""

    def plain(value: Any) -> Any:
        return value.item() if getattr(value, "ndim", None) == 0 else str(value)

    made: dict[str, Any] = msgspec.to_builtins(dict(settings), enc_hook=plain, str_keys=True)
    return made


def _memory() -> dict[str, int]:
    """Host memory, and the CUDA allocator's peaks since the process began: resetting would change the loop's own."""
    import psutil

    found = {"rss_bytes": psutil.Process().memory_info().rss}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found["memory_allocated_bytes"] = torch.cuda.max_memory_allocated()
        found["memory_reserved_bytes"] = torch.cuda.max_memory_reserved()
    return found


def _outcome(error: BaseException | None, rank: int, steps: int) -> Outcome:
    if error is None or isinstance(error, GeneratorExit) or (isinstance(error, SystemExit) and not error.code):
        return Outcome(state="completed", exit_code=0, steps=steps)
    if isinstance(error, KeyboardInterrupt):
        return Outcome(state="interrupted", message=f"stopped by SIGINT after step {steps}", exit_code=130, steps=steps)
    message = f"rank {rank} failed with {type(error).__name__}: {first_line(error)}"
    return Outcome(state="failed", message=message, rank=rank, exit_code=1, steps=steps)


def _settle(run: RunDir, outcome: Outcome) -> None:
    manifest = run.manifest()
    if manifest.outcome.state == "running":
        manifest.outcome, manifest.ended_ns = outcome, time.time_ns()
        run.write_manifest(manifest)
