"""The run folder: the one place that knows what each file of a run is called."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from .errors import ConfigError, UserError
from .manifest import Manifest, read_manifest, write_manifest
from .numerics import OperandStatistics, read_numerics
from .steps import Step, read_steps
from .telemetry import Sample, read_telemetry

SAMPLE = "sample"
"""The folder of runs that come with the project."""

EARLIER = "earlier"
"""The folder, within a sweep's, of attempts that were repeated."""

ONLY_WHERE_NAMED = (SAMPLE, EARLIER)
"""Folders that are looked into only where they are named."""


_LONGEST_NAME = 200
"""Bytes; file systems take 255, and a number or a suffix may be added."""


class RunDir:
    """One run's folder and the names in it. Creating the object touches nothing on disk."""

    def __init__(self, path: Path) -> None:
        """`path` is the folder; it need not exist."""
        self.path = path

    def __repr__(self) -> str:
        """The folder it stands for."""
        return f"RunDir({str(self.path)!r})"

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def manifest_path(self) -> Path:
        """`run.json`."""
        return self.path / "run.json"

    @property
    def summary_path(self) -> Path:
        """`summary.json`: what the analyzers concluded; derived, can be deleted."""
        return self.path / "summary.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints, `checkpoints/step-<N>/`."""
        return self.path / "checkpoints"

    def steps_path(self, rank: int) -> Path:
        """`steps.rank<R>.jsonl`."""
        return self.path / f"steps.rank{rank}.jsonl"

    def numerics_path(self, rank: int = 0) -> Path:
        """`numerics.rank<R>.jsonl`: FP8 statistics, written by the first rank."""
        return self.path / f"numerics.rank{rank}.jsonl"

    def telemetry_path(self, node: int) -> Path:
        """`telemetry.node<N>.jsonl`."""
        return self.path / f"telemetry.node{node}.jsonl"

    def trace_path(self, rank: int, first_step: int) -> Path:
        """`rank<R>.<step>.pt.trace.json.gz`: the form TensorBoard's profiler tools look for."""
        return self.path / f"rank{rank}.{first_step}.pt.trace.json.gz"

    def nsys_stem(self, rank: int) -> Path:
        """The path of an Nsight Systems report without its suffix."""
        return self.path / f"{self.name}.rank{rank}"

    def memory_path(self, rank: int) -> Path:
        """`memory.rank<R>.pickle`: a CUDA allocator snapshot."""
        return self.path / f"memory.rank{rank}.pickle"

    def memory_detail_path(self, rank: int) -> Path:
        """`memory.rank<R>.jsonl`: what a step's memory was made of."""
        return self.path / f"memory.rank{rank}.jsonl"

    def memory_details(self) -> list[Path]:
        """All files of the kind, by name; none where no step was accounted for."""
        return sorted(self.path.glob("memory.rank*.jsonl"))

    def error_path(self, rank: int) -> Path:
        """`error.rank<R>.txt`: the traceback of a rank that failed."""
        return self.path / f"error.rank{rank}.txt"

    def log_path(self, rank: int) -> Path:
        """`log.rank<R>.txt`: what a rank other than the first wrote to stderr; absent if nothing."""
        return self.path / f"log.rank{rank}.txt"

    @property
    def model_path(self) -> Path:
        """The folder of the trained model, as transformers loads it."""
        return self.path / "model"

    def traces(self) -> list[Path]:
        """All torch.profiler traces of the run, by rank and then step."""
        return sorted(
            (path for path in self.path.glob("*.pt.trace.json*") if path.is_file() and not path.name.startswith(".")),
            key=lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)],
        )

    def manifest(self) -> Manifest:
        """The manifest; TraceError where there is none to read."""
        return read_manifest(self.manifest_path)

    def write_manifest(self, manifest: Manifest) -> None:
        """Write the manifest atomically."""
        write_manifest(self.manifest_path, manifest)

    def step_files(self) -> dict[int, Path]:
        """Rank → its step file, of those that are there."""
        return self._numbered("steps.rank")

    def telemetry_files(self) -> dict[int, Path]:
        """Node → its telemetry file, of those that are there."""
        return self._numbered("telemetry.node")

    def _numbered(self, stem: str) -> dict[int, Path]:
        found = {}
        for path in self.path.glob(f"{stem}*.jsonl"):
            if match := re.fullmatch(rf"{re.escape(stem)}(\d+)\.jsonl", path.name):
                found[int(match[1])] = path
        return dict(sorted(found.items()))

    def steps(self) -> dict[int, list[Step]]:
        """Rank → its steps in order; ranks without a file are absent."""
        return {rank: read_steps(path) for rank, path in self.step_files().items()}

    def numerics(self) -> list[OperandStatistics]:
        """FP8 statistics in the order they were written; none where no step took any."""
        path = self.numerics_path()
        return read_numerics(path) if path.is_file() else []

    def telemetry(self) -> dict[int, list[Sample]]:
        """Node → its samples in order; nodes without a file are absent."""
        return {node: read_telemetry(path) for node, path in self.telemetry_files().items()}


def check_name(name: str) -> None:
    """ConfigError where `--run-name` cannot name a folder, or would break the lines and file names it stands in."""
    fine = name.strip() and name.isprintable() and "/" not in name and not name.startswith(".")
    if not fine or len(name.encode("utf-8", "replace")) > _LONGEST_NAME:
        raise ConfigError(
            f"--run-name: {name!r} cannot name a folder; use a plain name without slashes, up to {_LONGEST_NAME} bytes"
        )


def new_run(parent: Path, name: str) -> RunDir:
    """Create a fresh folder `parent/name`; where that is taken, `name-2`, `name-3`, …: no run overwrites another."""
    for attempt in range(1, 10_000):
        path = parent / (name if attempt == 1 else f"{name}-{attempt}")
        try:
            parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except FileExistsError:
            if parent.is_dir():
                continue
            raise UserError(f"{parent}: is a file; choose another place with --out") from None
        except OSError as error:
            raise UserError(f"{path}: no run folder here ({error.strerror}); choose another place with --out") from None
        return RunDir(path)
    raise UserError(f"{parent}: ten thousand runs are called {name}; choose another folder with --out")


def default_run_name(recipe: str, when: datetime | None = None) -> str:
    """`<recipe>-<UTC date>-<time>`, sortable within a recipe."""
    return f"{recipe}-{(when or datetime.now(UTC)):%Y%m%d-%H%M%S}"


def find_runs(paths: list[Path]) -> Iterator[RunDir]:
    """The run folders among `paths` (or their `run.json`) and below them, each once, in sorted order per argument.

    A run folder is one that holds a `run.json`. Nothing is searched below a run folder, nor in a folder of
    `ONLY_WHERE_NAMED` that is not named itself. UserError for a path that does not exist.
    """
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
        for folder in _run_folders(path):
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                yield RunDir(folder)


def _run_folders(path: Path) -> Iterator[Path]:
    if path.name == "run.json":
        yield path.parent
    elif (path / "run.json").is_file():
        yield path
    elif path.is_dir():
        for below in sorted(path.iterdir()):
            if below.is_dir() and not below.is_symlink() and below.name not in ONLY_WHERE_NAMED:
                yield from _run_folders(below)
