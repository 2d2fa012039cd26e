"""From what somebody names to files, one a rank: several files, or a folder that holds several."""

from collections.abc import Iterable
from pathlib import Path

_REPORTS = (".nsys-rep", ".qdrep")
_EXPORT = ".sqlite"


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Reports and exports in order: of a folder all in it, of a report and its export beside it the report alone.

    A folder without either stays what it is; whoever opens it says what it lacks.
    """
    found: list[Path] = []
    for path in paths:
        inside = sorted(one for one in path.iterdir() if one.suffix in (*_REPORTS, _EXPORT)) if path.is_dir() else []
        by_stem: dict[str, Path] = {}
        for one in inside:
            if one.suffix in _REPORTS or one.stem not in by_stem:
                by_stem[one.stem] = one
        found += by_stem.values() or [path]
    return found
