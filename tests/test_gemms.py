"""Which GEMMs ran, for what, in which precision, for how long, and what FP8 cost beside them."""

from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_traces import LINEARS, native
from op_timeline import Ops

from stepscope.analyzers.gemm_layers import with_layers
from stepscope.analyzers.gemms import Gemm, gemms_of
from stepscope.analyzers.op_calls import calls_of
from stepscope.analyzers.recipe_proof import recipe_proof
from stepscope.record.manifest import Linear
from stepscope.record.recipes import recipe


def gemms(ops: Ops) -> list[Gemm]:
    return gemms_of(0, calls_of(ops.timeline().ops))


def test_a_gemm_counts_once_however_many_operators_wrap_it() -> None:
    ops = Ops()
    with ops.call("aten::linear", [[32, 64], [96, 64]], ["bf16", "bf16"]), ops.call("aten::matmul"):
        ops.leaf("aten::mm", [[32, 64], [64, 96]], ["bf16", "bf16"])
    [gemm] = gemms(ops)
    assert (gemm.role, gemm.sizes, gemm.dtype) == ("forward", (32, 64, 96), "bf16")
    assert gemm.flops == 2 * 32 * 64 * 96
    assert gemm.bytes == 2 * (32 * 64 + 64 * 96 + 32 * 96)


@pytest.mark.parametrize(("name", "shapes", "dtypes", "batch", "sizes"), [
    ("aten::addmm", [[96], [32, 64], [64, 96]], ["bf16"] * 3, 1, (32, 64, 96)),
    ("aten::bmm", [[8, 32, 64], [8, 64, 16]], ["bf16"] * 2, 8, (32, 64, 16)),
    ("aten::baddbmm", [[1], [8, 32, 64], [8, 64, 16]], ["bf16"] * 3, 8, (32, 64, 16)),
    ("mkldnn::_linear_pointwise", [[2, 16, 64], [96, 64]], ["bf16"] * 2, 1, (32, 64, 96)),
])  # fmt: skip
def test_sizes_follow_from_the_operators_arguments(
    name: str, shapes: list[list[int]], dtypes: list[str], batch: int, sizes: tuple[int, int, int]
) -> None:
    ops = Ops()
    ops.leaf(name, shapes, dtypes)
    [gemm] = gemms(ops)
    assert (gemm.batch, gemm.sizes, gemm.dtype) == (batch, sizes, "bf16")


def test_the_gradients_are_told_apart_by_the_sizes_of_the_forward_gemm() -> None:
    """Torch's MmBackward0 computes grad_weight first, and as either of two transposes."""
    ops = Ops()
    ops.leaf("aten::mm", [[32, 64], [64, 96]], ["bf16", "bf16"], sequence=7)
    with ops.call("MmBackward0", sequence=7):
        ops.leaf("aten::mm", [[96, 32], [32, 64]], ["bf16", "bf16"])
        ops.leaf("aten::mm", [[64, 32], [32, 96]], ["bf16", "bf16"])
        ops.leaf("aten::mm", [[32, 96], [96, 64]], ["bf16", "bf16"])
    roles = [gemm.role for gemm in gemms(ops)]
    assert roles == ["forward", "grad_weight", "grad_weight", "grad_input"]


def test_square_sizes_do_not_tell_the_gradients_apart_and_it_says_so() -> None:
    ops = Ops()
    ops.leaf("aten::mm", [[64, 64], [64, 64]], ["bf16", "bf16"], sequence=7)
    with ops.call("MmBackward0", sequence=7):
        ops.leaf("aten::mm", [[64, 64], [64, 64]], ["bf16", "bf16"])
    assert [gemm.role for gemm in gemms(ops)] == ["forward", "backward"]


