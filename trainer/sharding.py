"""FSDP2 over all ranks: the root always is a unit; `layer` adds the embedding, every layer and the output layer.

Sharding the root keeps the final norm sharded and reduced like everything else, and lets units prefetch each other.
"""

from typing import Any

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


def shard(
    model: Any,
    *,
    wrap: str,
    reduce_dtype: torch.dtype,
    reshard_after_forward: bool,
    device: torch.device,
    world: int,
) -> None:
    """Shard the model in place by `wrap`, `whole` or `layer`, to compute in bf16.

    Tied embeddings stay with the root, which holds the one weight.
    """
    how: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (world,)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce_dtype),
        "reshard_after_forward": reshard_after_forward,
    }
    if wrap == "layer":
        inner = model.model
        units = [inner.embed_tokens, *inner.layers, model.lm_head]
        if model.lm_head.weight is inner.embed_tokens.weight:
            units = list(inner.layers)
        for unit in units:
            fully_shard(unit, **how)
    fully_shard(model, **how)


def compile_layers(model: Any) -> None:
    """torch.compile each layer by itself; due before sharding, so that both wrappings run the same compiled code."""
    for layer in model.model.layers:
        layer.compile()


def accumulate(model: Any, *, last: bool) -> None:
    """Say whether the coming backward pass is the step's last, the only one that reduces gradients over ranks."""
    model.set_requires_gradient_sync(last)
    model.set_is_last_backward(last)


def unwrapped(weight: Any) -> Any:
    """A sharded weight without the wrapper that torchao's recipes put around it, on the same memory.

    Staging a checkpoint beside training copies a wrapped tensor's outside only and would save what memory held before.
    """
    local = weight.to_local() if isinstance(weight, DTensor) else weight
    if not is_traceable_wrapper_subclass(local):
        return weight
    inner = getattr(local, local.__tensor_flatten__()[0][0])
    return DTensor.from_local(
        inner, weight.device_mesh, weight.placements, run_check=False, shape=weight.shape, stride=weight.stride()
    )
