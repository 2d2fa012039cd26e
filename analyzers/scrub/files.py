"""From a file or a run's folder to its scrubbed copy: which way each kind of file takes, and what is left out."""

import gzip
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from getpass import getuser
from pathlib import Path
from socket import gethostname

from ...record.errors import ConfigError, TraceError, UserError
from ...record.private import Cleaner, Names
from ..nsys.locate import is_parquet_export
from .json_text import check_is_text, learn_json, looks_like_trace, scrubbed_json
from .nsys_export import learn_export, scrub_export
from .records import scrubbed_events, scrubbed_snapshot

_REPORTS = (".nsys-rep", ".qdrep")
_TRACE = re.compile(r".*\.json(\.gz)?")
_TEXTS = (".txt", ".log", ".csv", ".toml", ".md", ".out", ".err", ".jsonl")
_OF_A_RUN = re.compile(r"(steps|telemetry|numerics|memory)\..*\.jsonl|(error|log)\.rank\d+\.txt")
_CAN_BE = "exports (.sqlite, *_pqtdir), traces (.json, .json.gz), run folders can be scrubbed"
_PARQUET = "_pqtdir"
_WEIGHTS = ("checkpoints", "model")
_SEALED = (
    "is sealed: nobody but nsys can change a report. Scrub its export (nsys export --type sqlite {name}), or capture "
    "again with --discard-environment=true"
)


@dataclass
class Scrubbed:
    """What became of one input."""

    output: Path
    removed: Counter[str]
    left_out: list[str] = field(default_factory=list)
    """Files of a folder that were not copied, each with the reason."""


def scrub(path: Path, output: Path, *, force: bool) -> Scrubbed:
    """Write the scrubbed copy of a file or run folder to `output`. TraceError or ConfigError where that cannot be."""
    if not (path.is_file() or path.is_dir()):
        raise UserError(f"{path}: no such file or folder")
    one = path.is_file() or is_parquet_export(path)
    files = [path] if one else list(_files(path))
    if not one and not any(name.name in ("run.json", "sweep.json") for name in files):
        raise TraceError(path, "is no run's folder (no run.json in it); name the files in it one by one")
    if path.is_file():
        _check_is_capture(path)
    _check_output(path, output, force=force)
    names = own_names()
    for file in files:
        _learn(file, names, alone=one)
    cleaner = Cleaner(names)
    part = output.with_name(f".{output.name}.part")
    _remove(part)
    try:
        result = Scrubbed(output=output, removed=cleaner.removed)
        if one:
            result.left_out += _file(path, part, cleaner, output.suffix)
            _check(path, part, names.tokens)
        else:
            _folder(path, files, part, result, cleaner, names.tokens)
        _remove(output)
        part.replace(output)
    finally:
        _remove(part)
    return result


def scrubbed_name(path: Path) -> str:
    """`<name>.scrubbed.<suffix>`; a trace keeps all of `.pt.trace.json.gz`, a run's folder has no suffix."""
    if path.name.endswith(_PARQUET) and path.is_dir():
        return f"{path.name.removesuffix(_PARQUET)}.scrubbed{_PARQUET}"
    if path.is_dir():
        return f"{path.name}.scrubbed"
    match = re.fullmatch(r"(.+?)((?:\.pt)?(?:\.trace)?\.json(?:\.gz)?|\.[^.]+)", path.name)
    return f"{match[1]}.scrubbed{match[2]}" if match else f"{path.name}.scrubbed"


def own_names() -> Names:
    """The names of this machine, where most files that are scrubbed were made."""
    names = Names()
    names.host(gethostname())
    try:
        names.user(getuser())
        names.folder(str(Path.home()))
    except (OSError, KeyError, RuntimeError):  # a container without a user
        pass
    return names


def _files(folder: Path) -> Iterable[Path]:
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink() and not is_parquet_export(path):
            yield from _files(path) if path.name not in _WEIGHTS else ()
        else:
            yield path


def _learn(path: Path, names: Names, *, alone: bool) -> None:
    try:
        if path.is_symlink():
            return
        if is_parquet_export(path):
            from .parquet_export import learn_parquet  # pyarrow is slow to load

            learn_parquet(path, names)
        elif not path.is_file():
            return
        elif path.suffix == ".sqlite" or (alone and _is_database(path)):
            learn_export(path, names)
        elif _TRACE.fullmatch(path.name) or path.suffix == ".jsonl":
            learn_json(path, names)
        elif path.suffix in _TEXTS:
            names.text(path.read_text(encoding="utf-8", errors="surrogateescape"))
    except TraceError:
        if alone:
            raise