def test_torchaos_own_function_computes_grad_input_first() -> None:
    ops = Ops()
    square = [[64, 64], [64, 64]], ["bf16", "bf16"]
    with ops.call("matmul_with_hp_or_float8_args", sequence=7):
        ops.leaf("aten::mm", *square)
    with ops.call("matmul_with_hp_or_float8_argsBackward", sequence=7):
        ops.leaf("aten::mm", *square)
        ops.leaf("aten::mm", *square)
    assert [gemm.role for gemm in gemms(ops)] == ["forward", "grad_input", "grad_weight"]


def test_compiled_gradients_are_told_by_the_sizes_of_all_layers() -> None:
    """32 tokens; grad_weight contracts them. [64, 32] · [32, 32] fits as either gradient."""
    ops = Ops()
    with ops.call("CompiledFunction", sequence=1):
        ops.leaf("aten::mm", [[32, 64], [64, 96]], ["bf16", "bf16"])
        ops.leaf("aten::mm", [[32, 32], [32, 64]], ["bf16", "bf16"])
        ops.leaf("aten::mm", [[64, 32], [32, 32]], ["bf16", "bf16"])
    with ops.call("CompiledFunctionBackward", sequence=1):
        ops.leaf("aten::mm", [[32, 96], [96, 64]], ["bf16", "bf16"])
        ops.leaf("aten::mm", [[96, 32], [32, 64]], ["bf16", "bf16"])
        ops.leaf("aten::mm", [[64, 32], [32, 32]], ["bf16", "bf16"])
    roles = [gemm.role for gemm in gemms(ops)]
    assert roles == ["forward"] * 3 + ["grad_input", "grad_weight", "backward"]


def test_a_forward_pass_within_a_backward_function_is_one_computed_again() -> None:
    ops = Ops()
    with ops.call("MmBackward0", sequence=7), ops.call("aten::linear"):
        ops.leaf("aten::mm", [[32, 64], [64, 96]], ["bf16", "bf16"])
    assert [gemm.role for gemm in gemms(ops)] == ["recomputed forward"]


def test_a_padded_token_dimension_is_still_the_weights_gradient() -> None:
    ops = Ops()
    ops.leaf("aten::mm", [[30, 64], [64, 96]], ["bf16", "bf16"], sequence=7)
    with ops.call("MmBackward0", sequence=7):
        ops.leaf("aten::_scaled_mm", [[96, 32], [32, 64], [], []], ["e5m2", "e4m3", "fp32", "fp32"])
    assert [gemm.role for gemm in gemms(ops)] == ["forward", "grad_weight"]


def test_scales_by_blocks_are_known_by_their_dtype() -> None:
    ops = Ops()
    ops.leaf("aten::_scaled_mm", [[32, 64], [64, 96], [64], [192]], ["e4m3", "e4m3", "e8m0", "e8m0"])
    [gemm] = gemms(ops)
    assert (gemm.a.granularity, gemm.b.granularity) == ("block32", "block32")


_JUNK = st.recursive(st.none() | st.integers(-(2**70), 2**70) | st.text(max_size=5), st.lists, max_leaves=6)


@given(st.lists(_JUNK, max_size=5), st.lists(_JUNK, max_size=5), st.sampled_from(["aten::mm", "aten::_scaled_mm"]))
def test_shapes_and_dtypes_that_are_none_break_nothing(shapes: list[object], dtypes: list[object], name: str) -> None:
    ops = Ops()
    for inner in (name, "_ToFloat8ConstrFunc", "fsdp::all_gather_copy_in", "aten::_scaled_dot_product_flash_attention"):
        with ops.call("FunctionBackward", shapes, sequence=1):
            ops.leaf(inner, shapes)
    timeline = ops.timeline()
    text = pa.array([msgspec.json.encode(dtypes).decode()] * len(timeline.ops)).dictionary_encode()
    timeline = replace(timeline, ops=timeline.ops.set_column(timeline.ops.column_names.index("dtypes"), "dtypes", text))
    proof = recipe_proof(timeline, None)
    assert proof.conformance.conforms == "cannot tell"


