"""Large traces in several processes: each decodes stretches of the events into columns, joined in the file's order.

Only for traces as Kineto writes them. Whatever is unusual (a stretch that needs mending, other order of keys, begins
and ends apart) makes the whole trace be read again by one process, which knows the ways to read it.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ..processes import cpus, forked
from .columns import Columns
from .events import typed
from .stream import (
    BLOCK,
    DAMAGED_GZIP,
    EVENT,
    Document,
    Progress,
    Reader,
    begins_an_event,
    cut_before_last,
    last_events,
    opening,
)

LEAST_BYTES = 24 << 20
"""Smaller files, gzipped ones by a tenth of this, are read before another process has started to be of use."""
_PACKED = 10
_UNUSUAL: tuple[type[Exception], ...] = (BrokenProcessPool, OSError, ValueError, RecursionError, *DAMAGED_GZIP)
_WINDOW = 1 << 16


class Stretch(NamedTuple):
    """Events that one process decodes: of a plain file by their place, of a gzipped one as text.

    `end`: of the bytes of the file as it lies on the disk.
    """

    path: Path
    begin: int
    end: int
    text: bytes | None


def read_in_parallel(path: Path, progress: Progress) -> tuple[Document, Columns] | None:
    """The trace; None where one process should read it: it is small or unusual, or there is one CPU only."""
    processes = cpus()
    if processes < 2:
        return None
    document, columns = Document(), Columns()
    try:
        with path.open("rb") as file:
            reader = Reader(file, document)
            if document.bytes_all < LEAST_BYTES / (_PACKED if reader.packed else 1):
                return None
            held, begin = opening(path, reader)
            if not begins_an_event(held):
                return None
            rest: list[bytes] = []
            stretches = _unpacked(path, reader, held, rest) if reader.packed else _places(path, begin, rest)
            for part, bytes_read in _decoded(stretches, processes):
                if part is None:
                    return None
                columns.absorb(part)
                progress(path, bytes_read, document.bytes_all)
            for events in last_events(rest[0], document, delivered=True):
                columns.add(events)
    except _UNUSUAL:
        return None
    document.bytes_read = document.bytes_all
    return None if document.mended or document.unreadable else (document, columns)


def _places(path: Path, begin: int, rest: list[bytes]) -> Iterator[Stretch]:
    """A plain file's stretches, cut where events begin; the text after them into `rest`. ValueError without cuts."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        cuts = [begin, *(_next_event(file.fileno(), at) for at in range(begin + BLOCK, size - BLOCK, BLOCK))]
        file.seek(cuts[-1])
        rest.append(file.read())
    for first, last in pairwise(cuts):
        yield Stretch(path, first, last, None)


def _next_event(descriptor: int, at: int) -> int:
    found = EVENT.search(os.pread(descriptor, _WINDOW, at))
    if found is None:
        raise ValueError
    return at + found.start()


def _unpacked(path: Path, reader: Reader, held: bytes, rest: list[bytes]) -> Iterator[Stretch]:
    """A gzipped file's stretches; the text after them into `rest`."""
    while more := reader.block():
        cut = cut_before_last(held)
        yield Stretch(path, 0, reader.document.bytes_read, held[:cut])
        held = held[cut:] + more
    rest.append(held)


def _decoded(stretches: Iterable[Stretch], processes: int) -> Iterator[tuple[Columns | None, int]]:
    """The columns of each stretch and where it ends, in order; some stretches ahead are decoded meanwhile."""
    ahead: deque[tuple[Future[Columns | None], int]] = deque()
    with forked(processes) as pool:
        for stretch in stretches:
            ahead.append((pool.submit(_columns, stretch), stretch.end))
            if len(ahead) > 2 * processes:
                part, end = ahead.popleft()
                yield part.result(), end
        for part, end in ahead:
            yield part.result(), end


def _columns(stretch: Stretch) -> Columns | None:
    text = stretch.text
    if text is None:
        with stretch.path.open("rb") as file:
            text = os.pread(file.fileno(), stretch.end - stretch.begin, stretch.begin)
    events = typed(text)
    if events is None or any(event.ph in ("B", "E") for event in events):
        return None
    columns = Columns()
    columns.add(events)
    return columns
