"""A run without GPUs as work on a device: its operators in place of kernels.

The processor is device −1. A thread computes while it is in an operator, unless that communicates: then it does that.
gloo's worker threads communicate; operators of c10d, which start collectives and wait for them, are neither. So the
processor's span has the same parts as a GPU's, and steps, ranks and FSDP's layers are asked the same questions.
"""

import numpy as np

from .activities import NONE, Activities, Ints, Label
from .host import COMMUNICATION as COMMUNICATING
from .host import Host
from .intervals import union, without
from .kinds import COMMUNICATION
from .nesting import OPERATOR, HostRanges
from .projection import Begun

COLLECTIVE = r"^(?:nccl|gloo|ucc|mpi|xccl|hccl):"
"""Names of the ranges that are whole collectives; c10d's own operators only start them and wait."""
PROCESSOR = -1
OPERATORS = Label("operators", "kernel", "operators")


def processor(ranges: HostRanges) -> Host:
    """The work that a processor did in operators and communication, with the host's side of it."""
    every = ranges.push_pop
    talks = every.is_named(COMMUNICATING)
    computes = every.has_style(OPERATOR) & ~talks
    whole = every.is_named(COLLECTIVE)
    collectives = whole if whole.any() else talks
    labels = [OPERATORS, *(Label(name, "kernel", COMMUNICATION) for name in every.names)]
    starts, ends, threads, codes = [], [], [], []
    for thread, rows in every.threads.items():
        of_talk, of_operator, of_collective = talks[rows], computes[rows], collectives[rows]
        talking = union(every.start[rows][of_talk], every.end[rows][of_talk])
        computing = without(union(every.start[rows][of_operator], every.end[rows][of_operator]), talking)
        outer = _outermost(every.start[rows], every.end[rows], np.flatnonzero(of_collective))
        starts += [computing[:, 0], every.start[rows][outer]]
        ends += [computing[:, 1], every.end[rows][outer]]
        codes += [np.zeros(len(computing), dtype=np.int64), every.name[rows][outer].astype(np.int64) + 1]
        threads.append(np.full(len(computing) + len(outer), thread, dtype=np.int64))
    begin, end, of_thread, code = (np.concatenate(parts) for parts in (starts, ends, threads, codes))
    work = Activities(
        start=begin,
        end=end,
        device=np.full(len(begin), PROCESSOR, dtype=np.int32),
        stream=of_thread,
        process=of_thread >> 24,
        correlation=np.full(len(begin), NONE, dtype=np.int64),
        label=code.astype(np.int32),
        labels=tuple(labels),
    )
    return Host(work, None, ranges, Begun(duration=work.duration, thread=of_thread, time=begin, until=end))


def _outermost(start: Ints, end: Ints, rows: Ints) -> Ints:
    """Of sorted ranges of one thread those that lie in none before them."""
    if not len(rows):
        return rows
    reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end[rows])[:-1]))
    return rows[start[rows] >= reach]
