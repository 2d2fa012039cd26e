"""How much of the machine's CPUs other processes used while a run's timed steps ran, from its telemetry."""

from itertools import pairwise

from ..record.telemetry import HostSample
from .gpu_use import time_weighted
from .runs import Run

NOTABLE_PCT = 10.0
"""Share of all CPUs from which on step times may be disturbed."""


def other_load_pct(run: Run) -> float | None:
    """The busiest node's mean over the timed steps, in percent of all its CPUs; None where it is not measured."""
    means = []
    for samples in run.telemetry.values():
        host = [sample for sample in samples if isinstance(sample, HostSample)]
        spans = [
            (before.t_ns, after.t_ns, max(0.0, after.cpu_pct - after.job_cpu_pct))
            for before, after in pairwise(host)
            if after.cpu_pct is not None and after.job_cpu_pct is not None
        ]
        inside = [
            (max(since, step.start_ns), min(until, step.start_ns + step.duration_ns), load)
            for since, until, load in spans
            for step in run.timed
            if since < step.start_ns + step.duration_ns and step.start_ns < until
        ]
        if inside:
            means.append(time_weighted(inside, inside[0][0], max(until for _, until, _ in inside)))
    return max((mean for mean in means if mean is not None), default=None)
