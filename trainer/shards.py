"""Data in files: one, or a folder of shards read in the order of their names; JSON lines, a JSON array, or Parquet."""

import gzip
import hashlib
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ..record.errors import ConfigError, TraceError

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".parquet")
_ROWS_AT_ONCE = 1024
"""Parquet rows held in memory at a time."""


class Shards:
    """The files of `--data`, in order."""

    def __init__(self, path: Path) -> None:
        """`path` is a file, or a folder of files. ConfigError where it holds nothing, or something else too."""
        self._path = path
        self._files = sorted(_shards(path)) if path.is_dir() else [path]
        for file in self._files:
            if not file.name.endswith(SUFFIXES):
                raise ConfigError(f"--data: {file} is of no known kind; known are {', '.join(SUFFIXES)}")
            if not file.is_file():
                raise ConfigError(f"--data: {file} is no file, or a link to none")
        if not self._files:
            raise ConfigError(f"--data: the folder {path} holds no {', '.join(SUFFIXES)}")

    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.stat().st_size for file in self._files)

    def rows(self, columns: Collection[str]) -> Iterator[tuple[Path, str, Any]]:
        """Every row with its file and its place there, such as `line 3`; of Parquet only `columns` are read."""
        for file in self._files:
            for place, row in _rows(file, columns):
                yield file, place, row

    def facts(self, columns: Collection[str]) -> dict[str, Any]:
        """The name, and the SHA-256 over the bytes of all files in order; `columns` do not matter."""
        whole = hashlib.sha256()
        for path in self._files:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    whole.update(block)
        several = {"files": len(self._files)} if self._path.is_dir() else {}
        return {"file": self._path.absolute().name, **several, "sha256": whole.hexdigest()}


def _shards(folder: Path) -> Iterator[Path]:
    """What counts in a folder: all but hidden files, those that begin with `_`, and a README."""
    for path in folder.iterdir():
        if path.name.startswith((".", "_")) or path.name == "README.md":
            continue
        if path.is_dir():
            raise ConfigError(f"--data: {folder} holds the folder {path.name}; give a folder of files only")
        yield path


def _rows(path: Path, columns: Collection[str]) -> Iterator[tuple[str, Any]]:
    try:
        if path.name.endswith(".parquet"):
            yield from _parquet(path, columns)
        elif path.name.endswith(".gz"):
            with gzip.open(path) as file:
                yield from _lines(path, file)
        else:
            with path.open("rb") as file:
                yield from _array(path, file) if _is_array(path, file) else _lines(path, file)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise TraceError(path, f"does not unpack ({error})") from None
    except (pa.ArrowException, OSError) as error:  # Arrow's own for broken pages is an OSError
        if isinstance(error, OSError) and error.filename:
            raise
        raise TraceError(path, f"does not read as Parquet ({' '.join(str(error).split())})") from None


def _lines(path: Path, file: Iterable[bytes]) -> Iterator[tuple[str, Any]]:
    for number, text in enumerate(file, start=1):
        if text.strip():
            yield f"line {number}", _decoded(path, f"line {number} is no JSON", text)


def _is_array(path: Path, file: IO[bytes]) -> bool:
    """Whether a `.json` begins as an array does; the others are lines."""
    first = file.read(1)
    while first.isspace():
        first = file.read(1)
    file.seek(0)
    return first == b"[" and path.name.endswith(".json")


def _array(path: Path, file: IO[bytes]) -> Iterator[tuple[str, Any]]:
    for number, row in enumerate(_decoded(path, "is no JSON array", file.read()), start=1):
        yield f"row {number}", row


def _decoded(path: Path, what: str, text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(path, f"{what} ({error})") from None


def _parquet(path: Path, columns: Collection[str]) -> Iterator[tuple[str, Any]]:
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        wanted = [name for name in names if name in columns] or names
        number = 0
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=wanted):
            for row in batch.to_pylist():
                number += 1
                yield f"row {number}", row
