"""The host's side of a rank of a timeline: its operators, modules, annotations and API calls beside its device work."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .activities import NONE, Activities
from .calls import Calls
from .host import Host
from .host_columns import Numbers, coded, ints, ranges_in
from .nesting import OPERATOR, HostRanges
from .operators import SHAPES
from .projection import Begun
from .timeline import Timeline

START_END = "startend"


def numbers_of(part: Timeline) -> Numbers:
    """The numbers of all processes and threads of a rank's timeline."""
    tables = (part.launches, part.ranges, part.ops, part.collectives)
    return Numbers(*(ints(rows, side) for rows in tables for side in ("process", "thread")))


def host_of(part: Timeline, work: Activities, numbers: Numbers, *, by_shape: bool = False) -> Host:
    """The host's side of `work`, the activities of `part`, one rank's timeline.

    `by_shape`: operators' names have their input shapes.
    """
    calls = _calls(part.launches, numbers) if len(part.launches) else None
    return Host(
        work=_with_processes(work, calls),
        calls=calls,
        ranges=_ranges(part.ranges, part.ops, numbers, by_shape=by_shape),
        begun=_begun(part, work, numbers),
    )


def _calls(rows: pa.Table, numbers: Numbers) -> Calls:
    names, codes = coded(rows["name"])
    return Calls(
        start=ints(rows, "start"),
        end=ints(rows, "end"),
        thread=numbers.threads(rows),
        correlation=ints(rows, "correlation"),
        name=codes,
        names=names,
    )


def _with_processes(work: Activities, calls: Calls | None) -> Activities:
    """A trace of torch.profiler does not say of which process device work is: it is that of its call."""
    if calls is None or not len(work) or (work.process != NONE).all():
        return work
    processes = calls.thread >> 24
    if len(np.unique(processes)) == 1:
        return replace(work, process=np.where(work.process == NONE, processes[0], work.process))
    known = np.flatnonzero(calls.correlation != NONE)
    order = known[np.argsort(calls.correlation[known], kind="stable")]
    if not len(order):
        return work
    at = np.minimum(np.searchsorted(calls.correlation[order], work.correlation), len(order) - 1)
    hit = (calls.correlation[order[at]] == work.correlation) & (work.process == NONE)
    return replace(work, process=np.where(hit, processes[order[at]], work.process))


def _begun(part: Timeline, work: Activities, numbers: Numbers) -> Begun | None:
    """The operators whose External ids device work carries; None where it carries none."""
    rows, ops = part.activities, part.ops
    rows = rows.filter(pc.not_equal(rows["kind"].cast(pa.string()), "sync"))
    asked, ids = ints(rows, "external"), ints(ops, "external")
    known = np.flatnonzero(ids != NONE)
    if not len(known) or not (asked != NONE).any():
        return None
    order = known[np.argsort(ids[known], kind="stable")]
    at = np.minimum(np.searchsorted(ids[order], asked), len(order) - 1)
    hit = (ids[order[at]] == asked) & (asked != NONE)
    return Begun(
        duration=work.duration,
        thread=np.where(hit, numbers.threads(ops)[order[at]], NONE),
        time=np.where(hit, ints(ops, "start")[order[at]], NONE),
        until=np.where(hit, ints(ops, "end")[order[at]], NONE),
    )


def _ranges(ranges: pa.Table, ops: pa.Table, numbers: Numbers, *, by_shape: bool) -> HostRanges | None:
    if not len(ranges) and not len(ops):
        return None
    of_process = pc.equal(ranges["style"].cast(pa.string()), START_END)
    threaded, start_end = ranges.filter(pc.invert(of_process)), ranges.filter(of_process)
    operators = ops["name"].cast(pa.string())
    if by_shape:
        shapes = pc.fill_null(ops["shapes"].cast(pa.string()), "")
        operators = pc.binary_join_element_wise(operators, shapes, SHAPES)
    return HostRanges(
        push_pop=ranges_in(
            [threaded, ops],
            [threaded["name"].cast(pa.string()), operators],
            [threaded["style"].cast(pa.string()).to_pylist(), [OPERATOR] * len(ops)],
            numbers,
        ),
        start_end=ranges_in(
            [start_end], [start_end["name"].cast(pa.string())], [[START_END] * len(start_end)], numbers
        ),
    )
