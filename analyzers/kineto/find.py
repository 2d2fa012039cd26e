"""Which files of the paths that somebody names are traces to be read together: one for each rank."""

import re
from pathlib import Path

from ...record.errors import UserError
from ...record.run import RunDir

_TRACE = re.compile(r"trace.*\.json(\.gz)?$|\.pt\.trace\.json(\.gz)?$", re.IGNORECASE)
_WINDOW = re.compile(r"(?P<rank>.*rank[-_]?\d+)\.(?P<step>\d+)\.pt\.trace\.json(\.gz)?$", re.IGNORECASE)


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
    runs = sorted({path.parent for path in folder.rglob("*.pt.trace.json*")})
    if runs:
        some = ", ".join(map(str, runs[:3])) + (", …" if len(runs) > 3 else "")
        raise UserError(f"{folder}: holds the traces of {len(runs)} runs; name one of them: {some}")
    raise UserError(f"{folder}: holds no trace (*.pt.trace.json or .json.gz); was the run profiled?")


def _last_windows(traces: list[Path]) -> list[Path]:
    last: dict[str, Path] = {}
    for path in traces:
        match = _WINDOW.match(path.name)
        last[match["rank"] if match else path.name] = path
    return list(last.values())