def layered(ops: Ops, linears: list[Linear]) -> list[str | None]:
    timeline = ops.timeline()
    return [gemm.layer for gemm in with_layers(gemms_of(0, calls_of(timeline.ops)), timeline.ranges, linears)]


def test_a_layer_is_named_by_its_modules_range_and_its_backward_by_its_forward() -> None:
    ops = Ops()
    with ops.named("model.layers.0"), ops.named("model.layers.0.mlp.up_proj"):
        ops.leaf("aten::mm", [[32, 64], [64, 96]], ["bf16", "bf16"], sequence=7)
    with ops.call("MmBackward0", sequence=7):
        ops.leaf("aten::mm", [[32, 96], [96, 64]], ["bf16", "bf16"])
    assert layered(ops, []) == ["model.layers.0.mlp.up_proj"] * 2


def test_else_by_the_order_of_the_models_layers_where_all_sizes_follow_it() -> None:
    ops = Ops()
    for _ in range(2):
        ops.leaf("aten::mm", [[32, 64], [64, 96]], ["bf16", "bf16"])
        ops.leaf("aten::mm", [[32, 96], [96, 48]], ["bf16", "bf16"])
    assert layered(ops, LINEARS) == [LINEARS[0].name, LINEARS[1].name] * 2
    assert layered(ops, LINEARS[::-1]) == [None] * 4, "the other order is not what ran"


def test_else_by_fsdps_unit() -> None:
    ops = Ops()
    with ops.named("FSDP::pre_forward (model.layers.3)"):
        pass
    ops.leaf("aten::mm", [[32, 64], [64, 96]], ["bf16", "bf16"])
    with ops.named("FSDP::post_forward (model.layers.3)"):
        pass
    ops.leaf("aten::mm", [[32, 64], [64, 96]], ["bf16", "bf16"])
    assert layered(ops, []) == ["model.layers.3", None]


def test_device_time_is_that_of_the_kernels_an_operator_launched() -> None:
    """Native tensorwise: three FP8 GEMMs of 50 ns, three in bf16 of 100 ns; six casts of 10 ns are the tax."""
    [rank] = recipe_proof(native(recipe("tensorwise")), None).ranks
    by_dtype = {(row.role, row.dtype): (row.count, row.time_ns, row.kernels) for row in rank.gemms}
    assert by_dtype["forward", "fp8"] == (1, 50, ["nvjet_qqtst_128x128"])
    assert by_dtype["grad_weight", "bf16"] == (1, 100, ["nvjet_tst_128x64"])
    assert rank.clock == "device"
    assert rank.fp8_time_pct == pytest.approx(100 * 150 / 450)
    assert rank.fp8_flops_pct == pytest.approx(100 * 64 / (64 + 48)), "per GEMM 2·32·64·96 in FP8, 2·32·96·48 in bf16"
    assert rank.tax_ns == 60
    assert [(part.name, part.count, part.total_ns) for part in rank.tax] == [("vectorized_elementwise_kernel", 6, 60)]


def test_what_fp8_gained_is_an_estimate_by_the_rate_of_this_traces_bf16() -> None:
    """bf16: 2·32·96·48 FLOPs in 100 ns; FP8 has 2·32·64·96, which would take 133 ns, in 50 ns: 83 ns, three times."""
    [rank] = recipe_proof(native(recipe("tensorwise")), None).ranks
    assert rank.gained_ns == 3 * 83
    assert rank.gained_why is None
    [rank] = recipe_proof(native(recipe("bf16")), None).ranks
    assert (rank.gained_ns, rank.tax_ns, rank.gained_why) == (None, None, "no GEMM ran in FP8")


def test_casts_for_the_all_gather_belong_to_the_tax_but_to_no_layer() -> None:
    """mxtw: one cast for the gather, and four in the layer's functions."""
    [rank] = recipe_proof(native(recipe("mxtw")), None).ranks
    assert rank.tax_ns == 50
    assert [(row.dtype, row.count, row.bytes, row.casts) for row in rank.gathers] == [("fp8 among bytes", 1, 6144, 1)]
