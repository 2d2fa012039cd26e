"""`telemetry.node<N>.jsonl`: what the machine did while the job ran, sampled by one sampler per node.

Four kinds of line, told apart by `type`: a GPU reading, a host reading, a counter that this machine does not have
(written once, with the reason), and a remark on the sampler itself.
"""

from pathlib import Path

import msgspec

from .jsonl import read_jsonl


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, tag="gpu", omit_defaults=True):
    """One NVML reading of one GPU. None = this reading failed or the counter is unavailable (see `Unavailable`)."""

    t_ns: int
    """Unix time, ns."""
    device: int
    """CUDA ordinal on this node."""
    utilization_pct: int | None = None
    """Share of the driver's last sampling period in which some kernel was resident; not efficiency."""
    memory_used_bytes: int | None = None
    """Allocated, without what the driver reserves (NVML memory v2)."""
    memory_reserved_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_mw: int | None = None
    energy_mj: int | None = None
    """Since the driver was loaded; use differences."""
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: int | None = None
    """NVML clocks-event bitmask; bit 0x1 (idle) is no throttling."""


class HostSample(msgspec.Struct, frozen=True, kw_only=True, tag="host", omit_defaults=True):
    """One reading of the machine the job runs on, from psutil."""

    t_ns: int
    cpu_pct: float | None = None
    """Busy share of all logical CPUs since the sample before, 0 to 100."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    job_rss_bytes: int | None = None
    """Resident memory of the job's processes on this node, summed."""
    read_bytes: int | None = None
    """Bytes the job's processes have read from storage so far."""
    write_bytes: int | None = None


class Unavailable(msgspec.Struct, frozen=True, kw_only=True, tag="unavailable", omit_defaults=True):
    """A counter that cannot be read here, and why. Written once."""

    t_ns: int
    counter: str
    reason: str
    device: int | None = None


class SamplerNote(msgspec.Struct, frozen=True, kw_only=True, tag="sampler", omit_defaults=True):
    """What the sampler is and, in its last line, what it cost."""

    t_ns: int
    source: str
    """`nvml` or `host`; in the last line all of them, as `host+nvml`."""
    period_s: float
    samples: int | None = None
    cpu_s: float | None = None
    """CPU time that the sampler itself used."""


Sample = GpuSample | HostSample | Unavailable | SamplerNote


def read_telemetry(path: Path) -> list[Sample]:
    """All whole lines of a telemetry file, in file order."""
    return list(read_jsonl(path, Sample))
