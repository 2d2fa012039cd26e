"""Kineto's times, µs with a fraction, as whole int64 ns.

Numbers that a double holds to the nanosecond (below 2⁴³ µs) are taken apart before they are scaled, so that no digit
is lost; the reader hands on larger ones, Unix times with a fraction, as text, and these are scaled in decimal.
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

NO_TIME = int(np.iinfo(np.int64).min)
"""Stands for what is no number."""
BEYOND = 1 << 62
"""Stands, with its sign, for numbers that no clock shows: 2⁵³ µs, 285 years, and more."""
_CLOCK_US = 1 << 53


def nanoseconds(times_us: Sequence[Any]) -> npt.NDArray[np.int64]:
    """µs as numbers or text to whole ns, the half to the even one."""
    try:
        return _scaled(pa.array(times_us, pa.float64()).fill_null(np.nan).to_numpy())
    except (pa.ArrowInvalid, TypeError, OverflowError):  # text, or more than a double holds
        pass
    return np.array([_one(value) for value in times_us], dtype=np.int64)


def _scaled(exact: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    shown = np.abs(exact) < _CLOCK_US
    number = np.where(shown, exact, 0.0)
    whole = np.floor(number)
    found: npt.NDArray[np.int64] = whole.astype(np.int64) * 1000 + np.rint((number - whole) * 1000).astype(np.int64)
    found[~shown] = np.where(exact[~shown] > 0, BEYOND, -BEYOND)
    found[np.isnan(exact)] = NO_TIME
    return found


def _one(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return NO_TIME
    try:
        number = Decimal(value.strip() if isinstance(value, str) else value)
    except InvalidOperation:
        return NO_TIME
    if number.is_nan():
        return NO_TIME
    if abs(number) >= _CLOCK_US:
        return BEYOND if number > 0 else -BEYOND
    return int((number * 1000).to_integral_value())
