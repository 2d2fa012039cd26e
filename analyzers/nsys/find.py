"""From what somebody names to files, one a rank: several files, or a folder that holds several."""

from collections.abc import Iterable
from pathlib import Path

_REPORTS = (".nsys-rep", ".qdrep")
_EXPORTS = (".sqlite", "_pqtdir")
"""Of several of one name the first kind counts."""


def find_files(paths: Iterable[Path]) -> list[Path]:
    """Reports and exports in order: of a folder all in it, of a report and its export beside it the report alone.

    A folder without either stays what it is; whoever opens it says what it lacks.
    """
    found: list[Path] = []
    for path in paths:
        by_name: dict[str, Path] = {}
        for ending in (*_REPORTS, *_EXPORTS):
            for one in sorted(path.glob(f"*{ending}")) if path.is_dir() else ():
                by_name.setdefault(one.name.removesuffix(ending), one)
        found += [by_name[name] for name in sorted(by_name)] or [path]
    return found
