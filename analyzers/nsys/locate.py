"""From what somebody names to what can be read: an export itself, one beside the report, or one made by nsys.

Several reports, or a folder of them, are the ranks of one job. An export beside a report is read only if it belongs to
it: whole, not older, and made from a report of that name. nsys itself takes any that lies there.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ...record.errors import TraceError

REPORT_SUFFIXES = (".nsys-rep", ".qdrep")
STATS_SUFFIXES = (".csv", ".tsv", ".txt")
_PRINTED = re.compile(rb"(?:Processing|Running) \[|SKIPPED: |Time ?\(%\)|\((?:ns|nsec|nanoseconds|us|ms|MB|KiB)\)")
_PARQUET_SUFFIX = "_pqtdir"
_OTHER_EXPORTS = {".h5": "HDF5", ".jsonl": "JSON lines", ".arrows": "Arrow", "_arwdir": "Arrow"}
_LIKE_RANK = re.compile(r"(?:^|[^a-z])(?:rank|proc)[._-]?(\d+)", re.IGNORECASE)
_COPIED_LATER_S = 600


@dataclass(frozen=True, kw_only=True)
class Input:
    """One rank's data."""

    rank: int
    named: Path
    """What was named, or found in the folder that was."""
    export: Path | None = None
    """The export to open: an SQLite file or a folder of Parquet files."""
    stats: tuple[Path, ...] = ()
    """Instead of an export: what `nsys stats` printed."""
    note: str | None = None
    """A doubt that the reader should know of, in a sentence."""


def locate(paths: Sequence[Path], scratch: Path) -> list[Input]:
    """The inputs that paths name, by rank; a folder stands for all that it holds.

    The rank is the number after `rank` in the name, such as run.rank3.nsys-rep, where every name has one of its own;
    else inputs count from 0 in the order of their names. Exports that nsys has to make go into the folder `scratch`;
    nothing is written beside an input. TraceError says what to do where there is nothing to read.
    """
    groups = _joined([group for path in paths for group in _groups(path)])
    groups.sort(key=lambda group: _natural(group[0].name))
    numbers = ranks_of([group[0].name for group in groups])
    found = [_input(rank, group, scratch) for rank, group in zip(numbers, groups, strict=True)]
    return sorted(found, key=lambda one: one.rank)


def ranks_of(names: Sequence[str]) -> list[int]:
    """The rank of each name: the number after `rank` or `proc` in it, where each has one of its own; else its place."""
    found = [_LIKE_RANK.findall(name) for name in names]
    numbers = [int(numbers[-1]) for numbers in found if numbers]
    return numbers if len(set(numbers)) == len(names) else list(range(len(names)))


def is_stats_text(path: Path) -> bool:
    """Whether a file that somebody names, by that name, is meant to be text as `nsys stats` prints it."""
    return path.suffix.lower() in STATS_SUFFIXES and path.is_file()


def is_parquet_export(folder: Path) -> bool:
    """Whether a folder is one export of the type parquetdir, by its name or what is in it."""
    named = folder.name.endswith(_PARQUET_SUFFIX) and folder.is_dir()
    return named or (folder / "StringIds.parquet").is_file()


def _looks_printed(path: Path) -> bool:
    """Whether a text in a folder, where others may lie too, has what `nsys stats` prints in its beginning."""
    if not is_stats_text(path):
        return False
    with path.open("rb") as file:
        beginning = file.read(4096)
    return _PRINTED.search(beginning.replace(b"\x00", b"")) is not None  # UTF-16 has zeros between


def _joined(groups: list[list[Path]]) -> list[list[Path]]:
    """Tables that are named one by one, but of one report, are one group."""
    found: dict[tuple[Path, str], list[Path]] = {}
    for group in groups:
        first = group[0]
        key = (first.parent, stem_of_table(first)) if is_stats_text(first) else (first, "")
        found.setdefault(key, []).extend(group)
    return list(found.values())


def _groups(path: Path) -> list[list[Path]]:
    """The files of each rank that `path` names: one, or several tables that nsys stats wrote for the same report."""
    if not path.is_dir():
        if not path.exists():
            raise TraceError(path, "no such file")
        return [[path]]
    if is_parquet_export(path):
        return [[path]]
    if path.name.endswith("_arwdir"):
        raise TraceError(path, _other("_arwdir"))
    return _in_folder(path)


