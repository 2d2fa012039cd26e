"""What a timeline says: for each rank where its time went and why, and how the ranks compare.

Definitions and functions are those of exports of Nsight Systems; more is asked here, since torch.profiler records
operators, modules, allocations and what collectives send.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from .activities import NONE, activities_of
from .answer import DeviceAnswer, device_answers, kernel_times, workers
from .collectives import Names, Sizes, collective_times
from .communication import Told, bytes_given, communication_times, names_told, told_of
from .critical_path import critical_paths
from .fsdp import fsdp_times
from .host import Host
from .host_work import processor
from .launches import QueueDepth, queue_depth
from .memory_curve import memory_curves
from .nesting import MODULE, OPERATOR
from .operators import operators_in
from .phases import phase_times, phases_of
from .processes import side_by_side
from .projection import Projection
from .recipe_proof import manifest_beside, recipe_proof
from .skew import Worker, skew
from .steps import step_summaries
from .timeline import Source, Timeline
from .timeline_host import host_of, numbers_of
from .trace_remarks import remarks
from .trace_result import TraceRank, TraceReport
from .trace_stragglers import straggler
from .work_kinds import kind_shares

Part = Literal["communication", "fsdp", "launches", "memory", "operators", "paths", "phases", "precision", "ranks"]
"""What takes time of its own to answer; `operators` with modules and the GPU time of ranges, `ranks` side by side."""

ALL: tuple[Part, ...] = get_args(Part)

LEAST_ROWS = 200_000
"""Fewer activities and operators are answered for in less time than it takes to share them out."""


def answers(timeline: Timeline, *, by_shape: bool = False, only: Collection[Part] = ALL) -> TraceReport:
    """The report of a timeline. `by_shape`: operators are told apart by their input shapes, where recorded.

    `only`: the parts that will be looked at. The others stay empty; the findings then are those of reading alone.
    """
    proving: list[Callable[[], Any]] = [partial(recipe_proof, timeline, manifest_beside(timeline))]
    proving = proving if "precision" in only else []  # first, since it takes longest
    asked = [partial(_rank, timeline, source, by_shape=by_shape, only=only) for source in timeline.sources]
    rows = len(timeline.activities) + len(timeline.ops)
    found = side_by_side([*proving, *asked], worth_it=rows > LEAST_ROWS)
    ranks: list[TraceRank] = [rank for rank, _ in found[len(proving) :]]
    compared: list[Worker] = [worker for _, workers_of in found[len(proving) :] for worker in workers_of]
    apart = skew(compared)
    late = straggler(apart, {(rank.rank, device.device): device for rank in ranks for device in _places(rank)})
    everything = len(only) == len(ALL)
    return TraceReport(
        ranks=ranks,
        skew=apart,
        straggler=late,
        precision=found[0] if proving else None,
        findings=[*timeline.findings, *(remarks(timeline, ranks, apart, late) if everything else [])],
    )


def _places(rank: TraceRank) -> list[DeviceAnswer]:
    return rank.devices or ([rank.processor] if rank.processor else [])


def _rank(
    timeline: Timeline, source: Source, *, by_shape: bool, only: Collection[Part]
) -> tuple[TraceRank, list[Worker]]:
    """A rank's answers, and what it is compared by."""
    part = timeline.of_rank(source.rank)
    numbers = numbers_of(part)
    host = host_of(part, activities_of(part.activities), numbers, by_shape=by_shape)
    on_devices = len(host.work) > 0
    devices, steps, covers, parts = device_answers(host, source.device_names)
    projection = host.projection() if on_devices and "operators" in only else None
    own = None
    if not on_devices and host.ranges is not None:
        host = processor(host.ranges)
        if len(host.work):
            [own], steps, covers, _ = device_answers(host, {})
    told = told_of(host, part.collectives, numbers)
    called = names_told(host.work, told)
    push_pop = host.ranges.push_pop if host.ranges else None
    timed = push_pop is not None and not {"phases", "memory"}.isdisjoint(only)
    phases = phases_of(push_pop, host.nested) if timed and push_pop is not None and host.nested is not None else None
    rank = TraceRank(
        rank=source.rank,
        source=source.path,
        format=source.format,
        world_size=source.world_size,
        devices=devices,
        processor=own,
        kinds=kind_shares(devices, [part.kinds for part in parts]),
        kernels=kernel_times(host, devices, parts) if on_devices else [],
        collectives=collective_times(host.work, called, _sizes(called, told)) if "communication" in only else [],
        communication=communication_times(host.work, called, told) if "communication" in only else [],
        launches=host.launches() if on_devices and "launches" in only else None,
        queues=_queues(host, devices) if "launches" in only else [],
        steps=steps if host.steps else None,
        step_summary=step_summaries(steps),
        projection=_named(projection),
        modules=[row for row in projection.ranges if row.style == MODULE] if projection else [],
        operators=operators_in(push_pop, host.nested, projection)
        if push_pop is not None and host.nested is not None and "operators" in only
        else [],
        ranges=host.range_times() if "operators" in only else [],
        phases=phase_times(host, phases, on_devices=on_devices) if phases else [],
        fsdp=fsdp_times(host, covers, bytes_given(told)) if "fsdp" in only else [],
        memory=memory_curves(part.memory, phases.host if phases else {}) if "memory" in only else [],
        critical_paths=[path for device in devices for path in critical_paths(host, device.device)]
        if "paths" in only
        else [],
    )
    return rank, workers(source.rank, host, called, _places(rank), steps) if "ranks" in only else []


def _named(projection: Projection | None) -> Projection | None:
    """Without operators and modules, which have lists of their own."""
    if projection is None:
        return None
    kept = [row for row in projection.ranges if row.style not in (OPERATOR, MODULE)]
    return msgspec.structs.replace(projection, ranges=kept)


def _queues(host: Host, devices: list[DeviceAnswer]) -> list[QueueDepth]:
    found = []
    for device in devices:
        mine = host.work.device == device.device
        depth = queue_depth(
            device.device, np.where(host.call[mine] != NONE, host.launched.time[mine], NONE), host.work.start[mine]
        )
        found += [depth] if depth else []
    return found


def _sizes(called: Names, told: Sequence[Told]) -> dict[str, Sizes]:
    """Of the collectives whose size is known: how many, and what they come to."""
    found: dict[str, Sizes] = {}
    sizes = bytes_given(told)
    for at in np.flatnonzero(sizes != NONE).tolist():
        calls, size = found.get(called[at], Sizes(0, 0))
        found[called[at]] = Sizes(calls + 1, size + int(sizes[at]))
    return found
