"""Attention's FLOPs from the shapes of the operator that computes it.

Scores and their product with the values take 2 · batch · heads · queries · keys · head_dim FLOPs each; the fused
backward pass takes five such products (the scores again, and the gradients of values, scores, queries and keys).
Nothing is halved for causality: a trace does not say whether the operator was causal.
"""

from typing import NamedTuple


class AttentionOperator(NamedTuple):
    """Where an operator has its queries (keys and values follow), and how many products it computes."""

    query: int
    products: int


_FORWARD = (
    *("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_flash_attention_for_cpu"),
    *("aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention"),
    "aten::_scaled_dot_product_fused_attention_overrideable",
)
ATTENTION: dict[str, AttentionOperator] = {
    **{name: AttentionOperator(query=0, products=2) for name in _FORWARD},
    **{f"{name}_backward": AttentionOperator(query=1, products=5) for name in _FORWARD},
}
"""Fused operators that know batch, heads, positions and head_dim, in this order; the maths one is made of GEMMs."""


def attention_flops(operator: str, query: tuple[int, ...] | None, key: tuple[int, ...] | None) -> int | None:
    """FLOPs of one call; None where the shapes were not recorded."""
    if query is None or key is None or len(query) != 4 or len(key) != 4:
        return None
    batch, heads, queries, head_dim = query
    return ATTENTION[operator].products * 2 * batch * heads * queries * key[2] * head_dim
