"""The values that `analyze-nsys` shows and prints as JSON (docs/json.md)."""

from typing import Literal

import msgspec

from ..breakdown import DeviceTime, NameTime
from ..collectives import CollectiveTime
from ..findings import Finding
from ..gaps import Idle
from ..launches import LaunchCost
from ..operators import OperatorTime
from ..projection import Projection
from ..skew import Skew
from ..steps import StepSummary, StepTime
from ..work_kinds import GemmTime, KindShare
from .counters import MetricSummary
from .transfers import Transfer


class KernelTime(NameTime, frozen=True, kw_only=True):
    """All kernels of one name, over all devices of an export."""

    share_pct: float
    """Of the devices' spans, for how long any of it ran: at most 100, however many streams ran it at once."""
    per_step_ns: float | None
    """What steps launched of it, over their number; None without steps."""


class NsysDevice(DeviceTime, frozen=True, kw_only=True):
    """One device of an export."""

    idle: Idle
    gemms: list[GemmTime]
    """Largest first."""
    fp8_gemm_pct: float | None
    """FP8's share of GEMM time; None where no GEMM ran."""


class DevicesTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all devices of all ranks. `span_ns = compute_ns + comm_exposed_ns + memory_ns + idle_ns`, exactly."""

    devices: int
    span_ns: int
    busy_ns: int
    compute_ns: int
    comm_overlapped_ns: int
    comm_exposed_ns: int
    memory_ns: int
    idle_ns: int
    fp8_gemm_pct: float | None
    """FP8's share of GEMM time; None where no GEMM ran."""


class NsysRank(msgspec.Struct, frozen=True, kw_only=True):
    """One export."""

    rank: int
    source: str
    format: str
    devices: list[NsysDevice]
    kinds: list[KindShare]
    """Over all devices, largest first."""
    kernels: list[KernelTime]
    """Over all devices, largest total first."""
    transfers: list[Transfer] | None
    """None where no table of copies or sets was recorded."""
    collectives: list[CollectiveTime]
    """Communication kernels over all devices, largest time first."""
    launches: list[LaunchCost] | None
    """None where no API calls were recorded."""
    steps: list[StepTime] | None
    """By process, device and time; None where no range is a step."""
    step_summary: list[StepSummary]
    projection: Projection | None
    """GPU time of NVTX ranges; None without ranges, or without API calls."""
    operators: list[OperatorTime]
    """Always empty: nsys records none. It is here so that a rank has the fields of a Kineto trace's."""
    ranges: list[NameTime]
    """Host times of NVTX ranges, largest total first; `kind` is their style."""
    metrics: list[MetricSummary] | None
    """Sampled GPU metrics; None where none were."""


class NsysReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `analyze-nsys` shows and prints as JSON."""

    schema: Literal["stepscope.timeline/1"] = "stepscope.timeline/1"
    ranks: list[NsysRank]
    total: DevicesTotal | None
    """None without devices."""
    skew: Skew | None
    """Ranks side by side, those in one export too; None with only one."""
    findings: list[Finding]
