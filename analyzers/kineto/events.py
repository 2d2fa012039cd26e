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
_COUNTER = re.compile(rb'"ph"\s*:\s*"C"')
OWN = "stepscope"
"""The argument in which a trace that we have written carries what Kineto has no place for."""
_EXACT_US = 1 << 43
"""Up to here a double tells neighbouring nanoseconds apart."""


class Args(msgspec.Struct, gc=False):
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
    collective: Any = msgspec.field(default=None, name="Collective name")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_size: Any = msgspec.field(default=None, name="Group size")
    element: Any = msgspec.field(default=None, name="dtype")
    in_elements: Any = msgspec.field(default=None, name="In msg nelems")
    out_elements: Any = msgspec.field(default=None, name="Out msg nelems")
    own: Any = msgspec.field(default=None, name=OWN)
    series: dict[str, Any] | None = msgspec.field(default=None, name="«series»")
    """All arguments, of counter events only; no trace has a key of this name."""


class Event(msgspec.Struct, gc=False):
    """One event as it is written. Times are in µs, as a number or as text."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    args: Any = None


class _TypedEvent(Event, gc=False):
    ph: str | None = None
    cat: str | None = None
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    args: Args | None = None


class _Start(msgspec.Struct, gc=False):
    ts: msgspec.Raw = msgspec.Raw(b"null")


class _Counted(msgspec.Struct):
    ph: Any = None
    args: Any = None


def decoded(block: bytes) -> tuple[list[Event], bool] | None:
    """The events of a text of whole events, and whether it had to be mended; None where it does not decode."""
    text = b"[" + block.strip(b" \t\r\n,") + b"]"
    try:
        return _typed(text), False
    except (msgspec.DecodeError, UnicodeDecodeError):  # no JSON, or JSON with other types than usual
        pass
    try:
        return converted(json.loads(text, parse_float=_number)), False
    except ValueError:
        pass
    try:
        return converted(loaded(text.decode("utf-8", errors="replace"))[0]), True
    except ValueError:
        return None


_DECODER = msgspec.json.Decoder(list[_TypedEvent])
_START_DECODER = msgspec.json.Decoder(list[_Start])
_COUNTER_DECODER = msgspec.json.Decoder(list[_Counted])


def _typed(text: bytes) -> list[Event]:
    events: list[Event] = list(_DECODER.decode(text))
    if any(type(event.ts) is float and event.ts > _EXACT_US for event in events):
        for event, start in zip(events, _START_DECODER.decode(text), strict=True):
            if type(event.ts) is float:
                event.ts = bytes(start.ts).decode()
    if _COUNTER.search(text):
        for event, counted in zip(events, _COUNTER_DECODER.decode(text), strict=True):
            if event.ph == "C" and isinstance(counted.args, dict):
                event.args = Args(series=counted.args)
    return events


def loaded(text: str) -> tuple[Any, bool]:
    """The JSON value of a text that may need mending, and whether commas had to go; ValueError beyond that."""
    *tries, last = mendings(text)
    for attempt in tries:
        try:
            return json.loads(attempt, strict=False, parse_float=_number), False
        except ValueError:
            continue
    return json.loads(last, strict=False, parse_float=_number), True


def parsed(text: str) -> tuple[Any, int, bool]:
    """The JSON value that `text` begins with, where it ends, and whether it was mended; ValueError beyond that."""
    if "\ufffd" not in text:
        try:
            return *json.JSONDecoder(parse_float=_number).raw_decode(text), False
        except ValueError:
            pass
    mended = next(mendings(text))
    value, end = json.JSONDecoder(strict=False, parse_float=_number).raw_decode(mended)
    return value, end - (len(mended) - len(text)), True


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
        **{name: item.get(name) for name in ("ph", "cat", "name", "ts", "dur", "pid", "tid")},
        args=msgspec.convert(args, Args) if isinstance(args, dict) else None,
    )
    if event.ph == "C" and event.args:
        event.args.series = args
    return event


def _number(text: str) -> float | str:
    """A number of a document; as text where a double would lose its nanoseconds."""
    number = float(text)
    return text if abs(number) > _EXACT_US else number
