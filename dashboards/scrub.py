"""`stepscope scrub`: copies of captures without environment, user names, host names and home directories."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def scrub(
    files: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    output: Annotated[str | None, Parameter(name=["--output", "-o"])] = None,
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> None:
    """Copy captures without environment variables, user and host names, home directories, command lines.

    The input stays as it is. What was taken out is counted, never shown.

    Example: `stepscope scrub traces/run.sqlite`, or `stepscope scrub traces/mxtw -o to-send/`

    Parameters
    ----------
    files
        Exports of Nsight Systems (SQLite, folders of Parquet files), Kineto traces (.json, .json.gz), run folders.
    output
        Folder for the copies, made where it ends with / or there are several; else the one copy's own name.
        [default: <name>.scrubbed.<suffix> beside each]
    force
        Overwrite copies that exist.
    """
    from ..analyzers.scrub.files import scrub as scrub_one
    from ..analyzers.scrub.files import scrubbed_name

    place = Path(output) if output is not None else None
    into = output is not None and (len(files) > 1 or output.endswith("/") or Path(output).is_dir())
    if place and into:
        place.mkdir(parents=True, exist_ok=True)
    for path in files:
        beside = path.with_name(scrubbed_name(path))
        target = beside if place is None else place / beside.name if into else place
        result = scrub_one(path, target, force=force)
        taken = ", ".join(f"{number:,} × {kind}" for kind, number in sorted(result.removed.items()))
        sys.stdout.write(f"{result.output}\n")
        sys.stderr.write(f"removed: {taken or 'nothing'}\n")
        for line in result.left_out:
            sys.stderr.write(f"left out: {line}\n")
