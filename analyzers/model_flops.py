"""How much a model computes for one position, and how near to the hardware's limit a step came.

FLOPs of one position, forward and backward: 6 · in · out for each linear layer (three GEMMs of 2 · in · out), and
12 · seq_len · heads · head_dim for each attention. Counted are all positions, padding too, and attention over the whole
row: neither halved for causality nor cut where rows are packed. Recomputed activations do not count. It is the formula
of Megatron-LM's throughput line.

MFU is weighted by precision: each GEMM's FLOPs against the peak of the dtype it runs in, so that

    MFU = (FLOPs in bf16 / peak in bf16 + FLOPs in FP8 / peak in FP8) / (step time · GPUs)
"""

import msgspec

from ..record.manifest import Manifest
from .peaks import peak_of


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """FLOPs of one position, forward and backward, by the dtype they are computed in."""

    bf16_flops: int
    float8_flops: int

    @property
    def flops(self) -> int:
        """Both."""
        return self.bf16_flops + self.float8_flops


def work_per_position(manifest: Manifest) -> Work | None:
    """None where the manifest does not tell the layers' sizes."""
    facts, seq_len = manifest.model, manifest.config.get("seq_len")
    layers, heads, hidden = (facts.get(name) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size"))
    if not (manifest.linear_layers and layers and heads and hidden and seq_len):
        return None
    attention = 12 * seq_len * heads * (facts.get("head_dim") or hidden // heads) * layers
    bf16, float8 = attention, 0
    for linear in manifest.linear_layers:
        gemm = 2 * linear.in_features * linear.out_features
        in_float8 = manifest.recipe.float8_gemms if linear.precision == "float8" else 0
        float8 += in_float8 * gemm
        bf16 += (3 - in_float8) * gemm
    return Work(bf16_flops=bf16, float8_flops=float8)


def least_ns_per_position(manifest: Manifest, work: Work) -> float | str:
    """The time one GPU would need at its peak for one position, in ns; else why that is not known."""
    devices = {device.name for device in manifest.devices if device.kind == "cuda"}
    if not devices:
        return "no GPU"
    if manifest.emulated:
        return "FP8 was emulated"
    peaks = [(name, peak_of(name)) for name in sorted(devices)]
    unknown = next((name for name, peak in peaks if peak is None), None)
    if unknown is not None:
        return f"no peak is known of {unknown}"
    least = 0.0
    for name, peak in peaks:
        assert peak is not None
        if work.float8_flops and peak.float8_flops is None:
            return f"{name} has no FP8 units"
        seconds = work.bf16_flops / peak.bf16_flops + work.float8_flops / (peak.float8_flops or 1)
        least = max(least, seconds * 1e9)
    return least
