"""The precision that a GEMM kernel multiplies in, told from its name by one table of patterns: the first that matches.

cuBLAS and CUTLASS spell types out or name the tensor core's shape (`s1688gemm` without a type is TF32), nvjet has a
letter each for A and B (q, r FP8; t BF16; h FP16; s FP32; d FP64), hipBLASLt the types of A, B and the sum. A kernel
whose name has no type (Triton's templates) has no precision here.
"""

import re
from functools import lru_cache

from .kinds import kind_of

PRECISIONS: tuple[tuple[str, str], ...] = (
    ("bf16", r"bf16|bfloat16|nvjet_(?:sm\d+_)?tt?[sth]|cijk_.*_(?:bbs|bss)_"),
    ("tf32", r"tf32|tensorop_s1688gemm|(?:ampere|sm80)_s1688gemm"),
    ("fp16", r"fp16|(?<![a-z])f16|float16|half|h\d*gemm|hmma|h884|nvjet_(?:sm\d+_)?hh?[sth]|cijk_.*_(?:hhs|hss|hb)_"),
    ("fp64", r"dgemm|f64|nvjet_(?:sm\d+_)?d|cijk_.*_db_"),
    ("int8", r"i\d+gemm|int8|^(?!_z).*(?<![a-z])s8(?![0-9])|imma"),
    ("fp32", r"sgemm|simt|ffma|f32f32|gemmsn|<float|, float|nvjet_(?:sm\d+_)?s|cijk_.*_sb_"),
)
"""Precision → pattern over the lower-cased name, tried in this order; FP8 and FP4 are kinds of their own (`kinds`)."""

_COMPILED = tuple((precision, re.compile(pattern, re.DOTALL)) for precision, pattern in PRECISIONS)


def is_gemm(kind: str) -> bool:
    """Whether a kind of work is one of the GEMMs."""
    return kind == "gemm" or kind.startswith("gemm ")


@lru_cache(maxsize=65536)
def precision_of(name: str) -> str | None:
    """Such as `fp8`, `bf16`; None where `name` is no GEMM's, or does not say."""
    kind = kind_of(name)
    if not is_gemm(kind):
        return None
    if kind != "gemm":
        return kind.removeprefix("gemm ")
    lowered = name.lower()
    return next((precision for precision, pattern in _COMPILED if pattern.search(lowered)), None)
