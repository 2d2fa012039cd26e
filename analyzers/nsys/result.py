"""The values that `analyze-nsys` shows and prints as JSON (docs/json.md)."""

from typing import Literal

import msgspec

from ..answer import RankAnswer
from ..findings import Finding
from ..skew import Skew
from .counters import MetricSummary
from .transfers import Transfer


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


class NsysRank(RankAnswer, frozen=True, kw_only=True):
    """One export."""

    transfers: list[Transfer] | None
    """None where no table of copies or sets was recorded."""
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
