"""From the file somebody names to an SQLite export of it: the file itself, one beside it, or one made by nsys."""

import shutil
import subprocess
from pathlib import Path

from ...record.errors import TraceError

_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")


def locate_export(path: Path, scratch: Path) -> Path:
    """The export to read for `path`. For a report: one beside it that is not older, else one that nsys makes now.

    For a folder: that of the only report in it. A new export goes into the folder `scratch`; nothing is written beside
    the input. TraceError says what to do where there is neither.
    """
    if path.is_dir():
        path = _only_one(path)
    if path.suffix not in _REPORT_SUFFIXES:
        return path
    if not path.is_file():
        raise TraceError(path, "no such file")
    beside = path.with_suffix(".sqlite")
    is_current = beside.is_file() and beside.stat().st_mtime_ns >= path.stat().st_mtime_ns
    if is_current:
        return beside
    nsys = shutil.which("nsys")
    command = f"nsys export --type sqlite --force-overwrite true {path.name}"
    if nsys is None:
        why = f"the export beside it, {beside.name}, is older than the report" if beside.exists() else "needs an export"
        raise TraceError(
            path, f"{why}, and there is no nsys here; run where it is: {command}, and bring {beside.name} beside it"
        )
    return _export(nsys, path, scratch / beside.name)


def _only_one(folder: Path) -> Path:
    """The report or export in a folder, as in a run's; TraceError where there is none, or more than one of them."""
    found = [path for path in sorted(folder.iterdir()) if path.suffix in (*_REPORT_SUFFIXES, ".sqlite")]
    stems = {path.stem: path for path in found}
    if not stems:
        raise TraceError(
            folder, "holds no Nsight Systems report and no export; profile-train --capture nsys makes both"
        )
    if len(stems) > 1:
        raise TraceError(folder, f"holds several reports; name one: {', '.join(path.name for path in stems.values())}")
    return next((path for path in found if path.suffix != ".sqlite"), found[0])


def _export(nsys: str, report: Path, made: Path) -> Path:
    words = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(made), str(report)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise TraceError(report, f"nsys does not start: {error.strerror}") from None
    if done.returncode or not made.is_file():
        said = [line.strip() for line in (done.stderr.strip() or done.stdout).splitlines() if line.strip()]
        why = said[-1] if said else f"exit code {done.returncode}, and not a word"
        raise TraceError(report, f"nsys export failed: {why}")
    return made
