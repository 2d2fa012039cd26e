"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A hidden file to write; it is renamed to `path` at the end, and gone after an error."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` beside `path`, flush it to disk, and rename it into place."""
    with beside(path) as part, part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_over(path: Path, data: bytes) -> None:
    """Write `data` over the file at `path` in the room it has; where that cannot hold it, OSError before any change."""
    with path.open("r+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, len(data))
        file.write(data)
        file.truncate(len(data))
        os.fsync(file.fileno())
