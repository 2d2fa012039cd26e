"""Events of a Chrome trace, decoded from JSON text that is seldom wrong and sometimes is.

Well-formed text goes through typed decoding; what is not quite JSON (bad UTF-8, control characters, Windows paths,
trailing commas) is mended first.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

_BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])')
_TRAILING_COMMA = re.compile(r",\s*([\]}])")
OWN = "stepscope"
"""The argument in which a trace that we have written carries what Kineto has no place for."""
_EXACT_US = 1 << 43
"""Up to here a double tells neighbouring nanoseconds apart."""


Id = int | str | None
"""A number, of any size, or the text that stands in its place."""
_NOTHING = msgspec.Raw(b"null")


class Args(msgspec.Struct, gc=False):
    """The arguments that we read of an event, in the order in which Kineto writes them; what is not there is None."""

    external_id: Id = msgspec.field(default=None, name="External id")
    device: Id = None
    stream: Id = None
    correlation: Id = None
    bytes: Id = None
    sequence: Id = msgspec.field(default=None, name="Sequence number")
    dtypes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    shapes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    old_external_id: Id = msgspec.field(default=None, name="external id")
    old_shapes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input dims")
    graph_id: Id = msgspec.field(default=None, name="graph id")
    collective: Id = msgspec.field(default=None, name="Collective name")
    in_elements: Id = msgspec.field(default=None, name="In msg nelems")
    out_elements: Id = msgspec.field(default=None, name="Out msg nelems")
    group_size: Id = msgspec.field(default=None, name="Group size")
    element: Id = msgspec.field(default=None, name="dtype")
    group: Id = msgspec.field(default=None, name="Process Group Name")
    memory_bytes: Id = msgspec.field(default=None, name="Bytes")
    memory_device: Id = msgspec.field(default=None, name="Device Id")
    memory_device_type: Id = msgspec.field(default=None, name="Device Type")
    memory_allocated: Id = msgspec.field(default=None, name="Total Allocated")
    memory_reserved: Id = msgspec.field(default=None, name="Total Reserved")
    own: Any = msgspec.field(default=None, name=OWN)
    series: dict[str, Any] | None = msgspec.field(default=None, name="«series»")
    """All arguments, of counter events only; no trace has a key of this name."""


NO_ARGS = Args()


class Event(msgspec.Struct, gc=False):
    """One event as it is written. Times are in µs, as a number or as text."""

    ph: str | None = None
    cat: str | None = None
    name: str = "None"
    pid: Id = None
    tid: Id = None
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    args: Args | None = None


class _Start(msgspec.Struct, gc=False):
    ts: msgspec.Raw = msgspec.Raw(b"null")


class _Counted(msgspec.Struct):
    ph: Any = None
    args: Any = None


_DECODER = msgspec.json.Decoder(list[Event])
_START_DECODER = msgspec.json.Decoder(list[_Start])
_COUNTER_DECODER = msgspec.json.Decoder(list[_Counted])


def typed(block: bytes) -> list[Event] | None:
    """The events of a text of whole events; None where it is no JSON, or JSON with other types than usual."""
    text = _array(block)
    try:
        events = _DECODER.decode(text)
        if any(type(event.ts) is float and event.ts > _EXACT_US for event in events):
            for event, start in zip(events, _START_DECODER.decode(text), strict=True):
                if type(event.ts) is float:
                    event.ts = bytes(start.ts).decode()
        if any(event.ph == "C" for event in events):
            for event, counted in zip(events, _COUNTER_DECODER.decode(text), strict=True):
                if event.ph == "C" and isinstance(counted.args, dict):
                    event.args = Args(series=counted.args)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return events


def _array(block: bytes) -> bytes:
    return b"[" + block.strip(b" \t\r\n,") + b"]"


def decoded(block: bytes) -> tuple[list[Event], bool] | None:
    """The events of a text of whole events, and whether it had to be mended; None where it does not decode."""
    events = typed(block)
    if events is not None:
        return events, False
    text = _array(block)
    try:
        return converted(_encodable(json.loads(text, parse_float=_number))), False
    except ValueError:
        pass
    try:
        return converted(loaded(text.decode("utf-8", errors="replace"))[0]), True
    except ValueError:
        return None


def loaded(text: str) -> tuple[Any, bool]:
    """The JSON value of a text that may need mending, and whether commas had to go; ValueError beyond that."""
    *tries, last = mendings(text)
    for attempt in tries:
        try:
            return _encodable(json.loads(attempt, strict=False, parse_float=_number)), False
        except ValueError:
            continue
    return _encodable(json.loads(last, strict=False, parse_float=_number)), True


def parsed(text: str) -> tuple[Any, int, bool]:
    """The JSON value that `text` begins with, where it ends, and whether it was mended; ValueError beyond that."""
    if "\ufffd" not in text:
        try:
            value, end = json.JSONDecoder(parse_float=_number).raw_decode(text)
            return _encodable(value), end, False
        except ValueError:
            pass
    mended = next(mendings(text))
    value, end = json.JSONDecoder(strict=False, parse_float=_number).raw_decode(mended)
    return _encodable(value), end - (len(mended) - len(text)), True


def _encodable(value: Any) -> Any:
    """A JSON value with halves of characters, which escapes can give and UTF-8 cannot hold, as question marks."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return value


def mendings(text: str) -> Iterator[str]:
    """The text with wrong escapes mended, then also with trailing commas taken away."""
    mended = _BAD_ESCAPE.sub(r"\\\\", text)
    yield mended
    yield _TRAILING_COMMA.sub(r"\1", mended)


def converted(raw: Any) -> list[Event]:
    """Loosely typed events of plain Python values; what is no object is left out."""
    return [_event(item) for item in raw if isinstance(item, dict)]


def _event(item: dict[str, Any]) -> Event:
    args = item.get("args")
    event = Event(
        ph=_text(item.get("ph")),
        cat=_text(item.get("cat")),
        name=str(item.get("name")),
        pid=_id(item.get("pid")),
        tid=_id(item.get("tid")),
        ts=_time(item.get("ts")),
        dur=_time(item.get("dur")),
        args=_args(args) if isinstance(args, dict) else None,
    )
    if event.ph == "C" and event.args:
        event.args.series = args
    return event


def _args(args: dict[str, Any]) -> Args:
    found = Args(own=args.get(OWN))
    for field in _ID_FIELDS:
        setattr(found, field.name, _id(args.get(field.encode_name)))
    for field in _RAW_FIELDS:
        setattr(found, field.name, msgspec.Raw(msgspec.json.encode(args.get(field.encode_name))))
    return found


_ID_FIELDS = [field for field in msgspec.structs.fields(Args) if field.type == Id]
_RAW_FIELDS = [field for field in msgspec.structs.fields(Args) if field.type is msgspec.Raw]


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _id(value: Any) -> Id:
    if value is None or type(value) is int:
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else str(value)


def _time(value: Any) -> int | float | str | None:
    return value if isinstance(value, int | float | str) and not isinstance(value, bool) else None


def _number(text: str) -> float | str:
    """A number of a document; as text where a double would lose its nanoseconds."""
    number = float(text)
    return text if abs(number) > _EXACT_US else number
