"""Append-only JSON lines: one line a record, flushed as written; a reader tolerates a last line cut by a crash."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from .errors import TraceError

_BLOCK = 1 << 16


class JsonlWriter:
    """Appends records to one file; each is on its way to disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        """Open `path` for appending, creating it; a last line that a crash has cut short is taken away."""
        self._path = path
        _drop_cut_line(path)
        self._file = path.open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder()

    def write(self, record: Any) -> None:
        """Append one record as a line: the whole of it or, where the disk is full, none of it and an OSError."""
        line = memoryview(self._encoder.encode(record) + b"\n")
        before = os.fstat(self._file.fileno()).st_size
        try:
            while line:
                line = line[self._file.write(line) :]
        except OSError:
            with suppress(OSError):
                self._file.truncate(before)
            raise

    @property
    def lost(self) -> bool:
        """Whether the file is no longer at its path: it was removed or moved, and what is written is for nobody."""
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return True

    def close(self) -> None:
        """Close the file; further writes fail."""
        self._file.close()

    def __enter__(self) -> Self:
        """The writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def _drop_cut_line(path: Path) -> None:
    """What is appended to half a line would make one that reads as neither."""
    if not path.is_file():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        whole = end
        while whole:
            start = max(0, whole - _BLOCK)
            file.seek(start)
            newline = file.read(whole - start).rfind(b"\n")
            whole = start + newline + 1 if newline >= 0 else start
            if newline >= 0:
                break
        if whole < end:
            file.truncate(whole)


def read_jsonl(path: Path, kind: Any) -> Iterator[Any]:
    """Records of `path` in order.

    A last line without its newline is a write cut short and is left out; any other line that does not decode as
    `kind` (a msgspec struct or a tagged union of some) raises TraceError with the line's number.
    """
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            if not line.strip():
                continue
            try:
                yield decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise TraceError(path, f"line {number} is not a record of this file ({error})") from None
