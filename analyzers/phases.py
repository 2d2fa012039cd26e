"""Forward, backward and optimizer: on the host by their ranges, on the device by what launched each piece of work.

A piece of work is of one phase: the optimizer's where it was launched in a range of the optimizer; else backward, where
in a function of autograd's backward, or in a range called backward (another thread's work by time); else forward, where
in a range called forward, in a module's call, or in an operator that made a backward function; else of a range that
waits for data; else other. Recomputation in backward is backward's. Host times are unions of the same ranges over all
threads, each without those before it.
"""

from dataclasses import dataclass

import msgspec
import numpy as np

from .activities import NONE, Ints, Mask
from .host import DATA, Host
from .intervals import EMPTY, Intervals, length, together, union, without
from .nesting import MODULE, Nest, Ranges, within
from .projection import forward_of, owners

OPTIMIZER = r"^Optimizer\.step#|(?i:^(?:## ?)?optim(?:izer)?(?:[ _]?step)?(?: ?##)?$)"
BACKWARD = r"(?i:^(?:## ?)?backward(?:[ _]?pass)?(?: ?##)?$)|^FSDP::(?:pre_backward|backward_prefetch|post_backward)"
FORWARD = r"(?i:^(?:## ?)?forward(?:[ _]?pass)?(?: ?##)?$)|\.forward$"
PHASES = ("forward", "backward", "optimizer", "data", "other")


class PhaseTime(msgspec.Struct, frozen=True, kw_only=True):
    """One phase over a whole trace."""

    phase: str
    host_ns: int | None
    """None for what belongs to no phase."""
    device_ns: int | None
    """Work launched in it, summed; None where no device work, or no launch, was recorded."""


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Which ranges, and when on the host, are of which phase."""

    rows: dict[str, Mask]
    """Phase → ranges of it, with all within them; a range may be of several, and the first of `_ORDER` counts."""
    host: dict[str, Intervals]
    """Phase → when the host was in it; disjoint."""


_ORDER = ("optimizer", "backward", "forward", "data")


def phases_of(ranges: Ranges, nested: Nest) -> Phases:
    """The phases that ranges tell of."""
    backward = ranges.is_named(BACKWARD) | ranges.is_backward
    forward = ranges.is_named(FORWARD) | ranges.has_style(MODULE)
    made = list(forward_of(ranges, nested).values())
    forward[made] = True
    roots = {
        "optimizer": ranges.is_named(OPTIMIZER),
        "backward": backward,
        "forward": forward,
        "data": ranges.is_named(DATA),
    }
    host: dict[str, Intervals] = {}
    before = EMPTY
    for phase in _ORDER:
        mine = union(ranges.start[roots[phase]], ranges.end[roots[phase]])
        host[phase] = without(mine, before)
        before = together(before, mine)
    return Phases(rows={phase: within(nested.parent, mask) for phase, mask in roots.items()}, host=host)


def phase_codes(host: Host, phases: Phases) -> Ints:
    """For each activity the place of its phase in `PHASES`; `NONE` where its launch was not recorded."""
    assert host.ranges is not None
    assert host.nested is not None
    owned = owners(host.asked, host.ranges.push_pop, host.nested)
    found = np.full(len(host.work), PHASES.index("other"), dtype=np.int64)
    for phase in reversed(_ORDER):
        mask = phases.rows[phase]
        for rows in (owned.direct, owned.by_time):
            if len(mask):
                found[(rows >= 0) & mask[rows]] = PHASES.index(phase)
    found[host.asked.thread == NONE] = NONE
    return found


def phase_times(host: Host, phases: Phases, *, on_devices: bool) -> list[PhaseTime]:
    """All phases, in the order of `PHASES`; `on_devices`: whether the work is that of devices."""
    told = on_devices and (host.calls is not None or host.begun is not None)
    codes = phase_codes(host, phases) if told else np.empty(0, dtype=np.int64)
    weights = host.work.duration
    return [
        PhaseTime(
            phase=phase,
            host_ns=length(phases.host[phase]) if phase in phases.host else None,
            device_ns=int(weights[codes == number].sum()) if told else None,
        )
        for number, phase in enumerate(PHASES)
    ]
