"""The trained model as bf16 safetensors with its configuration and tokenizer, for `transformers` to load.

FP8 layers keep their weights in bf16, under the names of the layers they replaced, so nothing of the recipe is left.
"""

from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from .sharding import unwrapped


def save_model(model: Any, tokenizer: Any, folder: Path, *, rank: int) -> None:
    """Gather the weights on the first rank, one after the other, and write them to `folder`. All ranks call it."""
    weights: dict[str, torch.Tensor] = {}
    for name, weight in get_model_state_dict(model).items():
        whole = unwrapped(weight).full_tensor()
        if rank == 0:
            weights[name] = whole.to("cpu", torch.bfloat16)
    if rank:
        return
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    with torch.device("meta"):
        shell = AutoModelForCausalLM.from_config(model.config, dtype=torch.bfloat16)
    shell.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
