"""What a cast to FP8 does to a tensor, as sums that add up over chunks and ranks, and the statistics they give."""

import math
from typing import Any, NamedTuple

import torch

CHUNK = 2**20
"""Values looked at together: bounds the memory that counting takes to some tens of MiB."""

_SUMS = 8
"""values, saturated, underflowed, Σ e², Σ y, Σ y², Σ y³, Σ y⁴ with y = x / amax and e = (x − Q(x)) / amax."""
_EXTREMES = 3
"""amax, largest scale, −smallest scale."""
_MEASURED = ("amax", "scale_min", "scale_max", "saturated_share", "underflowed_share", "sqnr_db", "kurtosis")
_OF_ZEROS = ("scale_min", "scale_max", "sqnr_db", "kurtosis")
"""What a tensor of zeros has none of."""


class Rounded(NamedTuple):
    """A tensor and its cast to FP8, both of shape (rows, columns)."""

    exact: torch.Tensor
    data: torch.Tensor
    """In a float8 dtype: exact · scale, clamped and rounded."""
    scale: torch.Tensor
    """float32, broadcastable to (rows, columns)."""
    granularity: str


class Tally(NamedTuple):
    """Counts of one tensor or a part of it, in float64 on its device."""

    sums: torch.Tensor
    """Shape (8,): parts of a tensor that were counted with the same amax are added."""
    extremes: torch.Tensor
    """Shape (3,): of parts, the larger counts."""


class Counted(NamedTuple):
    """A tally and the cast it is of."""

    tally: Tally
    dtype: str
    granularity: str


def amax_of(exact: torch.Tensor) -> torch.Tensor:
    """The largest |x|, a float32 scalar; 0 where there is none, no number where one x is none."""
    return exact.abs().amax().float() if exact.numel() else torch.zeros((), device=exact.device)


def tally(rounded: Rounded, amax: torch.Tensor | None = None) -> Tally:
    """Count a tensor, or a part of a tensor whose largest |x| is `amax`. Waits for no device."""
    exact, data, scale, _ = rounded
    amax = amax_of(exact) if amax is None else amax
    unit = torch.where(amax > 0, amax, 1.0)
    largest = torch.finfo(data.dtype).max
    sums = torch.zeros(_SUMS, dtype=torch.float64, device=exact.device)
    extremes = torch.full((_EXTREMES,), -math.inf, dtype=torch.float64, device=exact.device)
    extremes[0] = amax
    scale = scale.expand(exact.shape)
    rows = max(1, CHUNK // max(1, exact.shape[1]))
    for first in range(0, exact.shape[0] if exact.numel() else 0, rows):
        part = slice(first, first + rows)
        x, s, q = exact[part].float(), scale[part], data[part].float()
        there = x != 0
        y, e = x / unit, (x - q / s) / unit
        y2 = y * y
        terms = ((x * s).abs() > largest, there & (q == 0), e * e, y, y2, y2 * y, y2 * y2)
        sums[0] += x.numel()
        sums[1:] += torch.stack([term.sum(dtype=torch.float64) for term in terms])
        scales = torch.stack([torch.where(there, sign * s, -math.inf).amax() for sign in (1, -1)])
        extremes[1:] = torch.maximum(extremes[1:], scales.double())
    return Tally(sums, extremes)


def statistics_of(sums: list[float], extremes: list[float]) -> dict[str, Any]:
    """Fields of `OperandStatistics` from a whole tensor's tally."""
    values, saturated, underflowed, noise, *powers = sums
    amax, scale_max, scale_min = extremes[0], extremes[1], -extremes[2]
    if not values or not math.isfinite(amax):
        why = "some values are not finite" if values else "there are no values"
        return {"values": round(values), "missing": dict.fromkeys(_MEASURED, why)}
    found: dict[str, Any] = {
        "values": round(values),
        "amax": amax,
        "saturated_share": saturated / values,
        "underflowed_share": underflowed / values,
    }
    if amax == 0:
        return found | {"missing": dict.fromkeys(_OF_ZEROS, "every value is zero")}
    missing = {}
    found |= {"scale_min": scale_min, "scale_max": scale_max}
    if noise:
        found["sqnr_db"] = 10 * math.log10(powers[1] / noise)
    else:
        missing["sqnr_db"] = "the cast changes no value"
    kurtosis = _kurtosis(*(power / values for power in powers))
    if kurtosis is None:
        missing["kurtosis"] = "all values are the same"
    else:
        found["kurtosis"] = kurtosis
    return found | {"missing": missing}


def _kurtosis(mean: float, second: float, third: float, fourth: float) -> float | None:
    """m4 / m2² from the means of y, y², y³ and y⁴; None where y does not vary beyond rounding."""
    m2 = second - mean**2
    if m2 <= 1e-12 * second:
        return None
    return (fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4) / m2**2
