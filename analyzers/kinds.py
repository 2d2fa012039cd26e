"""What a device kernel does, told from its name: one table of patterns, the first that matches decides.

Names are those that cuBLAS, CUTLASS, cuDNN, Triton, Inductor, torch, NCCL, RCCL, hipBLASLt and Composable Kernel give.
A name says what a kernel computes, not why: an FP8 GEMM is one whose name carries an FP8 input type.
"""

import re
from functools import lru_cache

COMMUNICATION = "communication"

_FP8 = r"e4m3|e5m2|f8f8|fp8|float8|(?<![a-z0-9])f8(?![0-9])|_F8|mxf8"
_GEMM = (
    r"gemm|(?<![a-z])(?:cutlass|nvjet|sm\d+_xmma)(?![a-z])|xmma|cijk_|splitkreduce|gemv|wgmma|(?<![a-z])mm_kernel"
    r"|tinygemm|scaled_mm|triton_tem_fused.*mm|triton_mm"
)

KINDS: tuple[tuple[str, str], ...] = (
    (COMMUNICATION, r"nccl|rccl|all_?reduce_kernel|all_?gather_kernel|reduce_?scatter_kernel|nvshmem|mscclpp|deepep"),
    ("attention", r"flash|fmha|attn|attention|sdpa|softmax.*mask.*fwd"),
    ("optimizer", r"adam|sgd(?!emm)|adagrad|lamb_|fused_?optim|lpnorm|l2norm|multi_tensor_apply"),
    ("gemm fp8", rf"(?=.*(?:{_FP8}))(?=.*(?:{_GEMM}))"),
    ("fp8 cast and scale", rf"{_FP8}|amax|quantize|descale"),
    ("convolution", r"conv|scudnn|winograd|wgrad|dgrad|igemm_(?:fwd|bwd|wrw)|im2col|computeoffsets|computeboffsets"),
    ("gemm", _GEMM),
    ("normalisation", r"layer_?norm|rms_?norm|batch_?norm|bn_(?:fw|bw)|group_?norm|gammabeta|rsqrt"),
    ("softmax and loss", r"softmax|cross_?entropy|nll_?loss|nllcriterion|logsumexp"),
    ("embedding", r"embedding|index_?select|indexfunc|indexing|gather|scatter"),
    (
        "copy and layout",
        r"copy|memcpy|memset|fill|transpose|cat_?array|catarray|nchwtonhwc|nhwctonchw|permute|pad_kernel",
    ),
    ("reduction", r"reduce|_red_|triton_red|triton_per|argmax|scan|sort|cumsum"),
    (
        "elementwise",
        r"elementwise|pointwise|triton_poi|vectorized|functor|subtensorop|scalepackedtensor|dropout|rope|rotary",
    ),
)
"""Kind → pattern over the lower-cased name, tried in this order."""

_COMPILED = tuple((kind, re.compile(pattern.lower())) for kind, pattern in KINDS)


@lru_cache(maxsize=65536)
def kind_of(name: str) -> str:
    """The kind of the kernel called `name`; `other` where no pattern matches."""
    lowered = name.lower()
    for kind, pattern in _COMPILED:
        if pattern.search(lowered):
            return kind
    return "other"
