"""What is told of a rank whatever recorded it: its devices with the causes of idle time, kernels, launches, steps.

The definitions are those of `breakdown`; sums are integers and add up to the span. A rank may hold several processes,
as an export of torchrun does; devices are told apart, and so are processes.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from .activities import distinct
from .breakdown import Coverage, DeviceTime, NameTime, coverage, device_time, name_times
from .collectives import CollectiveTime, Names
from .gaps import Idle
from .host import Host
from .launches import LaunchCost
from .operators import OperatorTime
from .projection import Projection
from .shares import Covered, covered
from .skew import Place, Worker, communication_of
from .steps import StepSummary, StepTime
from .work_kinds import GemmTime, KindShare, fp8_share, gemm_times


class KernelTime(NameTime, frozen=True, kw_only=True):
    """All kernels of one name, over all devices of a rank."""

    share_pct: float
    """Of the devices' spans, for how long any of it ran: at most 100, however many streams ran it at once."""
    per_step_ns: float | None
    """What steps launched of it, over their number; None without steps."""


class DeviceAnswer(DeviceTime, frozen=True, kw_only=True):
    """One device of a rank."""

    idle: Idle
    gemms: list[GemmTime]
    """Largest first."""
    fp8_gemm_pct: float | None
    """FP8's share of GEMM time; None where no GEMM ran."""


class RankAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One rank: an export of Nsight Systems, or a trace of torch.profiler."""

    rank: int
    source: str
    format: str
    devices: list[DeviceAnswer]
    kinds: list[KindShare]
    """Over all devices, largest first."""
    kernels: list[KernelTime]
    """Over all devices, largest total first."""
    collectives: list[CollectiveTime]
    """Communication kernels over all devices, largest time first."""
    launches: list[LaunchCost] | None
    """None where no API calls were recorded."""
    steps: list[StepTime] | None
    """By process, device and time; None where no range is a step."""
    step_summary: list[StepSummary]
    projection: Projection | None
    """GPU time of ranges; None without ranges, or where nothing says what launched what."""
    operators: list[OperatorTime]
    """CPU operators by self time, largest first; none in an export of Nsight Systems."""
    ranges: list[NameTime]
    """Host times of named ranges, largest total first; `kind` is their style."""


class DeviceAnswers(NamedTuple):
    """What `device_answers` has of all devices of a rank."""

    devices: list[DeviceAnswer]
    steps: list[StepTime]
    """Of all devices, by process, device and number."""
    covers: dict[int, Coverage]
    """What each device did when."""
    parts: list[Covered]
    """How much of its span each name and kind covers, in the order of the devices."""


def device_answers(host: Host, names: dict[int, str]) -> DeviceAnswers:
    """Of each device where its time went, its steps, and what covers it."""
    work = host.work
    devices: list[DeviceAnswer] = []
    steps: list[StepTime] = []
    covers: dict[int, Coverage] = {}
    parts: list[Covered] = []
    for device in np.unique(work.device).tolist():
        on_it = work.device == device
        mine = work.where(on_it)
        cover = covers[device] = coverage(mine)
        parts.append(covered(mine))
        devices.append(device_answer(device_time(mine, device, names.get(device), cover), host.idle(on_it, cover)))
        steps += host.step_times(device, on_it, cover)
    steps.sort(key=lambda row: (row.process, row.device, row.number))
    return DeviceAnswers(devices, steps, covers, parts)


def device_answer(time: DeviceTime, idle: Idle) -> DeviceAnswer:
    """A device's time with the causes of its idle part, and its GEMMs."""
    gemms = gemm_times(time.kernels)
    known = {name: getattr(time, name) for name in time.__struct_fields__}
    return DeviceAnswer(**known, idle=idle, gemms=gemms, fp8_gemm_pct=fp8_share(gemms))


def kernel_times(host: Host, devices: Sequence[DeviceAnswer], parts: Sequence[Covered]) -> list[KernelTime]:
    """The kernels of all devices together; `parts` as in `DeviceAnswers`."""
    work, span_ns = host.work, sum(device.span_ns for device in devices)
    is_kernel = work.is_kernel
    keys = [(entry.name, entry.kind) for entry in work.labels]
    in_step = is_kernel & (host.step >= 0)
    stepped = np.bincount(work.label[in_step], weights=work.duration[in_step], minlength=len(keys))
    per_step = {key: float(total) / host.steps for key, total in zip(keys, stepped, strict=True)} if host.steps else {}
    covered_ns = [sum(of_devices) for of_devices in zip(*(part.labels.tolist() for part in parts), strict=True)]
    shares = {key: 100 * ns / span_ns for key, ns in zip(keys, covered_ns, strict=True)} if span_ns else {}
    if len(devices) == 1:
        rows = devices[0].kernels
    else:
        rows = name_times(work.label[is_kernel], work.duration[is_kernel], keys)
    return [
        KernelTime(
            **{name: getattr(row, name) for name in row.__struct_fields__},
            share_pct=shares.get((row.name, row.kind), 0.0),
            per_step_ns=per_step.get((row.name, row.kind)),
        )
        for row in rows
    ]


def workers(rank: int, host: Host, called: Names, devices: list[DeviceAnswer], steps: list[StepTime]) -> list[Worker]:
    """Each process on each device whose kernels it launched; `called` is the collective of each activity."""
    found = []
    is_kernel = host.work.is_kernel
    for device in devices:
        on_it = (host.work.device == device.device) & is_kernel
        for process in distinct(host.work.process[on_it]).tolist():
            mine = on_it & (host.work.process == process)
            communication = communication_of(host.work, called, mine, host.step)
            found.append(
                Worker(
                    place=Place(rank, process, device.device),
                    steps=[s for s in steps if (s.process, s.device) == (process, device.device)],
                    comm_exposed_ns=device.comm_exposed_ns,
                    span_ns=device.span_ns,
                    communication=communication,
                    counts=Counter(name for _, name, _ in communication),
                    communicates=bool((mine & host.work.is_communication).any()),
                )
            )
    return found
