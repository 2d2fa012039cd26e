"""What a step of two linear layers leaves on a GPU with FP8 units, recipe by recipe, as torchao 0.18 runs it eagerly.

Written from torchao's source: a function around each layer's GEMMs, a cast before each FP8 operand that is not FP8
already, `aten::_scaled_mm` in a tensor subclass. A rowwise GEMM without fast accumulation, as all of the backward
pass, gets single scales of one and is scaled afterwards.
"""

from op_timeline import Ops

from stepscope.analyzers.timeline import Timeline
from stepscope.record.manifest import Linear
from stepscope.record.recipes import Cast, Recipe

TOKENS, INNER, OUTER = 32, 64, 96
LINEARS = [
    Linear(name="model.layers.0.mlp.up_proj", out_features=OUTER, in_features=INNER, precision="float8"),
    Linear(name="lm_head", out_features=48, in_features=OUTER, precision="bf16", why="--fp8-filter lm_head"),
]
FUNCTION = "matmul_with_hp_or_float8_args"


def native(recipe: Recipe, *, gpu: str | None = "NVIDIA H200") -> Timeline:
    """One step of one rank."""
    ops = Ops()
    gathered = recipe.all_gather == "float8"
    if gathered:
        _cast(ops, [OUTER // 2, INNER], recipe.weight, recipe)
    ops.leaf(
        "fsdp::all_gather_copy_in",
        [[[OUTER // 2 * INNER], [48]], [OUTER * INNER]],
        ["", "uint8" if gathered else "bf16"],
    )
    x, w, g = [TOKENS, INNER], [INNER, OUTER], [TOKENS, OUTER]
    if recipe.is_float8:
        with ops.call(FUNCTION, [x, w], ["bf16", "bf16"], sequence=3):
            weight = None if gathered else recipe.weight
            _gemm(ops, recipe, x, w, (recipe.input, recipe.weight), (recipe.input, weight), "forward")
    else:
        with (
            ops.call("aten::linear", [x, [OUTER, INNER]], ["bf16", "bf16"], sequence=2),
            ops.call("aten::matmul", sequence=3),
        ):
            _plain(ops, x, w, sequence=3)
    with ops.call("aten::linear", [g, [48, OUTER]], ["bf16", "bf16"], sequence=4), ops.call("aten::matmul", sequence=5):
        _plain(ops, g, [OUTER, 48], sequence=5)
    with ops.call("MmBackward0", sequence=5):
        _plain(ops, [48, TOKENS], [TOKENS, OUTER])
        _plain(ops, [TOKENS, 48], [48, OUTER])
    if recipe.is_float8:
        with ops.call(f"{FUNCTION}Backward", [g], ["bf16"], sequence=3):
            pair = recipe.grad_output, recipe.weight_for_grad_input
            casts = recipe.grad_output, None if gathered else recipe.weight_for_grad_input
            _gemm(ops, recipe, g, [OUTER, INNER], pair, casts, "grad_input")
            pair = recipe.grad_output_for_grad_weight, recipe.input_for_grad_weight
            _gemm(ops, recipe, [OUTER, TOKENS], x, pair, pair, "grad_weight")
    else:
        with ops.call("MmBackward0", sequence=3):
            _plain(ops, [OUTER, TOKENS], x)
            _plain(ops, g, [OUTER, INNER])
    return ops.timeline(gpu=gpu)


def _plain(ops: Ops, a: list[int], b: list[int], sequence: int | None = None) -> None:
    with ops.call("aten::mm", [a, b], ["bf16", "bf16"], sequence=sequence):
        ops.kernel("nvjet_tst_128x64", 100)


def _gemm(
    ops: Ops,
    recipe: Recipe,
    a: list[int],
    b: list[int],
    pair: tuple[Cast, Cast],
    casts: tuple[Cast | None, ...],
    role: str,
) -> None:
    """A GEMM of a layer of the recipe, with the casts before it."""
    if pair[0].granularity is None:
        _plain(ops, a, b)
        return
    for shape, cast in zip((a, b), casts, strict=True):
        if cast is not None:
            _cast(ops, shape, cast, recipe)
    rowwise = all(cast.granularity == "axiswise" for cast in pair) and role == "forward"
    scales = [[a[0], 1], [1, b[1]]] if rowwise else [[], []]
    with ops.call("aten::mm", [a, b], ["bf16", "bf16"]), ops.call("PythonSubclass", [a, b], ["bf16", "bf16"]):
        if recipe.pad_inner_dim:
            ops.leaf("aten::pad", [a], [pair[0].dtype])
        with ops.call("aten::_scaled_mm", [a, b, *scales], [pair[0].dtype, pair[1].dtype, "fp32", "fp32"]):
            ops.kernel("nvjet_qqtst_128x128", 50)


def _cast(ops: Ops, shape: list[int], cast: Cast, recipe: Recipe) -> None:
    if not (recipe.precompute_scales and shape == [OUTER // 2, INNER]):
        ops.leaf("aten::amax" if cast.granularity == "axiswise" else "aten::max", [shape], ["bf16"])
    if recipe.power_of_2_scales:
        ops.leaf("aten::exp2", [[]], ["fp32"])
    scale = [shape[0], 1] if cast.granularity == "axiswise" else []
    with ops.call("_ToFloat8ConstrFunc", [shape, scale], ["bf16", "fp32"]):
        ops.kernel("vectorized_elementwise_kernel", 10)
