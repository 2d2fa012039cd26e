"""Whether runs' traces show the recipe that their manifests state, for comparisons: of one rank, and small traces only.

All ranks compute alike, so one rank's last window tells. A larger trace takes seconds to read, which a comparison of
many runs does not spend: `stepscope trace` says it.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ..record.errors import UserError
from ..record.units import show_bytes
from .results import Conforms
from .runs import Run

LARGEST_BYTES = 16 * 2**20
"""Of the trace on disk, compressed as torch.profiler's are here."""


def conforms(group: Sequence[Run]) -> tuple[Conforms, str]:
    """The verdict over all runs of a group, and why: `no` where one says no, `yes` where all say yes."""
    verdicts = {run.name: run_conforms(run) for run in group}
    worst_first: tuple[Conforms, ...] = ("no", "cannot tell", "yes")
    for wanted in worst_first:
        saying = {name: why for name, (verdict, why) in verdicts.items() if verdict == wanted}
        if saying:
            name, why = next(iter(saying.items()))
            more = f", and {len(saying) - 1} more alike" if len(saying) > 1 else ""
            return wanted, f"{name}: {why}{more}"
    return "cannot tell", "there is no run"


def run_conforms(run: Run) -> tuple[Conforms, str]:
    """The verdict on one run, and why."""
    if not run.traces:
        return "cannot tell", "it has no trace of torch.profiler"
    changed = max((path.stat().st_mtime_ns for path in run.traces if path.is_file()), default=0)
    return _of_folder(run.path, changed)


@lru_cache(maxsize=256)
def _of_folder(folder: Path, _: int) -> tuple[Conforms, str]:
    from .kineto.find import find_traces
    from .kineto.read import read_traces
    from .recipe_proof import manifest_beside, recipe_proof

    try:
        path = min(find_traces([folder]), key=lambda path: path.name)
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            return "cannot tell", f"its trace has {show_bytes(size)}: stepscope trace reads it"
        timeline = read_traces([path])
    except (UserError, OSError) as error:
        return "cannot tell", f"its trace cannot be read: {error}"
    found = recipe_proof(timeline, manifest_beside(timeline)).conformance
    return found.conforms, found.why
