"""`run.json`, the manifest: what ran, on what, with which settings, and how it ended.

Written atomically before the first step with outcome `running`, rewritten when the run ends. Host and user names are
left out, and of the environment only `ENVIRONMENT_ALLOWED` is kept: manifests get shared.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from .document import read_document, write_document
from .recipes import Recipe

SCHEMA = "stepscope.run/1"

ENVIRONMENT_ALLOWED = (
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "NCCL_ALGO",
    "NCCL_DEBUG",
    "NCCL_PROTO",
    "OMP_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
    "SLURM_JOB_ID",
    "SLURM_JOB_NUM_NODES",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
)

State = Literal["running", "completed", "interrupted", "failed"]


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """What a rank computes on."""

    kind: Literal["cuda", "cpu"]
    name: str
    memory_bytes: int | None
    """Total memory of the GPU, or of the machine for a CPU."""
    capability: str | None = None
    """CUDA compute capability such as `9.0`."""
    driver: str | None = None


class Linear(msgspec.Struct, frozen=True, kw_only=True):
    """A linear layer, and the precision its GEMMs were set to run in."""

    name: str
    out_features: int
    in_features: int
    precision: Literal["bf16", "float8"]
    why: str | None = None
    """Why it stays in bf16."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of the job."""

    size: int
    nodes: int
    backend: str


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the run ended; `running` until it has."""

    state: State = "running"
    message: str | None = None
    """For `failed` and `interrupted`: the exception or the signal, in one line."""
    rank: int | None = None
    """The rank that failed first."""
    exit_code: int | None = None
    steps: int | None = None
    """Optimizer steps finished."""


class Resumption(msgspec.Struct, frozen=True, kw_only=True):
    """One return to a run after it had ended."""

    at_ns: int
    """Unix time, ns."""
    from_step: int
    """The step of the checkpoint it went on from."""
    undone_steps: int
    """Steps after the checkpoint that had been trained, and were trained again."""
    world_size: int


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """What another profiler recorded, of our trainer in a pass of its own, after the run; of any other program in the
    run itself. Files are named as in the run's folder.
    """

    tool: Literal["nsys"]
    version: str
    report: str | None = None
    sqlite: str | None = None
    """The report's export."""
    stats: list[str] = []
    """Its summaries as CSV."""
    steps: tuple[int, int] | None = None
    """The first and the last step that were recorded; None where a program does not tell its steps."""
    problem: str | None = None
    """What went wrong, in one line."""


class Manifest(msgspec.Struct, kw_only=True):
    """The whole of `run.json`."""

    schema: str = SCHEMA
    run: str
    """The run's name: its folder's name when it was written."""
    recipe: Recipe
    emulated: bool
    """Whether FP8 was computed by emulation: numerics hold, timings are no speed result."""
    emulated_why: str | None = None
    recipe_as_stated: bool = False
    """Whether the recipe is what somebody said of a loop of his own, which nobody has checked."""
    config: dict[str, Any]
    """Every training setting, resolved."""
    world: World
    devices: list[Device]
    """One entry per rank."""
    model: dict[str, Any]
    """Model facts: `name`, `parameters`, `hidden_size`, `num_hidden_layers`, `vocab_size`, …"""
    data: dict[str, Any] = {}
    """Data facts: `file`, `sha256`, `examples`, `truncated`, `training_rows`, `padded_share`, …"""
    linear_layers: list[Linear] = []
    versions: dict[str, str]
    """Package → version, read from the imported module."""
    environment: dict[str, str] = {}
    argv: list[str]
    git_commit: str | None = None
    started_ns: int
    """Unix time, ns."""
    ended_ns: int | None = None
    outcome: Outcome = Outcome()
    resumed: list[Resumption] = []
    captures: list[Capture] = []


def without_home(values: Sequence[str]) -> list[str]:
    """Texts with the home directory written as `~`, wherever a path in them begins with it."""
    homes = {home for home in (str(Path.home()), os.path.realpath(Path.home())) if home != "/"}
    if not homes:
        return list(values)
    pattern = re.compile(rf"(?<![\w.~-])(?:{'|'.join(map(re.escape, homes))})(?![\w-]|\.\w)")
    return [pattern.sub("~", value) for value in values]


def homeless(value: Any) -> Any:
    """The same for every text in a JSON value."""
    if isinstance(value, str):
        return without_home([value])[0]
    if isinstance(value, dict):
        return {name: homeless(item) for name, item in value.items()}
    return [homeless(item) for item in value] if isinstance(value, list | tuple) else value


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write `run.json`, with the home directory written as `~` in all of it."""
    plain = msgspec.to_builtins(manifest)
    write_document(path, msgspec.convert(homeless(plain), Manifest))


def read_manifest(path: Path) -> Manifest:
    """Read `run.json`; TraceError where it is missing, cut, or of another schema."""
    return read_document(path, Manifest, SCHEMA, what="manifest", where="a run folder")
