"""Evaluation on held-out examples, over all ranks.

loss = Σ NLL / Σ unmasked tokens; perplexity = exp(loss); accuracy = correct next tokens / unmasked tokens.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

from .batches import Batch, HeldOutRows
from .examples import IGNORED


class Evaluation(NamedTuple):
    """What one evaluation found, the same on every rank."""

    loss: float
    perplexity: float | None
    """None where it exceeds what a float can hold."""
    accuracy: float


def answer_logits(model: Any, batch: Batch) -> torch.Tensor:
    """The model's logits in float32, shape (rows · seq_len, vocabulary)."""
    output = model(input_ids=batch.inputs, position_ids=batch.positions, use_cache=False)
    logits: torch.Tensor = output.logits
    return logits.flatten(0, 1).float()


def summed_loss(logits: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Σ NLL over the batch's unmasked tokens: a scalar in float32."""
    return F.cross_entropy(logits, batch.labels.flatten(), ignore_index=IGNORED, reduction="sum")


@torch.no_grad()
def evaluate(model: Any, held_out: HeldOutRows, device: torch.device) -> Evaluation:
    """One pass over the held-out rows. All ranks call it together."""
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    model.eval()
    for index in range(len(held_out)):
        batch = held_out[index]
        logits = answer_logits(model, batch)
        correct = (logits.argmax(-1) == batch.labels.flatten()).sum()
        sums += torch.stack([summed_loss(logits, batch), correct, (batch.labels != IGNORED).sum()]).double()
    model.train()
    dist.all_reduce(sums)
    nll, correct_tokens, tokens = sums.tolist()
    loss = nll / tokens
    return Evaluation(loss, math.exp(loss) if loss < 700 else None, correct_tokens / tokens)
