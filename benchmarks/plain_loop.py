"""Tokens per second of our bf16 training loop against a plain loop of the same torch calls that records nothing.

Ours is `trainer.loop.train` as a run without a profiler calls it: ranges, step clock, steps file, scalars, progress
lines, telemetry, and every step's loss agreed on and read back on every rank. The plain loop is in this file, whole.
"""

import math
from contextlib import ExitStack

import torch
import torch.distributed as dist
import torch.nn.functional as F
from pairs import (
    LEFT_OUT,
    Asked,
    Ours,
    asked,
    interleaved,
    on_two_ranks,
    print_pairs,
    print_setting,
    print_throughput,
    spent,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig

from stepscope.trainer.batches import TrainingRows
from stepscope.trainer.config import Config
from stepscope.trainer.place import Place
from stepscope.trainer.shapes import SHAPES


class Plain:
    """Model, optimizer, schedule and loop as one would write them without us. Only the batches are made by our code."""

    def __init__(self, config: Config, here: Place, rows: TrainingRows) -> None:
        """The same weights, settings and rows as ours."""
        self.rows, self.world, self.config = rows, here.world, config
        torch.manual_seed(config.seed)
        model = AutoModelForCausalLM.from_config(LlamaConfig(**SHAPES[config.model]), dtype=torch.bfloat16)
        model.config.use_cache = False
        how = {
            "mesh": init_device_mesh(here.device.type, (here.world,)),
            "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16),
        }
        for unit in (model.model.embed_tokens, *model.model.layers, model.lm_head, model):
            fully_shard(unit, **how, reshard_after_forward=True)
        self.model = model.train()
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            weight_decay=config.weight_decay,
            fused=True,
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._factor)
        self.nll: list[torch.Tensor] = []
        """Σ NLL of this rank at each step so far; kept, never read back while the clock runs."""

    def _factor(self, done: int) -> float:
        warmup, steps = self.config.warmup_steps, self.config.steps
        if done < warmup:
            return (done + 1) / (warmup + 1)
        return 0.5 * (1 + math.cos(math.pi * (done - warmup) / max(1, steps - warmup)))

    def train(self, numbers: range) -> None:
        """The plain loop, over the steps of these numbers."""
        for number in numbers:
            [batch], tokens_of_all = self.rows.step(number)
            logits = self.model(input_ids=batch.inputs, use_cache=False).logits
            loss = F.cross_entropy(logits.flatten(0, 1).float(), batch.labels.flatten(), reduction="sum")
            (loss * (self.world / tokens_of_all)).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.schedule.step()
            self.nll.append(loss.detach())

    def losses(self) -> list[float]:
        """Σ NLL / Σ unmasked tokens over all ranks, of every step so far."""
        nll = torch.stack(self.nll).double()
        dist.all_reduce(nll)
        return [total / self.rows.step(number)[1] for number, total in enumerate(nll.tolist(), start=1)]


def measure(here: Place, what: Asked) -> None:
    """Train both loops in turns; the first rank prints what came out."""
    with ExitStack() as stack:
        ours = Ours(what, here, stack)
        plain = Plain(ours.config, here, ours.job.rows)
        if here.rank == 0:
            print_setting("plain_loop: our training loop against a plain one", what)
        pairs = interleaved(what.blocks, ours.spent, lambda block: spent(lambda: plain.train(block)))
        found, expected = ours.losses(), plain.losses()
        assert found == expected, "the two loops did not train the same"
        if here.rank == 0:
            print_pairs(pairs[LEFT_OUT:], what, ours="ours", theirs="plain")
            print(f"losses equal, bit for bit, at all {len(found)} steps: {found[0]:.4f} to {found[-1]:.4f}\n")
            tokens = ours.tokens_per_block(what.blocks)[LEFT_OUT:]
            print_throughput(pairs[LEFT_OUT:], tokens, ours="ours", theirs="plain")


if __name__ == "__main__":
    what = asked(__doc__, block=4, pairs=80)
    on_two_ranks(__file__, lambda here: measure(here, what))
