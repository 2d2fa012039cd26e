"""The events of a Chrome trace in blocks, in bounded memory, and the document around them.

The array of events is cut before an event's `"ph"`, which Kineto writes first, and each block decoded by itself; where
keys are ordered otherwise, brackets are counted instead. A block that does not decode is mended (bad UTF-8, control
characters, Windows paths, trailing commas); events that still do not decode are left out and counted.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from isal import igzip, igzip_lib

from ...record.errors import TraceError
from .events import Event, converted, decoded, loaded, mendings, parsed

Progress = Callable[[Path, int, int], None]
"""Is told of the file, how many of its bytes have been read, and how many there are."""

DAMAGED_GZIP: tuple[type[Exception], ...] = (igzip.BadGzipFile, cast(type[Exception], igzip_lib.IsalError))

BLOCK = 4 << 20

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)
_MARK = b"\xef\xbb\xbf"
_BETWEEN = b" \t\r\n,"
EVENT = re.compile(rb'\{\s*"ph"')
"""How an event begins."""
_WHOLE_BYTES = 64 << 20
"""Files up to this size are decoded in one piece where nothing else works."""


@dataclass
class Document:
    """What stands around the events; complete once they have been read to the end."""

    facts: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False
    """Whether the file ends within the events."""
    mended: int = 0
    """Blocks that had to be mended before they decoded."""
    unreadable: int = 0
    """Events left out since they do not decode."""
    bytes_all: int = 0
    bytes_read: int = 0
    """Of the file as it lies on the disk, packed or not."""
    keys_reordered: bool = False
    """Whether events begin with another key than `ph`."""


def blocks(path: Path, document: Document) -> Iterator[list[Event]]:
    """The events of `path` in file order, and the rest of the document into `document`. TraceError for other files."""
    try:
        with path.open("rb") as file:
            yield from _blocks(path, Reader(file, document))
    except DAMAGED_GZIP as error:
        raise TraceError(path, f"is a damaged gzip file ({error})") from None
    except RecursionError:
        raise TraceError(path, "is no trace: its arrays and objects nest too deep") from None
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from None


class Reader:
    """The (unpacked) bytes of a trace, a block at a time; a gzip stream that stops short gives what it holds."""

    def __init__(self, file: BufferedReader, document: Document) -> None:
        """Read `file`, an open one, from its beginning; what is known of it goes into `document`."""
        document.bytes_all = os.fstat(file.fileno()).st_size
        self.packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        self._file = file
        self._unpacked: BufferedReader | igzip.IGzipFile = igzip.IGzipFile(fileobj=file) if self.packed else file  # type: ignore[no-untyped-call]
        self.document = document

    def block(self) -> bytes:
        """The next `BLOCK` bytes or so; empty at the end."""
        pieces: list[bytes] = []
        size = 0
        try:
            while size < BLOCK and (piece := self._unpacked.read1(min(BLOCK, 1 << 18))):
                pieces.append(piece)
                size += len(piece)
        except EOFError:
            self.document.truncated = True
        self.document.bytes_read = self._file.tell()
        return b"".join(pieces)

    def whole(self) -> bytes:
        """All bytes from the beginning."""
        self._unpacked.seek(0)
        return b"".join(iter(self.block, b""))


def _blocks(path: Path, reader: Reader) -> Iterator[list[Event]]:
    document = reader.document
    held, _ = opening(path, reader)
    delivered = False
    while more := reader.block():
        held += more
        events, cut = _head(held, document)
        if events is None:
            yield _whole(path, reader, delivered)
            return
        if events:
            delivered = True
            yield events
        held = held[cut:]
    try:
        yield from last_events(held, document, delivered=delivered)
    except ValueError:
        yield _whole(path, reader, delivered)


def opening(path: Path, reader: Reader) -> tuple[bytes, int]:
    """What has been read of the events, and where in the file they begin; the text before them is read.

    TraceError where the file has no events.
    """
    held = reader.block()
    marked = len(_MARK) if held.startswith(_MARK) else 0
    held = held[marked:]
    if not held.strip():
        raise TraceError(path, "is empty; a trace is written when the profiler's window has ended")
    while not (found := _start(held)) and (more := reader.block()):
        held += more
        if len(held) > _WHOLE_BYTES:
            break
    if found is None:
        raise TraceError(
            path, "is no trace: there is no traceEvents array in it; export_chrome_trace of torch.profiler writes one"
        )
    _around(held[: found[0]], b"}", reader.document)
    return held[found[1] :], marked + found[1]


def _start(held: bytes) -> tuple[int, int] | None:
    """Where the text around the events ends and where the first event begins."""
    if held.lstrip()[:1] == b"[":
        return 0, held.index(b"[") + 1
    match = _ARRAY.search(held)
    return match.span() if match else None


def _head(held: bytes, document: Document) -> tuple[list[Event] | None, int]:
    """The whole events that `held` begins with, and where they end; None where no way to read them is left."""
    cut = cut_before_last(held)
    if cut and not document.keys_reordered and (events := _decoded(held[:cut], document)) is not None:
        return events, cut
    exact = _exact_cut(held)
    if exact and (events := _decoded(held[:exact], document)) is not None:
        document.keys_reordered = True
        return events, exact
    end = cut or exact
    if end and begins_an_event(held):
        document.keys_reordered = False
        return _salvaged(held[:end], document), end
    return ([], 0) if not exact and len(held) < _WHOLE_BYTES else (None, 0)


def begins_an_event(held: bytes) -> bool:
    """Whether an event begins here, as Kineto writes them."""
    return EVENT.match(held.lstrip(_BETWEEN)) is not None


def cut_before_last(held: bytes) -> int:
    """A place between two events, as near to the end as can be told from where `ph` stands; 0 for none."""
    phase = held.rfind(b'"ph"')
    return max(0, held.rfind(b"{", 0, phase)) if phase > 0 else 0


def _exact_cut(held: bytes) -> int:
    """Where the last whole event ends, by counting brackets outside of text; 0 for none."""
    depth, end = 0, 0
    for token in _TOKEN.finditer(held):
        sign = held[token.start()]
        if sign in b"{[":
            depth += 1
        elif sign in b"}]":
            depth -= 1
            if depth == 0:
                end = token.end()
            elif depth < 0:
                break
    return end


def _decoded(block: bytes, document: Document) -> list[Event] | None:
    found = decoded(block)
    if found is None:
        return None
    events, mended = found
    document.mended += mended
    return events


def _salvaged(block: bytes, document: Document) -> list[Event]:
    """Event by event what decodes; the rest is counted."""
    starts = [match.start() for match in EVENT.finditer(block)]
    found = [_decoded(block[start:end], document) for start, end in pairwise([*starts, len(block)])]
    document.unreadable += found.count(None)
    return [event for events in found if events for event in events]


def last_events(held: bytes, document: Document, *, delivered: bool) -> Iterator[list[Event]]:
    """The events up to the array's end, and what follows it.

    `delivered`: events were read before `held`. ValueError where they were not and nothing here decodes either.
    """
    while True:
        events, cut = _head(held, document)
        if events is None:
            raise ValueError
        if not cut:
            break
        delivered = True
        yield events
        held = held[cut:]
    if not held.strip(_BETWEEN):
        document.truncated = True
        return
    text = held.decode("utf-8", errors="replace").lstrip(_BETWEEN.decode())
    try:
        raw, end, mended = parsed("[" + text)
    except ValueError:
        document.truncated = True
        try:
            event, _, mended = parsed(text)  # whole, but neither it nor the array is closed after it
        except ValueError:
            if not delivered:
                raise
            return
        document.mended += mended
        yield converted([event])
        return
    document.mended += mended
    yield converted(raw)
    _around(b"{" + text[end - 1 :].lstrip(_BETWEEN.decode()).encode(), b"", document)


def _whole(path: Path, reader: Reader, delivered: bool) -> list[Event]:  # noqa: FBT001
    """The events of a document in one piece, where no place to cut it was found; TraceError where that fails too."""
    document = reader.document
    if delivered or document.bytes_all > _WHOLE_BYTES:
        raise TraceError(path, f"does not read as JSON somewhere before byte {document.bytes_read}; write it anew")
    text = reader.whole().decode("utf-8", errors="replace").removeprefix("\ufeff")
    try:
        root, document.mended = loaded(text)
    except ValueError as error:
        raise TraceError(path, f"is no trace: it does not read as JSON ({error})") from None
    document.truncated = False
    if isinstance(root, dict):
        document.facts |= {key: value for key, value in root.items() if key != "traceEvents"}
        root = root.get("traceEvents")
    if not isinstance(root, list):
        raise TraceError(
            path, "is no trace: there is no traceEvents array in it; export_chrome_trace of torch.profiler writes one"
        )
    return converted(root)


def _around(text: bytes, closing: bytes, document: Document) -> None:
    """Read the text before or after the events as an object of its own; what does not decode is left out."""
    *_, mended = mendings((text.strip().rstrip(b",") + closing).decode("utf-8", errors="replace"))
    try:
        facts, _, _ = parsed(mended.strip())
    except ValueError:
        return
    if isinstance(facts, dict):
        document.facts |= facts
