"""Llama shapes that need no download: trained from random weights with the byte-level tokenizer.

The large ones have the dimensions that Meta's Llama 3.1 and 3.2 model configurations publish, so that time and memory
are those of the real model; `tiny` and `pico` are for CPUs and tests.
"""

from typing import Any

_LLAMA_3: dict[str, Any] = {
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "num_key_value_heads": 8,
}
_ROPE: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}

SHAPES: dict[str, dict[str, Any]] = {
    "pico": {
        "vocab_size": 272,
        "hidden_size": 128,
        "intermediate_size": 352,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
    },
    "tiny": {
        "vocab_size": 272,
        "hidden_size": 256,
        "intermediate_size": 672,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
    },
    "llama-1b": {
        **_LLAMA_3,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "head_dim": 64,
        "tie_word_embeddings": True,
        "rope_parameters": {**_ROPE, "factor": 32.0},
    },
    "llama-3b": {
        **_LLAMA_3,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "head_dim": 128,
        "tie_word_embeddings": True,
        "rope_parameters": {**_ROPE, "factor": 32.0},
    },
    "llama-8b": {
        **_LLAMA_3,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "head_dim": 128,
        "rope_parameters": {**_ROPE, "factor": 8.0},
    },
}
"""Name → the arguments of `transformers.LlamaConfig`."""
