"""The end of a file of JSON lines, followed as it grows."""

from pathlib import Path
from typing import Any

import msgspec

REACH = 1 << 20
"""Bytes before the end that are read of a file that is there already."""


class Tail:
    """What is added to one file; of what it held before, only the end."""

    def __init__(self, path: Path, kind: Any, reach: int = REACH) -> None:
        """Lines of `path` are records of `kind`: a msgspec struct or a tagged union of some. It need not exist yet."""
        self._path = path
        self._decoder = msgspec.json.Decoder(kind)
        self._reach = reach
        self._read_to = 0
        self._file: tuple[int, int] | None = None
        self.unread = 0
        """Whole lines that are no records of the kind."""

    def new(self) -> list[Any]:
        """The records of whole lines added since the last call; of a file put in this one's place, its end.

        None of a file that is not there. OSError where it cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                status = self._path.stat()
                same = self._file == (status.st_dev, status.st_ino) and status.st_size >= self._read_to
                start = self._read_to if same else max(0, status.st_size - self._reach)
                self._file = (status.st_dev, status.st_ino)
                file.seek(max(0, start - 1))  # whether `start` begins a line is what the byte before it tells
                text = file.read()
                end = file.tell()
        except FileNotFoundError:
            return []
        before, text = (text[:1], text[1:]) if start else (b"\n", text)
        if before != b"\n":
            text = text[text.find(b"\n") + 1 :] if b"\n" in text else b""
        whole = text.rfind(b"\n") + 1
        self._read_to = end - (len(text) - whole)
        return [record for line in text[:whole].split(b"\n") if line.strip() for record in self._decoded(line)]

    def _decoded(self, line: bytes) -> list[Any]:
        try:
            return [self._decoder.decode(line)]
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.unread += 1
            return []
