"""The model: a Llama of transformers in bf16, from a shape with seeded random weights or from pretrained ones."""

import warnings
from typing import Any

import torch
from torch import nn

from ..record.errors import ConfigError, first_line
from .shapes import SHAPES

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


def build_model(name: str, *, seed: int, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    """The whole model on this device, the same on every rank and for every recipe. ConfigError where none loads.

    The dtype is given to the constructor, not cast to afterwards: a cast would round the rotary frequencies too.
    """
    from transformers import AutoModelForCausalLM, LlamaConfig

    model: Any
    torch.manual_seed(seed)
    if name in SHAPES:
        with device:
            model = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPES[name]), dtype=dtype)
    else:
        try:
            model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
        except (OSError, ValueError, ImportError) as error:
            raise ConfigError(f"--model {name}: does not load: {first_line(error)}") from None
    model.config.use_cache = False
    return _checked(model.to(device).train(), name)


def model_facts(model: nn.Module, name: str) -> dict[str, Any]:
    """What the manifest says about the model. To be asked before sharding."""
    config: Any = model.config
    fields = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
    return {
        "name": name,
        "architecture": type(model).__name__,
        "weights": "random" if name in SHAPES else "pretrained",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocab_size": config.vocab_size,
        "tied_embeddings": bool(config.tie_word_embeddings),
        "attention": config._attn_implementation,
        "head_dim": getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        **{field: getattr(config, field, None) for field in fields},
    }


def checkpoint_activations(model: Any) -> None:
    """Recompute each layer's activations in the backward pass instead of keeping them."""
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable({"use_reentrant": False})
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable({"use_reentrant": False})


def _checked(model: nn.Module, name: str) -> nn.Module:
    layers = getattr(getattr(model, "model", None), "layers", None)
    if not isinstance(layers, nn.ModuleList) or not hasattr(model.model, "embed_tokens"):
        raise ConfigError(
            f"--model {name}: is a {type(model).__name__}; this trainer knows models laid out as Llama is"
        )
    return model
