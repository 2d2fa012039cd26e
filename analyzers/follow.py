"""Follows runs on disk while they go on: each look reads only what has been added since the last."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from ..record.errors import TraceError, UserError
from ..record.manifest import Manifest
from ..record.run import RunDir, find_runs
from ..record.steps import Step
from ..record.tail import Tail
from ..record.telemetry import Sample
from .live import Live, LiveRun, live
from .runs import Run, world_steps

_T = TypeVar("_T")

KEPT, LEAST_KEPT = 20_000, 200
"""Lines of steps that are kept of all ranks together, and of one rank at least."""
KEPT_SAMPLES = 500
"""Readings of one machine."""
STALE_NS = 3_600_000_000_000
"""A run of a folder whose files have not changed for this long is not watched, though it says that it is running."""


@dataclass
class _Followed(Generic[_T]):
    """One growing file and its latest records."""

    tail: Tail
    records: deque[_T]

    def look(self) -> bool:
        """Whether there is anything new."""
        new = self.tail.new()
        self.records.extend(new)
        return bool(new)


@dataclass
class Follower:
    """One run. Its manifest is read again where it has changed."""

    folder: RunDir
    _steps: dict[int, _Followed[Step]] = field(default_factory=dict)
    _telemetry: dict[int, _Followed[Sample]] = field(default_factory=dict)
    _manifest: tuple[tuple[int, int], Manifest] | None = None
    _run: Run | None = None

    def now(self, at_ns: int) -> LiveRun:
        """The run as it is at `at_ns`, Unix time. TraceError where it cannot be read."""
        return live(self._read(), at_ns)

    def _read(self) -> Run:
        changed = self._look_at_manifest()
        try:
            ranks, nodes = self.folder.step_files(), self.folder.telemetry_files()
            kept = max(LEAST_KEPT, KEPT // max(1, len(ranks)))
            changed |= _look(self._steps, ranks, Step, kept)
            changed |= _look(self._telemetry, nodes, Sample, KEPT_SAMPLES)
        except OSError as error:
            raise TraceError(self.folder.path, f"cannot be read: {error.strerror}") from None
        if changed or self._run is None:
            self._run = self._whole()
        return self._run

    def _look_at_manifest(self) -> bool:
        try:
            status = self.folder.manifest_path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
        except OSError:
            stamp = (0, 0)
        if self._manifest is not None and self._manifest[0] == stamp:
            return False
        self._manifest = (stamp, self.folder.manifest())
        return True

    def _whole(self) -> Run:
        assert self._manifest
        manifest = self._manifest[1]
        steps = {rank: list(one.records) for rank, one in sorted(self._steps.items()) if one.records}
        tails = [one.tail for one in self._steps.values()] + [one.tail for one in self._telemetry.values()]
        unread = sum(tail.unread for tail in tails)
        return Run(
            name=self.folder.name,
            path=self.folder.path,
            manifest=manifest,
            steps=world_steps(steps, [resumption.from_step for resumption in manifest.resumed]),
            telemetry={node: tuple(one.records) for node, one in sorted(self._telemetry.items())},
            traces=(),
            ranks=tuple(steps),
            problem=f"{unread} lines of its files cannot be read and are left out" if unread else None,
        )


def _look(followed: dict[int, _Followed[_T]], files: dict[int, Path], kind: object, kept: int) -> bool:
    changed = False
    for number, path in files.items():
        if number not in followed:
            followed[number] = _Followed(Tail(path, kind), deque(maxlen=kept))
        changed |= followed[number].look()
    return changed


class Watcher:
    """The runs at and below paths; of folders, those that are running, also ones that begin later."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """UserError where there is no run at all."""
        self._paths = list(paths)
        self._followers: dict[Path, Follower] = {}
        self._over: dict[Path, int] = {}
        self._named = {path.parent if path.name == "run.json" else path for path in paths}

    @property
    def may_begin_others(self) -> bool:
        """Whether a folder was named that holds runs, and is none."""
        return any(not (path / "run.json").is_file() for path in self._named)

    def look(self, at_ns: int) -> Live:
        """Every run watched as it is now; where none is running, the one that began last."""
        folders = list(find_runs(self._paths))
        if not folders:
            where = ", ".join(map(str, self._paths)) or "no folder given"
            raise UserError(f"{where}: no run here yet (a run folder holds a run.json); begin one with profile-train")
        for folder in folders:
            if folder.path not in self._followers and (folder.path in self._named or self._goes(folder, at_ns)):
                self._followers[folder.path] = Follower(folder)
        if not self._followers:
            newest = max(folders, key=_began)
            self._followers[newest.path] = Follower(newest)
        runs = [follower.now(at_ns) for follower in self._followers.values()]
        return Live(at_ns=at_ns, runs=runs)

    def _goes(self, folder: RunDir, at_ns: int) -> bool:
        """Whether a run is going on, as far as its files tell; a manifest that says no is not read again."""
        try:
            stamp = folder.manifest_path.stat().st_mtime_ns
            if self._over.get(folder.path) == stamp:
                return False
            latest = max([stamp, *(path.stat().st_mtime_ns for path in folder.step_files().values())])
            if at_ns - latest > STALE_NS:
                return False
            if folder.manifest().outcome.state == "running":
                return True
        except (OSError, UserError):
            return False
        self._over[folder.path] = stamp
        return False


def _began(folder: RunDir) -> tuple[int, str]:
    try:
        return folder.manifest().started_ns, folder.name
    except UserError:
        return 0, folder.name
