"""Which files of the paths that somebody names are traces to be read together: one for each rank."""

import re
from pathlib import Path

from ...record.errors import UserError
from ...record.run import RunDir

_TRACE = re.compile(r"trace.*\.json(\.gz)?$|\.pt\.trace\.json(\.gz)?$", re.IGNORECASE)
_WINDOW = re.compile(r"(?P<worker>.+)\.(?P<stamp>\d+)\.pt\.trace\.json(\.gz)?$", re.IGNORECASE)


def find_traces(paths: list[Path]) -> list[Path]:
    """The files named, and the traces directly in the folders named; of a rank's windows the last.

    UserError where a path does not exist, and where a folder holds no trace or several runs.
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder")
        found += [path] if path.is_file() else _in_folder(path)
    return list(dict.fromkeys(found))


def _in_folder(folder: Path) -> list[Path]:
    traces = RunDir(folder).traces() or sorted(
        path for path in folder.iterdir() if path.is_file() and _TRACE.search(path.name) and path.name[0] != "."
    )
    if traces:
        return _last_windows(traces)
    below = sorted(path for path in folder.rglob("*.json*") if path.is_file() and _TRACE.search(path.name))
    runs = list(dict.fromkeys(path.parent for path in below))
    if len(runs) == 1:
        return _in_folder(runs[0])
    if runs:
        some = ", ".join(map(str, runs[:3])) + (", …" if len(runs) > 3 else "")
        raise UserError(f"{folder}: holds the traces of {len(runs)} runs; name one of them: {some}")
    raise UserError(f"{folder}: holds no trace (*.pt.trace.json or .json.gz); was the run profiled?")


def _last_windows(traces: list[Path]) -> list[Path]:
    """Of each worker's windows (`rank0.16.pt.trace.json`, `host_123.1690000000000.pt.trace.json.gz`) the last."""
    last: dict[str, tuple[int, Path]] = {}
    for path in traces:
        match = _WINDOW.match(path.name)
        worker, stamp = (match["worker"], int(match["stamp"])) if match else (path.name, 0)
        if worker not in last or stamp > last[worker][0]:
            last[worker] = stamp, path
    return [path for _, path in last.values()]
