"""FLOPs, rates, MFU and the roofline, by hand."""

from pathlib import Path

import pytest
from op_timeline import Ops

from stepscope.analyzers.attention import attention_flops
from stepscope.analyzers.efficiency import Efficiency
from stepscope.analyzers.kineto.read import read_trace
from stepscope.analyzers.peaks import bandwidth_of
from stepscope.analyzers.recipe_proof import recipe_proof


def found(ops: Ops, gpu: str | None = "NVIDIA H200") -> Efficiency:
    [rank] = recipe_proof(ops.timeline(gpu=gpu), None).efficiency
    return rank


def gemm(ops: Ops, size: int, dtype: str = "bf16", *, duration: int) -> None:
    name = "aten::_scaled_mm" if dtype == "e4m3" else "aten::mm"
    with ops.call(name, [[size, size], [size, size], [], []], [dtype, dtype, "fp32", "fp32"]):
        ops.kernel("k", duration)


def test_mfu_is_weighted_by_precision() -> None:
    """2·1024³ FLOPs take 2,170 ns at 989.5 TFLOP/s in bf16 and 1,085 ns at 1,979 in FP8; the span is 10,000 ns."""
    ops = Ops()
    gemm(ops, 1024, duration=6000)
    gemm(ops, 1024, "e4m3", duration=4000)
    rank = found(ops)
    assert rank.span_ns == 10_000
    assert rank.mfu_pct == pytest.approx(100 * (2 * 1024**3 / 989.5e12 + 2 * 1024**3 / 1979e12) * 1e9 / 10_000)
    assert rank.mfu_pct == pytest.approx(32.55, abs=0.01)
    assert rank.hfu_pct == rank.mfu_pct
    rates = {row.dtype: (row.flops_per_s, row.peak_pct) for row in rank.rates}
    assert rates["bf16"][0] == pytest.approx(2 * 1024**3 / 6e-6)
    assert rates["fp8"][1] == pytest.approx(100 * 2 * 1024**3 / 4e-6 / 1979e12)


def test_what_is_computed_again_counts_in_hfu_alone() -> None:
    ops = Ops()
    gemm(ops, 1024, duration=5000)
    with ops.call("MmBackward0"), ops.call("aten::linear"):
        gemm(ops, 1024, duration=5000)
    rank = found(ops)
    assert rank.mfu_pct is not None
    assert rank.hfu_pct == pytest.approx(2 * rank.mfu_pct)


@pytest.mark.parametrize(("gpu", "why"), [
    ("NVIDIA H300", "no peak is known of NVIDIA H300"), (None, "the trace does not name the GPU"),
])  # fmt: skip
def test_an_unknown_gpu_has_no_mfu_and_no_roofline(gpu: str | None, why: str) -> None:
    ops = Ops()
    gemm(ops, 1024, duration=5000)
    rank = found(ops, gpu)
    assert (rank.mfu_pct, rank.hfu_pct, rank.mfu_why) == (None, None, why)
    assert rank.rates[0].flops_per_s == pytest.approx(2 * 1024**3 / 5e-6), "the rate itself is measured"
    assert (rank.rates[0].peak_pct, rank.roofline[0].ridge, rank.roofline[0].bound) == (None, None, None)


def test_convolutions_are_not_counted_so_where_they_matter_there_is_no_mfu() -> None:
    ops = Ops()
    gemm(ops, 1024, duration=5000)
    ops.kernel("cudnn_infer_convolve_sgemm", 5000)
    rank = found(ops)
    assert (rank.mfu_pct, rank.mfu_why) == (None, "the trace has convolutions, whose FLOPs are not counted")
    assert rank.multiplying_pct == pytest.approx(50)


def test_a_dtype_without_a_peak_adds_nothing_and_its_share_is_told() -> None:
    ops = Ops()
    gemm(ops, 1024, duration=5000)
    gemm(ops, 1024, "fp32", duration=5000)
    rank = found(ops)
    assert rank.uncounted_flops_pct == pytest.approx(50)
    assert rank.mfu_pct == pytest.approx(100 * 2 * 1024**3 / 989.5e12 * 1e9 / 10_000)


def test_without_a_device_the_hosts_time_stands_and_there_is_no_mfu() -> None:
    ops = Ops()
    ops.leaf("aten::mm", [[64, 64], [64, 64]], ["bf16", "bf16"])
    rank = found(ops, None)
    assert (rank.clock, rank.span_ns, rank.mfu_why) == ("host", None, "there is no device time")
    assert rank.rates[0].time_ns == 10


def test_the_roofline_tells_memory_from_compute() -> None:
    """H200: 989.5e12 / 4.8e12 = 206 FLOPs a byte. A square GEMM of n has n / 3 of them in bf16."""
    ops = Ops()
    gemm(ops, 512, duration=1000)
    gemm(ops, 1024, duration=5000)
    large, small = found(ops).roofline
    assert (large.flops_per_byte, small.flops_per_byte) == (pytest.approx(1024 / 3), pytest.approx(512 / 3))
    assert (large.bound, small.bound) == ("compute", "memory")
    assert large.ridge == pytest.approx(989.5e12 / 4.8e12)
    assert small.attainable_pct == pytest.approx(100 * (2 * 512**3 / 1e-6) / (512 / 3 * 4.8e12))


def test_attention_takes_two_products_forward_and_five_backward() -> None:
    query, key = (2, 8, 128, 64), (2, 4, 256, 64)
    name = "aten::_scaled_dot_product_flash_attention"
    assert attention_flops(name, query, key) == 4 * 2 * 8 * 128 * 256 * 64
    assert attention_flops(f"{name}_backward", query, key) == 10 * 2 * 8 * 128 * 256 * 64
    assert attention_flops(name, None, key) is None


def test_attention_has_its_kernels_time_and_its_own_row() -> None:
    ops = Ops()
    shape = [2, 8, 128, 64]
    inner = ops.call("aten::_scaled_dot_product_flash_attention", [shape] * 3, ["bf16"] * 3)
    with ops.call("aten::scaled_dot_product_attention", [shape] * 3, ["bf16"] * 3), inner:
        ops.kernel("flash_fwd_kernel", 300)
    [row] = found(ops).rates
    assert (row.kind, row.dtype, row.count, row.time_ns) == ("attention", "bf16", 1, 300)
    assert row.flops == 4 * 2 * 8 * 128 * 128 * 64


def test_the_timesformers_gemms_are_those_of_its_layers(fixtures: Path) -> None:
    """Per layer two attentions as batched GEMMs; linear layers of 768, 2304 and 3072: by the model's own sizes."""
    timeline = read_trace(fixtures / "torch" / "h100_facebook_timesformer-base-finetuned-k400.json.gz")
    [rank] = recipe_proof(timeline, None).efficiency
    by_sizes = {row.sizes: row for row in rank.roofline}
    mlp = by_sizes["25089 × 768 × 3072"]
    assert (mlp.count, mlp.flops) == (12, 12 * 2 * 25089 * 768 * 3072)
    assert (mlp.bound, by_sizes["96 × 3137 × 64 × 3137"].bound) == ("compute", "memory")
    assert rank.device == "NVIDIA H100 80GB HBM3"
    assert all(0 < row.attainable_pct < 100 for row in rank.roofline if row.attainable_pct is not None)


def test_bandwidth_is_of_the_very_gpu() -> None:
    assert bandwidth_of("NVIDIA H100 PCIe") == 2.0e12
    assert bandwidth_of("NVIDIA H100") is None
