"""The phases of a step: data, forward, backward, optimizer."""

import msgspec
import numpy as np

from .runs import Run

PHASES = ("data", "forward", "backward", "optimizer")


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A named share of a step."""

    name: str
    time_ns: float


def phases(runs: list[Run]) -> list[Part]:
    """The median time of each phase over the timed steps of runs; phases that no step has are left out."""
    found = []
    for name in PHASES:
        values = [getattr(step, f"{name}_ns") for run in runs for step in run.timed]
        known = [value for value in values if value is not None]
        if known:
            found.append(Part(name=name, time_ns=float(np.median(known))))
    return found
