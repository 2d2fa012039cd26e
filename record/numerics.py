"""`numerics.rank0.jsonl`: what the FP8 cast did to the operands of each float8 linear layer, in sampled steps.

One line per step, layer and operand, written by the first rank. `input` and `grad_output` are that rank's own values of
the step's first micro-batch, as each rank scales its own; `weight` is the whole weight, whoever holds its shards.
"""

from pathlib import Path
from typing import Literal

import msgspec

from .jsonl import read_jsonl

Operand = Literal["input", "weight", "grad_output"]
"""`input` and `weight` as cast for the output's GEMM, `grad_output` as cast for grad_input's."""


class OperandStatistics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operand of one layer in one step: x its values, Q(x) what the cast makes of them. None: see `missing`."""

    step: int
    layer: str
    operand: Operand
    dtype: str
    """Of the cast, as torch names it: `float8_e4m3fn`, `float8_e5m2`."""
    granularity: str
    """Values that share a scale: `tensorwise`, `axiswise` (a row or column), `block32`."""
    values: int
    """How many x there are."""
    amax: float | None = None
    """max |x|."""
    scale_min: float | None = None
    """Smallest factor that values were multiplied with before rounding, where they were not all zero."""
    scale_max: float | None = None
    """Largest such factor; the same as the smallest where there is one scale."""
    saturated_share: float | None = None
    """Values with |x · scale| above the dtype's largest, of all values, 0 to 1."""
    underflowed_share: float | None = None
    """Values that are not zero and become zero, of all values, 0 to 1."""
    sqnr_db: float | None = None
    """10 · log10(Σ x² / Σ (x − Q(x))²)."""
    kurtosis: float | None = None
    """Pearson's, of the population: m4 / m2² about the mean; 3 for a normal distribution."""
    missing: dict[str, str] = {}
    """Field that is None → why."""


def read_numerics(path: Path) -> list[OperandStatistics]:
    """All whole lines of a numerics file, in file order."""
    return list(read_jsonl(path, OperandStatistics))
