"""Peak rates of GPUs' matrix units, dense (no sparsity), FP32 accumulation, as their makers publish them.

A GPU is known by the whole name that its driver reports; one that is not in the table has no peak, never a cousin's.
"""

import re

import msgspec


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """What one GPU can do at most."""

    bf16_flops: float
    """FLOP/s."""
    float8_flops: float | None
    """FLOP/s; None where it has no FP8 units."""
    source: str


_A100 = Peak(bf16_flops=312e12, float8_flops=None, source="NVIDIA A100 datasheet")
_HOPPER_SXM = "NVIDIA H100 and H200 datasheets, sparse figures halved"

_PEAKS: tuple[tuple[str, Peak], ...] = (
    (r"NVIDIA A100-SXM4-\d+GB|NVIDIA A100-PCIE-40GB|NVIDIA A100 80GB PCIe|NVIDIA A100-SXM-64GB", _A100),
    (
        r"NVIDIA H100 80GB HBM3|NVIDIA H200|NVIDIA GH200( \d+GB)?",
        Peak(bf16_flops=989.5e12, float8_flops=1979e12, source=_HOPPER_SXM),
    ),
    (
        r"NVIDIA H100 PCIe",
        Peak(bf16_flops=756e12, float8_flops=1513e12, source="NVIDIA H100 datasheet, sparse figures halved"),
    ),
    (
        r"NVIDIA H100 NVL|NVIDIA H200 NVL",
        Peak(bf16_flops=835.5e12, float8_flops=1671e12, source=_HOPPER_SXM),
    ),
    (
        r"NVIDIA B200",
        Peak(bf16_flops=2250e12, float8_flops=4500e12, source="NVIDIA HGX B200 datasheet, an eighth, sparse halved"),
    ),
    (
        r"NVIDIA GB200",
        Peak(bf16_flops=2500e12, float8_flops=5000e12, source="NVIDIA GB200 NVL72 datasheet, a 72nd, sparse halved"),
    ),
    (
        r"NVIDIA L40S",
        Peak(bf16_flops=362e12, float8_flops=733e12, source="NVIDIA L40S datasheet"),
    ),
    (
        r"NVIDIA L4",
        Peak(bf16_flops=121e12, float8_flops=242.5e12, source="NVIDIA L4 datasheet, sparse figures halved"),
    ),
    (
        r"NVIDIA GeForce RTX 4090",
        Peak(bf16_flops=165.2e12, float8_flops=330.3e12, source="NVIDIA Ada GPU architecture whitepaper"),
    ),
    (
        r"AMD Instinct MI300X( OAM)?|AMD Instinct MI325X( OAM)?",
        Peak(bf16_flops=1307.4e12, float8_flops=2614.9e12, source="AMD Instinct MI300X and MI325X datasheets"),
    ),
)


def peak_of(device: str) -> Peak | None:
    """The peak of the GPU that the driver calls `device`; None where the table has no such GPU."""
    return next((peak for pattern, peak in _PEAKS if re.fullmatch(pattern, device)), None)


_BANDWIDTHS: tuple[tuple[str, float], ...] = (
    (r"NVIDIA A100-(SXM4|PCIE)-40GB", 1.555e12),
    (r"NVIDIA A100-SXM4-80GB", 2.039e12),
    (r"NVIDIA A100 80GB PCIe", 1.935e12),
    (r"NVIDIA H100 80GB HBM3", 3.35e12),
    (r"NVIDIA H100 PCIe", 2.0e12),
    (r"NVIDIA H100 NVL", 3.9e12),
    (r"NVIDIA H200( NVL)?", 4.8e12),
    (r"NVIDIA B200|NVIDIA GB200", 8.0e12),
    (r"NVIDIA L40S", 0.864e12),
    (r"NVIDIA L4", 0.3e12),
    (r"NVIDIA GeForce RTX 4090", 1.008e12),
    (r"AMD Instinct MI300X( OAM)?", 5.3e12),
    (r"AMD Instinct MI325X( OAM)?", 6.0e12),
)
"""Peak bandwidth of device memory, bytes/s, from the makers' datasheets."""


def bandwidth_of(device: str) -> float | None:
    """The peak memory bandwidth of the GPU that the driver calls `device`, in bytes/s; None where it is not known."""
    return next((rate for pattern, rate in _BANDWIDTHS if re.fullmatch(pattern, device)), None)
