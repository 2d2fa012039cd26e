"""What a run's trace shows the device, or the CPU, doing."""

from typing import Literal

import msgspec

from ..record.errors import UserError
from .breakdown import breakdown
from .kineto.find import find_traces
from .kineto.read import read_trace
from .run_phases import Part
from .runs import Run


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0's last trace shows, per recorded step, largest first."""

    run: str
    group: str
    """The name of its row in the comparison."""
    what: Literal["kernels", "operators"]
    steps: int
    parts: list[Part]


def traced(run: Run, group: str) -> Traced | None:
    """None where the run has no trace that can be read."""
    try:
        path = find_traces([run.path])[0]
        rank = breakdown(read_trace(path)).ranks[0]
    except UserError:
        return None
    steps = max(1, sum(row.count for row in rank.ranges if row.kind == "step"))
    if rank.devices:
        rows = [(row.kind, row.total_ns) for row in rank.devices[0].kinds]
    else:
        rows = [(row.name, row.self_ns) for row in rank.operators]
    return Traced(
        run=run.name,
        group=group,
        what="kernels" if rank.devices else "operators",
        steps=steps,
        parts=[Part(name=name, time_ns=total / steps) for name, total in rows],
    )