def _check_is_capture(path: Path) -> None:
    """TraceError for a file that is named alone and is no capture: a text would be copied as it is, and look clean."""
    if _is_database(path) or _OF_A_RUN.fullmatch(path.name):
        return
    is_json = _TRACE.fullmatch(path.name) is not None
    if is_json:
        check_is_text(path)
    if path.suffix in _TEXTS or (is_json and not looks_like_trace(path)):
        raise TraceError(path, f"is no capture; {_CAN_BE}")


def _file(path: Path, part: Path, cleaner: Cleaner, suffix: str) -> list[str]:
    """Scrub one file, or a Parquet export, to `part`; what of it was left out. TraceError for a kind not known."""
    if path.suffix in _REPORTS:
        raise TraceError(path, _SEALED.format(name=path.name))
    if path.is_dir():
        from .parquet_export import scrub_parquet

        return scrub_parquet(path, part, cleaner)
    if path.suffix == ".sqlite" or _is_database(path):
        scrub_export(path, part, cleaner)
    elif _TRACE.fullmatch(path.name) or path.suffix == ".jsonl":
        check_is_text(path)
        _write_json(path, part, cleaner, packed=suffix == ".gz")
    elif ".tfevents." in path.name:
        part.write_bytes(scrubbed_events(path, cleaner))
    elif path.suffix == ".pickle":
        part.write_bytes(scrubbed_snapshot(path, cleaner))
    elif path.suffix in _TEXTS:
        check_is_text(path)
        with path.open("rb") as source, part.open("wb") as target:
            target.writelines(map(cleaner.data, source))
    else:
        raise TraceError(path, f"is of a kind that cannot be scrubbed; {_CAN_BE}")
    return []


def _write_json(path: Path, part: Path, cleaner: Cleaner, *, packed: bool) -> None:
    pieces = scrubbed_json(path, cleaner)
    with part.open("wb") as target:
        if packed:
            with gzip.GzipFile(fileobj=target, filename="", mode="wb", compresslevel=6, mtime=0) as out:
                out.writelines(pieces)
        else:
            target.writelines(pieces)


def _folder(path: Path, files: list[Path], part: Path, result: Scrubbed, cleaner: Cleaner, tokens: set[str]) -> None:
    for name in _WEIGHTS:
        result.left_out += [f"{found.relative_to(path)}: weights" for found in path.rglob(name) if found.is_dir()]
    for file in files:
        inside = file.relative_to(path)
        if file.is_symlink() or not (file.is_file() or is_parquet_export(file)):
            result.left_out.append(f"{cleaner.text(str(inside))}: a link, or no file")
            continue
        target = part / cleaner.text(str(inside))
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            result.left_out += [f"{target.name}/{line}" for line in _file(file, target, cleaner, file.suffix)]
            _check(file, target, tokens)
        except TraceError as error:
            _remove(target)
            why = str(error).removeprefix(f"{file}: ")
            result.left_out.append(f"{cleaner.text(str(inside))}: {why}")


def _check_output(path: Path, output: Path, *, force: bool) -> None:
    if output.resolve() == path.resolve() or output.resolve() in path.resolve().parents:
        raise ConfigError(f"{output}: is the input itself or holds it; choose another place with --output")
    if path.is_dir() and path.resolve() in output.resolve().parents:
        raise ConfigError(f"{output}: lies in the folder that is scrubbed; choose another place with --output")
    if not output.exists():
        return
    if not force:
        raise UserError(f"{output}: exists; add --force to overwrite it")
    known = is_parquet_export(output) or any((output / name).is_file() for name in ("run.json", "sweep.json"))
    if output.is_dir() and not known:
        raise UserError(f"{output}: is a folder, and no run's and no export; --force does not replace it")


def _check(path: Path, written: Path, tokens: set[str]) -> None:
    """Read what was written, and give it up where a token is still in it."""
    long = [token for token in tokens if len(token) >= 12]
    wanted = [token.encode(encoding, "surrogatepass") for token in long for encoding in ("utf-8", "utf-16-le")]
    wanted += [token.encode("utf-8", "surrogateescape") for token in long]
    overlap = max(map(len, wanted), default=1)
    held = b""
    for new in _pieces(written) if wanted else ():
        held = held[-overlap:] + new
        if any(token in held for token in wanted):
            raise TraceError(path, "still holds a value of an environment after scrubbing, and is not copied")


def _pieces(written: Path) -> Iterator[bytes]:
    """What was written, unpacked."""
    if written.is_dir():
        from .parquet_export import texts_in

        yield from texts_in(written)
        return
    with written.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
    with gzip.open(written, "rb") if packed else written.open("rb") as file:
        while new := file.read(1 << 20):
            yield new


def _is_database(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\x00"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
