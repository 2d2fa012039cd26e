"""Allocated memory over time, by device: its peak, and in which phase what was there at the peak had been added.

torch.profiler writes each allocation and release with the allocator's total after it. Categories of tensors are not
in a trace; the phase is told by time, from the host's ranges (`phases`). The parts by phase sum to the change from
the first record to the peak.
"""

from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa

from .activities import NONE, Ints
from .host_columns import ints
from .intervals import Intervals, covered_before

POINTS = 200


class MemoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of a curve."""

    time_ns: int
    allocated_bytes: int


class MemoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """One device; −1 is the host."""

    device: int
    records: int
    first_bytes: int
    """Before the first record."""
    peak_bytes: int
    peak_time_ns: int
    last_bytes: int
    reserved_peak_bytes: int | None
    """What the allocator held of the device at most; None where it was not recorded."""
    by_phase: dict[str, int]
    """Bytes added less bytes released from the first record to the peak; `other` outside of all phases."""
    points: list[MemoryPoint]
    """The highest of each of `POINTS` stretches of records."""


def memory_curves(rows: pa.Table, phases: dict[str, Intervals]) -> list[MemoryCurve]:
    """By device; empty where memory was not recorded. `phases` is when the host was in which, disjoint."""
    devices = ints(rows, "device")
    return [_curve(rows.filter(pa.array(devices == device)), device, phases) for device in np.unique(devices).tolist()]


def _curve(rows: pa.Table, device: int, phases: dict[str, Intervals]) -> MemoryCurve:
    time, delta = ints(rows, "time"), ints(rows, "delta_bytes")
    order = np.argsort(time, kind="stable")
    time, delta = time[order], delta[order]
    told, reserved = (ints(rows, name)[order] for name in ("allocated_bytes", "reserved_bytes"))
    total = told if (told != NONE).all() else np.cumsum(delta)
    peak = int(np.argmax(total))
    first = int(total[0] - delta[0])
    return MemoryCurve(
        device=device,
        records=len(time),
        first_bytes=first,
        peak_bytes=int(total[peak]),
        peak_time_ns=int(time[peak]),
        last_bytes=int(total[-1]),
        reserved_peak_bytes=int(reserved.max()) if (reserved > 0).any() else None,
        by_phase=_by_phase(time[: peak + 1], total[: peak + 1], first, phases),
        points=[
            MemoryPoint(time_ns=int(time[at]), allocated_bytes=int(total[at]))
            for at in (start + int(np.argmax(total[start:end])) for start, end in _stretches(len(total)))
        ],
    )


def _by_phase(time: Ints, total: Ints, first: int, phases: dict[str, Intervals]) -> dict[str, int]:
    change = np.diff(np.concatenate(([first], total)))
    rest = np.ones(len(time), dtype=bool)
    found = {}
    for phase, mine in phases.items():
        inside = covered_before(mine, time + 1) > covered_before(mine, time)
        found[phase] = int(change[inside & rest].sum())
        rest &= ~inside
    return {phase: size for phase, size in (found | {"other": int(change[rest].sum())}).items() if size}


def _stretches(count: int) -> list[tuple[int, int]]:
    edges = np.unique(np.linspace(0, count, min(POINTS, count) + 1).astype(np.int64)).tolist()
    return list(pairwise(edges))
