"""`telemetry.node<N>.jsonl`: what the machine did while the job ran, sampled by one sampler per node.

Five kinds of line, told apart by `type`: a GPU reading, a GPU's critical error, a host reading, a counter that this
machine does not have (written once, with the reason), and a remark on the sampler itself.
"""

from pathlib import Path

import msgspec

from .errors import ConfigError
from .jsonl import read_jsonl

_LEAST_PERIOD = 1 / 6
"""Seconds. Between two of its own readings, a driver answers with the last."""

LONGEST_PERIOD = 86_400.0
"""Seconds: a day."""


def check_period(seconds: float, or_else: str = "") -> None:
    """ConfigError where `--telemetry-period` is no time to wait between samples; `or_else` ends the message."""
    if 0 < seconds < _LEAST_PERIOD:
        raise ConfigError(
            f"--telemetry-period: drivers read GPUs no more than six times a second, so {seconds} s would only repeat "
            f"values; give 0.17 or more{or_else}"
        )
    if not 0 < seconds <= LONGEST_PERIOD:
        raise ConfigError(
            f"--telemetry-period: must be from 0.17 s to a day ({LONGEST_PERIOD:g} s), not {seconds}{or_else}"
        )


class GpuSample(msgspec.Struct, frozen=True, kw_only=True, tag="gpu", omit_defaults=True):
    """One NVML reading of one GPU. None = not read this time, or the counter is unavailable (see `Unavailable`).

    Counters that only grow have no fixed zero and can wrap or be reset: use differences, and none that is negative.
    """

    t_ns: int
    """Unix time, ns, at the start of the sampler's round; the values are at most 5 ms younger, or see `late_ns`."""
    device: int
    """CUDA ordinal on this node."""
    late_ns: int | None = None
    """How long after `t_ns` this reading had ended, where that was more than 5 ms (a slow driver call)."""
    mig: bool = False
    """Whether the device is a MIG instance: memory, processes and the GPM means are its own, all else its GPU's."""
    utilization_pct: int | None = None
    """Share of the driver's last sampling period in which some kernel was resident; not efficiency."""
    memory_used_bytes: int | None = None
    """Allocated, without what the driver reserves (NVML memory v2)."""
    memory_reserved_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_mw: int | None = None
    """Ampere and newer (but not GA100): a mean over one second."""
    energy_mj: int | None = None
    """Since the driver was loaded; use differences."""
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: int | None = None
    """NVML clocks-event bitmask; bit 0x1 (idle) is no throttling."""
    pcie_tx_bytes: int | None = None
    """Sent by the GPU so far; use differences."""
    pcie_rx_bytes: int | None = None
    nvlink_tx_bytes: int | None = None
    """Data sent over all links so far, protocol not included; use differences."""
    nvlink_rx_bytes: int | None = None
    gpm_interval_ns: int | None = None
    """The four means below are over this long before `t_ns`. Hopper and newer; the first reading ends no interval."""
    sm_active_pct: float | None = None
    """Mean share of SMs that were busy."""
    sm_occupancy_pct: float | None = None
    """Mean of resident warps, of the most that can be."""
    tensor_active_pct: float | None = None
    """Mean share of time in which the SMs' tensor cores worked, in whatever precision."""
    dram_bandwidth_pct: float | None = None
    """Mean memory traffic, of the theoretical most."""
    process_bytes: dict[int, int] | None = None
    """Process id → memory on this GPU, of the job's processes alone. Read every 30 s at most, as are the two below."""
    ecc_corrected: int | None = None
    """Memory errors corrected since the driver was loaded."""
    ecc_uncorrected: int | None = None


class XidEvent(msgspec.Struct, frozen=True, kw_only=True, tag="xid"):
    """A critical error that the driver has told of (NVIDIA's XID); it happened since the reading before."""

    t_ns: int
    device: int
    xid: int


class HostSample(msgspec.Struct, frozen=True, kw_only=True, tag="host", omit_defaults=True):
    """One reading of the machine the job runs on, from psutil."""

    t_ns: int
    cpu_pct: float | None = None
    """Busy share of all logical CPUs since the sample before, 0 to 100."""
    job_cpu_pct: float | None = None
    """The share of it that the job's processes had; what is left others used. One that ended in between lacks."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    job_rss_bytes: int | None = None
    """Resident memory of the job's processes on this node, summed."""
    read_bytes: int | None = None
    """Bytes the job's processes have read from storage so far."""
    write_bytes: int | None = None


class Unavailable(msgspec.Struct, frozen=True, kw_only=True, tag="unavailable", omit_defaults=True):
    """A counter that cannot be read here, and why. Written once; `gpu` stands for a whole device, from `t_ns` on."""

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


Sample = GpuSample | XidEvent | HostSample | Unavailable | SamplerNote


def read_telemetry(path: Path) -> list[Sample]:
    """All whole lines of a telemetry file, in file order."""
    return list(read_jsonl(path, Sample))
