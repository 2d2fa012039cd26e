"""A trace as torch.profiler exports it, made fit to keep: compressed, and without the host's name and our paths.

torch writes `host_name` before the events and `traceName`, the path it wrote to, after them; traces get shared.
"""

import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..record.private import TRACE_HOST, TRACE_PATH

_CHUNK = 1 << 20
_TAIL = 1 << 13
_HOST, _PATH = (re.compile(rb'("%s":\s*)"(?:[^"\\]|\\.)*"' % name.encode()) for name in (TRACE_HOST, TRACE_PATH))


def pack(plain: Path, packed: Path) -> None:
    """Compress the JSON file `plain` into `packed`, which appears when it is whole; `plain` is removed either way."""
    beside = packed.with_name(f".{packed.name}.part")
    try:
        with (
            plain.open("rb") as source,
            beside.open("wb") as target,
            # Level 1: a tenth of the raw size at a tenth of the default level's time.
            gzip.GzipFile(fileobj=target, filename="", mode="wb", compresslevel=1, mtime=0) as out,
        ):
            for chunk in _anonymous(source, packed.name):
                out.write(chunk)
        beside.replace(packed)
    finally:
        plain.unlink(missing_ok=True)
        beside.unlink(missing_ok=True)


def _anonymous(source: BinaryIO, name: str) -> Iterator[bytes]:
    """The file's bytes, with both names replaced where they stand: before the first event and after the last."""
    held = b""
    while chunk := source.read(_CHUNK):
        held += chunk
        if b'"traceEvents"' in held:
            break
    head, mark, held = held.partition(b'"traceEvents"')
    yield _HOST.sub(rb'\1""', head) + mark
    while chunk := source.read(_CHUNK):
        held += chunk
        yield held[:-_TAIL]
        held = held[-_TAIL:]
    start = max(0, len(held) - _TAIL)
    yield held[:start]
    yield _PATH.sub(rb'\1"' + name.encode() + rb'"', held[start:])
