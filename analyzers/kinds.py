"""What a device kernel does, told from its name: one table of patterns, the first that matches decides.

Names are those that cuBLAS, CUTLASS, cuDNN, Triton, Inductor, torch, NCCL, RCCL, hipBLASLt and Composable Kernel give.
A name says what a kernel computes, not why: an FP8 GEMM is one whose name carries an FP8 input type, as nvjet's letters
do (one each for A and B, q for E4M3). Inductor's pointwise and reduction kernels also carry the names of operators that
they only prepare or follow (`triton_poi_fused__scaled_mm__to_copy…` casts, and multiplies nothing).
"""

import re
from functools import lru_cache

COMMUNICATION = "communication"

_INDUCTOR = r"^triton_(?:poi|red|per)_"
_FP8 = r"e4m3|e5m2|f8f8|fp8|float8|(?<![a-z0-9])f8(?![0-9])|mxf8|scaled_mm|nvjet_(?:sm\d+_)?[qr][qr]"
_FP4 = r"e2m1|fp4|float4_e|mxf4|nvf4|nvjet_(?:sm\d+_)?oo"
_GEMM = (
    r"(?<!fb)gemm|(?<![a-z])(?:cutlass|nvjet|sm\d+_xmma)(?![a-z])|xmma|cijk_|splitkreduce|gemv|wgmma|epilogue::impl"
    r"|(?<![a-z])b?mm_(?:kernel|e\d)|scaled_mm|triton_tem_fused.*mm|triton_mm|matmul"
)


def _named(*parts: str) -> str:
    """All of the parts, in any order, in a name that Inductor's pointwise and reduction kernels do not have."""
    return rf"^(?!{_INDUCTOR[1:]})" + "".join(f"(?=.*(?:{part}))" for part in parts)


KINDS: tuple[tuple[str, str], ...] = (
    (
        COMMUNICATION,
        r"nccl|rccl|msccl|all_?reduce_kernel|all_?gather_kernel|reduce_?scatter_kernel|nvshmem|deep_?ep"
        r"|cross_device_reduce|userbuffers",
    ),
    ("fp8 cast and scale", rf"{_INDUCTOR}(?:.*(?:{_FP8})|(?=.*_abs_)(?=.*_a?max(?:_|$)))"),
    ("attention", _named(r"flash|fmha|attn|attention|sdpa")),
    ("optimizer", r"adam|sgd(?!emm)|adagrad|lamb(?!da)|fused_?optim|lpnorm|l2norm|multi_tensor_apply"),
    ("gemm fp4", _named(_FP4, _GEMM)),
    ("gemm fp8", _named(_FP8, _GEMM)),
    ("fp8 cast and scale", rf"{_FP8}|^(?!triton_).*amax|quant(?!il)|descale|cast_transpose"),
    (
        "convolution",
        _named(
            r"conv(?!ert)|[sh]\d*cudnn|winograd|[wd]grad|fprop|igemm_(?:fwd|bwd|wrw)|im2col|computeoffsets|computeboffsets"
        ),
    ),
    ("gemm", _named(_GEMM)),
    ("normalisation", r"layer_?norm|rms_?norm|batch_?norm|bn_(?:fw|bw)|group_?norm|gammabeta|rsqrt"),
    ("softmax and loss", r"softmax|cross_?entropy|nll_?loss|nllcriterion|logsumexp"),
    ("embedding", r"embedding|index_?select|indexfunc|indexing|gather|scatter"),
    (
        "copy and layout",
        r"(?<!to_)copy|^triton_poi_fused__to_copy_\d+$|memcpy|memset|fill|transpose|cat_?array|catarray|nchwtonhwc"
        r"|nhwctonchw|permute|pad_kernel",
    ),
    ("reduction", r"reduce|_red_|triton_red|triton_per|argmax|scan|sort|cumsum"),
    (
        "elementwise",
        r"elementwise|pointwise|triton_poi|vectorized|functor|subtensorop|scalepackedtensor|dropout|rope|rotary",
    ),
)
"""Kind → pattern over the lower-cased name, tried in this order; a kind may stand twice."""

_COMPILED = tuple((kind, re.compile(pattern, re.DOTALL)) for kind, pattern in KINDS)


@lru_cache(maxsize=65536)
def kind_of(name: str) -> str:
    """The kind of the kernel called `name`; `other` where no pattern matches."""
    lowered = name.lower()
    for kind, pattern in _COMPILED:
        if pattern.search(lowered):
            return kind
    return "other"
