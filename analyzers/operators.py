"""CPU operators by self time: an operator's time less that of the operators it called on the same thread.

With device work beside them also what they launched: alone, with the operators they called, and in their backward.
"""

import msgspec
import numpy as np
import pyarrow as pa

from .activities import NONE, Ints
from .host_columns import Numbers, ranges_in
from .nesting import OPERATOR, Nest, Ranges, nearest, nest
from .projection import Projection

SHAPES = "\t"
"""Between an operator's name and its shapes, where they are told apart."""


class OperatorTime(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one operator, or of one operator and input shapes."""

    name: str
    shapes: str | None = None
    """Input shapes as JSON, where asked for and recorded."""
    count: int
    total_ns: int
    """With what it called; an operator that calls itself counts twice."""
    self_ns: int
    device_total_ns: int | None = None
    """What it and the operators in it launched, summed; None where no device work or no launch was recorded."""
    device_self_ns: int | None = None
    backward_ns: int | None = None
    """Device time of the backward functions of it and of the operators in it; None where nothing links them."""


def operator_times(ops: pa.Table) -> list[OperatorTime]:
    """Operators of one rank, largest self time first, then by name. `ops` has the columns of `timeline.OPS`."""
    numbers = Numbers(*(ops[side].to_numpy() for side in ("process", "thread")))
    ranges = ranges_in([ops], [ops["name"].cast(pa.string())], [[OPERATOR] * len(ops)], numbers)
    return operators_in(ranges, nest(ranges), None)


def operators_in(ranges: Ranges, nested: Nest, projection: Projection | None) -> list[OperatorTime]:
    """The operators among ranges, largest self time first, then by name; `projection` is the device time of ranges."""
    is_operator = ranges.has_style(OPERATOR)
    rows = np.flatnonzero(is_operator)
    own = _self_times(ranges, nested, rows, nearest(nested.parent, is_operator))
    size = len(ranges.names)
    codes = ranges.name[rows]
    counts = np.bincount(codes, minlength=size)
    totals = np.bincount(codes, weights=(ranges.end - ranges.start)[rows], minlength=size)
    alone = np.bincount(codes, weights=own, minlength=size)
    device = {row.name: row for row in projection.ranges if row.style == OPERATOR} if projection else {}
    found = []
    for code in np.flatnonzero(counts).tolist():
        label = ranges.names[code]
        name, _, shapes = label.partition(SHAPES)
        launched = device.get(label)
        found.append(
            OperatorTime(
                name=name,
                shapes=shapes or None,
                count=int(counts[code]),
                total_ns=int(totals[code]),
                self_ns=int(alone[code]),
                device_total_ns=launched.inclusive_ns if launched else None,
                device_self_ns=launched.exclusive_ns if launched else None,
                backward_ns=launched.backward_ns if launched else None,
            )
        )
    return sorted(found, key=lambda row: (-row.self_ns, row.name, row.shapes or ""))


def _self_times(ranges: Ranges, nested: Nest, rows: Ints, innermost: Ints) -> Ints:
    """Of `rows`, each one's time without the operators directly in it, as far as they lie inside."""
    parent = nested.parent[rows]
    caller = np.where(parent >= 0, innermost[parent], NONE)
    found = ranges.end - ranges.start
    called, by = rows[caller >= 0], caller[caller >= 0]
    np.subtract.at(found, by, np.minimum(ranges.end[called], ranges.end[by]) - ranges.start[called])
    return found[rows]
