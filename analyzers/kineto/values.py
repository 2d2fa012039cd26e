"""Values of events as Arrow columns: whole columns at once where they hold what Kineto writes, else one by one."""

import math
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .events import Id, loaded

_ODD = (pa.ArrowInvalid, TypeError, OverflowError)
_MANY_TEXTS = 100_000
_LONGEST_DIGITS = 24


def integer(value: Any) -> int | None:
    """An int64, from a number or digits; None for anything else."""
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 63 else None
    if isinstance(value, str) and len(value) < _LONGEST_DIGITS and value.strip().lstrip("-").isdecimal():
        return integer(int(value))
    if isinstance(value, float) and value.is_integer():
        return integer(int(value))
    return None


def finite(value: Any) -> float | None:
    """A number as a double; None for what is none, or fits none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def integers(values: list[Id]) -> pa.Array:
    """int64; null for what is no such number."""
    try:
        return pa.array(values, pa.int64())
    except _ODD:
        return pa.array([integer(value) for value in values], pa.int64())


def links(values: list[Id]) -> pa.Array:
    """Ids by which events are joined, as int64. An unsigned one beyond int64 becomes the negative one of its bits."""
    try:
        return pa.array(values, pa.int64())
    except _ODD:
        return pa.array([_link(value) for value in values], pa.int64())


def _link(value: Id) -> int | None:
    if isinstance(value, str) and len(value) < _LONGEST_DIGITS and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, int) and 1 << 63 <= value < 1 << 64:
        return value - (1 << 64)
    return integer(value)


def identities(values: list[Id]) -> npt.NDArray[np.int64]:
    """Processes, threads or streams as numbers: themselves, or for names a checksum that stays the same."""
    try:
        found: npt.NDArray[np.int64] = pa.array(values, pa.int64()).to_numpy()
        return found
    except _ODD:
        return np.array([_identity(value) for value in values], dtype=np.int64)


def _identity(value: Id) -> int:
    number = integer(value)
    return zlib.crc32(str(value).encode()) if number is None else number


def devices(values: list[Id], otherwise: list[Id]) -> npt.NDArray[np.int32]:
    """The numbers of devices: what is said, else the process of the event, else 0."""
    found = _numbers(values)
    if len(found) and not _small(found).all():
        found = np.where(_small(found), found, _numbers(otherwise))
        found = np.where(_small(found), found, 0)
    return found.astype(np.int32)


def _numbers(values: list[Id]) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = integers(values).fill_null(-1).to_numpy()
    return found


def _small(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return (values >= 0) & (values < 1 << 31)


def names(values: Iterable[Any]) -> pa.Array:
    """Texts, dictionary-encoded; null for None."""
    return pa.array(list(values), pa.string()).dictionary_encode()


_texts: dict[bytes, str | None] = {}


def json_texts(values: Sequence[msgspec.Raw]) -> list[str | None]:
    """JSON values as their shortest text; None for null. What has been seen is remembered, since shapes come again."""
    if len(_texts) > _MANY_TEXTS:
        _texts.clear()
    seen = [bytes(value) for value in values]
    for new in set(seen) - _texts.keys():
        value = _value(new)
        _texts[new] = None if value is None else msgspec.json.encode(value).decode()
    return [_texts[one] for one in seen]


def _value(text: bytes) -> Any:
    """The value of a JSON text; None where it cannot be read."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        pass
    try:
        return loaded(text.decode(errors="replace"))[0]
    except ValueError:
        return None
