"""The events of a Chrome trace in blocks, in bounded memory, and the document around them.

The array of events is cut before an event's `"ph"`, which Kineto writes first, and each block decoded by itself. Where
a block does not decode it is mended (bad UTF-8, control characters, Windows paths); where cutting so makes no sense,
as in traces that order keys otherwise, the document is decoded whole.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ...record.errors import TraceError

BLOCK = 8 << 20

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])')
_TRAILING_COMMA = re.compile(r",\s*([\]}])")


class Args(msgspec.Struct):
    """The arguments that we read of an event; what is not there is None."""

    device: Any = None
    stream: Any = None
    correlation: Any = None
    external_id: Any = msgspec.field(default=None, name="External id")
    old_external_id: Any = msgspec.field(default=None, name="external id")
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    shapes: Any = msgspec.field(default=None, name="Input Dims")
    old_shapes: Any = msgspec.field(default=None, name="Input dims")
    dtypes: Any = msgspec.field(default=None, name="Input type")
    bytes: Any = None
    memory_bytes: Any = msgspec.field(default=None, name="Bytes")
    memory_device: Any = msgspec.field(default=None, name="Device Id")
    memory_device_type: Any = msgspec.field(default=None, name="Device Type")
    memory_allocated: Any = msgspec.field(default=None, name="Total Allocated")
    memory_reserved: Any = msgspec.field(default=None, name="Total Reserved")
    graph_id: Any = msgspec.field(default=None, name="graph id")


class Event(msgspec.Struct):
    """One event as it is written. Times are in µs, as a number or as text."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    args: Any = None


class _TypedEvent(Event):
    ph: str | None = None
    cat: str | None = None
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    args: Args | None = None


@dataclass
class Document:
    """What stands around the events; complete once they have been read to the end."""

    facts: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False
    """Whether the file ends within the events."""
    mended: int = 0
    """Blocks that had to be mended before they decoded."""


def blocks(path: Path, document: Document) -> Iterator[list[Event]]:
    """The events of `path` in file order, and the rest of the document into `document`. TraceError for other files."""
    try:
        with _opened(path) as file:
            yield from _blocks(path, file, document)
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(path, f"is a damaged gzip file ({error})") from None
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from None


