"""Files that appear whole or not at all."""

import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` beside `path`, flush it to disk, and rename it into place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_over(path: Path, data: bytes) -> None:
    """Write `data` over the file at `path` in the room it has; where that cannot hold it, OSError before any change."""
    with path.open("r+b", buffering=0) as file:
        os.posix_fallocate(file.fileno(), 0, len(data))
        file.write(data)
        file.truncate(len(data))
        os.fsync(file.fileno())