def _in_folder(folder: Path) -> list[list[Path]]:
    """A report stands for exports of the same name beside it; tables of nsys stats count where nothing else is."""
    names: dict[str, Path] = {}
    tables: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if is_parquet_export(path):
            names.setdefault(path.name.removesuffix(_PARQUET_SUFFIX), path)
        elif path.suffix in REPORT_SUFFIXES:
            names[path.stem] = path
        elif path.suffix == ".sqlite":
            if names.get(path.stem, path).suffix not in REPORT_SUFFIXES:
                names[path.stem] = path
        elif _looks_printed(path):
            tables.setdefault(stem_of_table(path), []).append(path)
    if not names and not tables:
        raise TraceError(
            folder, "holds no Nsight Systems report and no export; profile-train --capture nsys makes both"
        )
    return [[path] for path in names.values()] or list(tables.values())


def stem_of_table(path: Path) -> str:
    """run for run_cuda_gpu_kern_sum.csv."""
    found = re.fullmatch(r"(.+?)_(?:cuda|nvtx|osrt|um|gpu|openmp|opengl|vulkan)\w*", path.stem)
    return found[1] if found else path.stem


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that puts run2 before run10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _input(rank: int, group: list[Path], scratch: Path) -> Input:
    path = group[0]
    if path.suffix in REPORT_SUFFIXES:
        export, note = _of_report(path, scratch)
        return Input(rank=rank, named=path, export=export, note=note)
    if path.suffix in _OTHER_EXPORTS:
        raise TraceError(path, _other(path.suffix))
    if is_stats_text(path):
        return Input(rank=rank, named=path, stats=tuple(group))
    return Input(rank=rank, named=path, export=path)


def _other(suffix: str) -> str:
    return (
        f"is an export of the type {_OTHER_EXPORTS[suffix]}; export as sqlite or parquetdir: nsys export --type sqlite"
    )


def _of_report(report: Path, scratch: Path) -> tuple[Path, str | None]:
    """The export to read for a report, and a doubt about it."""
    beside = _beside(report)
    against, doubt = _belongs(report, beside) if beside else ("needs an export", None)
    nsys = shutil.which("nsys")
    if beside and not against and (not doubt or nsys is None):
        return beside, doubt
    if nsys:
        return _export(nsys, report, scratch / f"{report.stem}.sqlite"), None
    command = f"nsys export --type sqlite --force-overwrite true {report.name}"
    lies = f", or name {beside.name} itself to read it all the same" if beside else ""
    raise TraceError(
        report,
        f"{against}, and there is no nsys here; run where it is: {command}, and bring {report.stem}.sqlite beside it"
        f"{lies}",
    )


def _beside(report: Path) -> Path | None:
    """The export that lies beside a report: the newest of those that there are."""
    places = (report.with_suffix(".sqlite"), report.with_name(report.stem + _PARQUET_SUFFIX))
    there = [place for place in places if place.exists()]
    return max(there, key=_written, default=None)


def _belongs(report: Path, beside: Path) -> tuple[str | None, str | None]:
    """What speaks against reading the export beside a report, and what leaves a doubt; None, None where all is well."""
    from .export import Export

    it = f"the export beside it, {beside.name},"
    if _written(beside) < _written(report):
        return f"{it} is older than the report", None
    try:
        with Export(beside) as export:
            made_from, exported_at = export.report_name, export.exported_at
    except TraceError as error:
        return f"{it} {error.what}", None
    if made_from and made_from.lower() != report.name.lower():
        return f"{it} was made from another report, {made_from}", None
    try:
        made = datetime.fromisoformat(exported_at or "").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None, None
    if made + _COPIED_LATER_S < _written(report) / 1e9:
        doubt = f"{beside.name} was made on {exported_at} UTC, before {report.name} was last written"
        way = f"nsys export --type sqlite --force-overwrite true {report.name}"
        return None, f"{doubt}; if that was another capture and no copying, export it again: {way}."
    return None, None


def _written(path: Path) -> int:
    """When a file, or the newest file in a folder, was last written."""
    files = [*path.glob("*.parquet")] if path.is_dir() else [path]
    return max((file.stat().st_mtime_ns for file in files), default=0)


def _export(nsys: str, report: Path, made: Path) -> Path:
    if made.exists():
        made = Path(tempfile.mkdtemp(dir=made.parent)) / made.name
    words = [nsys, "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(made), str(report)]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise TraceError(report, f"nsys does not start: {error.strerror}") from None
    if done.returncode or not made.is_file():
        said = [line.strip() for line in (done.stderr.strip() or done.stdout).splitlines() if line.strip()]
        why = said[-1] if said else f"exit code {done.returncode}, and not a word"
        raise TraceError(report, f"nsys export failed: {why}")
    return made
