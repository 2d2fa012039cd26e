"""What nsys leaves in a run's folder beside its files: an entry in the manifest and, after trouble, its log."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from shlex import quote

from ..record.errors import TraceError
from ..record.manifest import Capture
from ..record.run import RunDir
from .nsys import Captured, Nsys
from .schedule import Span

SCRATCH = ".nsys-pass"
"""The folder, in the run's, of what the pass leaves besides its report; gone once all went well."""


def log_path(run: RunDir) -> Path:
    """What nsys, and in the trainer's pass the training under it, wrote."""
    return run.path / SCRATCH / "log.txt"


def remark(nsys: Nsys) -> str:
    """What is to be minded of this version, to go behind a line that names it; mostly nothing."""
    if nsys.discards_environment:
        return ""
    return "; this version writes environment variables into its report: mind whom you send it to"


def note(
    run: RunDir, nsys: Nsys, captured: Captured, say: Callable[[str], None], *, steps: Span | None, stands: str
) -> None:
    """Note the capture in the manifest and say it in one line; the log is kept where something failed.

    `steps` are those that were recorded, None where that is not known; `stands` says what is good in spite of trouble.
    """

    def name(path: Path | None) -> str | None:
        return path.name if path else None

    capture = Capture(
        tool="nsys",
        version=nsys.version,
        report=name(captured.report),
        sqlite=name(captured.sqlite),
        stats=[path.name for path in captured.stats],
        steps=steps,
        problem=captured.problem.replace(str(run.path) + os.sep, "") if captured.problem else None,
    )
    try:
        manifest = run.manifest()
        manifest.captures = [other for other in manifest.captures if other.tool != "nsys"] + [capture]
        run.write_manifest(manifest)
    except (OSError, TraceError) as error:
        say(f"the manifest could not be written: {error}")
    if captured.problem:
        log = log_path(run)
        more = f" (its log: {log})" if log.exists() else ""
        say(f"{captured.problem}{more}; {stands}")
        return
    shutil.rmtree(run.path / SCRATCH, ignore_errors=True)
    say(f"done; look at it with: analyze-nsys {quote(str(captured.sqlite))}")
