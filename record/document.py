"""JSON files of one value with a schema: written whole, read or refused in one line."""

from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from .atomic import write_atomically, write_over
from .errors import NO_SPACE, TraceError


class HasSchema(Protocol):
    """A value that names its schema, as `stepscope.run/1`."""

    schema: str


_Value = TypeVar("_Value", bound=HasSchema)


def indented(value: Any) -> bytes:
    """`value` as JSON for people. Bytes that are no UTF-8, as a path or a command's word may hold, become `?`."""
    try:
        text = msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = msgspec.json.encode(_readable(msgspec.to_builtins(value)))
    return msgspec.json.format(text, indent=2)


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_readable(name): _readable(item) for name, item in value.items()}
    return [_readable(item) for item in value] if isinstance(value, list) else value


def write_document(path: Path, value: HasSchema) -> None:
    """Write `value` so that a reader sees the old text or the new one, never half of one.

    On a full disk there is no room for both: the new one is then written over the old one.
    """
    data = indented(value) + b"\n"
    try:
        write_atomically(path, data)
    except OSError as error:
        if error.errno not in NO_SPACE or not path.exists():
            raise
        write_over(path, data)


def read_document(path: Path, kind: type[_Value], schema: str, *, what: str, where: str) -> _Value:
    """Read a value of `kind`; TraceError where it is missing, cut, or of another schema.

    `what` it is and `where` it belongs stand in the messages: `manifest`, `a run folder`.
    """
    try:
        value = msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        raise TraceError(path, f"no {what} here; {where} holds a {path.name}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(path, f"is not a stepscope {what} ({error})") from None
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror}") from None
    if value.schema != schema:
        raise TraceError(path, f"is of schema {value.schema}, and this program reads {schema}; update stepscope")
    return value