def _opened(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if packed else path.open("rb")  # type: ignore[return-value]


def _read(file: BinaryIO, document: Document) -> bytes:
    """The next block; a gzip stream that stops short gives what it holds."""
    pieces: list[bytes] = []
    size = 0
    try:
        while size < BLOCK and (piece := file.read1(min(BLOCK, 1 << 18))):  # type: ignore[attr-defined]
            pieces.append(piece)
            size += len(piece)
    except EOFError:
        document.truncated = True
    return b"".join(pieces)


def _blocks(path: Path, file: BinaryIO, document: Document) -> Iterator[list[Event]]:
    held = _read(file, document).removeprefix(b"\xef\xbb\xbf")
    if not held.strip():
        raise TraceError(path, "is empty; a trace is written when the profiler's window has ended")
    while not (found := _start(held)) and (more := _read(file, document)):
        held += more
        if len(held) > 64 << 20:
            break
    if found is None:
        raise TraceError(path, "is no trace: there is no traceEvents array in it")
    _around(held[: found[0]], b"}", document)
    held = held[found[1] :]
    delivered = False
    while more := _read(file, document):
        held += more
        cut = _cut(held)
        if not cut:
            continue
        events = _decoded(held[:cut], document)
        if events is None:
            if delivered:
                raise TraceError(path, "has an event that does not read as JSON, and cannot be mended")
            yield _whole(path, document)
            return
        delivered = True
        yield events
        held = held[cut:]
    try:
        yield from _last(path, held, document)
    except ValueError:
        if delivered:
            raise TraceError(path, "has an event that does not read as JSON, and cannot be mended") from None
        yield _whole(path, document)


def _start(held: bytes) -> tuple[int, int] | None:
    """Where the text around the events ends and where the first event begins."""
    if held.lstrip()[:1] == b"[":
        return 0, held.index(b"[") + 1
    match = _ARRAY.search(held)
    return match.span() if match else None


def _cut(held: bytes) -> int:
    """A place between two events, as near to the end as can be told; 0 for none."""
    phase = held.rfind(b'"ph"')
    return max(0, held.rfind(b"{", 0, phase)) if phase > 0 else 0


_DECODER = msgspec.json.Decoder(list[_TypedEvent])


def _decoded(block: bytes, document: Document) -> list[Event] | None:
    text = block.strip().removesuffix(b",")
    try:
        return list(_DECODER.decode(b"[" + text + b"]"))
    except msgspec.ValidationError:  # JSON, but with other types than usual
        return _converted(json.loads(b"[" + text + b"]"))
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        raw = json.loads("[" + _mended(text) + "]", strict=False)
    except ValueError:
        return None
    document.mended += 1
    return _converted(raw)


def _last(path: Path, held: bytes, document: Document) -> Iterator[list[Event]]:
    """The events up to the array's end, and what follows it; ValueError where that does not decode."""
    cut = _cut(held)
    head = _decoded(held[:cut], document) if cut else []
    if head is None:
        raise ValueError
    if head:
        yield head
    rest = held[cut:]
    if not rest.strip().strip(b","):
        document.truncated = True
        return
    text = rest.decode("utf-8", errors="replace").lstrip(" \t\r\n,")
    try:
        raw, end = _parsed("[" + text, document)
    except ValueError:
        document.truncated = True
        try:
            event, _ = _parsed(text, document)  # whole, but neither it nor the array is closed after it
        except ValueError:
            if not head:
                raise
            return
        yield _converted([event])
        return
    yield _converted(raw)
    _around(b"{" + text[end - 1 :].lstrip(" \t\r\n,").encode(), b"", document)


def _parsed(text: str, document: Document) -> tuple[Any, int]:
    """The JSON value that `text` begins with, and where it ends; mended if need be, ValueError beyond that."""
    if "\ufffd" not in text:
        try:
            return json.JSONDecoder().raw_decode(text)
        except ValueError:
            pass
    mended = _BAD_ESCAPE.sub(r"\\\\", text)
    value, end = json.JSONDecoder(strict=False).raw_decode(mended)
    document.mended += 1
    return value, end - (len(mended) - len(text))


def _whole(path: Path, document: Document) -> list[Event]:
    with _opened(path) as file:
        text = file.read().decode("utf-8", errors="replace").removeprefix("\ufeff")
    text = _BAD_ESCAPE.sub(r"\\\\", text)
    try:
        root = json.loads(text, strict=False)
        document.mended = 0
    except ValueError:
        try:
            root = json.loads(_TRAILING_COMMA.sub(r"\1", text), strict=False)
        except ValueError as error:
            raise TraceError(path, f"is no trace: it does not read as JSON ({error})") from None
        document.mended = 1
    document.truncated = False
    if isinstance(root, dict):
        document.facts |= {key: value for key, value in root.items() if key != "traceEvents"}
        root = root.get("traceEvents")
    if not isinstance(root, list):
        raise TraceError(path, "is no trace: there is no traceEvents array in it")
    return _converted(root)


def _around(text: bytes, closing: bytes, document: Document) -> None:
    """Read the text before or after the events as an object of its own; what does not decode is left out."""
    mended = _TRAILING_COMMA.sub(r"\1", _mended(text.strip().rstrip(b",") + closing)).strip()
    try:
        facts, _ = json.JSONDecoder(strict=False).raw_decode(mended)
    except ValueError:
        return
    if isinstance(facts, dict):
        document.facts |= facts


def _mended(text: bytes) -> str:
    return _BAD_ESCAPE.sub(r"\\\\", text.decode("utf-8", errors="replace"))


def _converted(raw: Any) -> list[Event]:
    """Loosely typed events of plain Python values; what is no object is left out."""
    return [_event(item) for item in raw if isinstance(item, dict)]


def _event(item: dict[str, Any]) -> Event:
    args = item.get("args")
    return Event(
        **{name: item.get(name) for name in ("ph", "cat", "name", "ts", "dur", "pid", "tid")},
        args=msgspec.convert(args, Args) if isinstance(args, dict) else None,
    )
