"""Tokens per second of our bf16 training loop against `transformers.Trainer` with FSDP2 through accelerate.

The same weights, rows, AdamW, clipping, cosine, loss and precision (bf16 weights, FSDP2 computing and reducing in bf16,
no autocast). accelerate shards on accelerators only: on CPUs it wraps the model in DDP, without a word, whatever was
asked for; and it knows no unit for the embedding and the output layer, so both sides shard the model as one. `Sharded`
puts in by hand what accelerate itself would have, and all that follows is accelerate's own FSDP2.
"""

from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from pairs import (
    LEFT_OUT,
    Asked,
    Ours,
    Pair,
    Spent,
    Stopwatch,
    asked,
    on_two_ranks,
    print_pairs,
    print_setting,
    print_throughput,
)
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from stepscope.trainer.config import Config
from stepscope.trainer.examples import IGNORED
from stepscope.trainer.models import build_model
from stepscope.trainer.place import Place


class Rows(Dataset):
    """The rows that ours trains on, padded and in memory, where Trainer's sequential sampler looks for them."""

    def __init__(self, ours: Ours, steps: int) -> None:
        """Those of this rank; the other's are never asked for."""
        self._here, self._per_batch = ours.here, ours.config.micro_batch
        batches = [ours.job.rows.step(number)[0][0] for number in range(1, steps + 1)]
        self._rows = [
            {"input_ids": inputs, "labels": labels}
            for batch in batches
            for inputs, labels in zip(batch.inputs, batch.labels, strict=True)
        ]

    def __len__(self) -> int:
        """Rows of all ranks."""
        return len(self._rows) * self._here.world

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """A row: `input_ids` and `labels`, both of shape (seq_len,)."""
        batch, row = divmod(index, self._per_batch)
        step, rank = divmod(batch, self._here.world)
        assert rank == self._here.rank
        return self._rows[step * self._per_batch + row]


class Sharded(Trainer):
    """Trainer, with accelerate's FSDP2 on CPUs, our loss, and weight decay on all weights as ours has it."""

    nll: list[torch.Tensor]
    """Σ NLL of this rank at each step so far; kept, never read back while the clock runs."""

    def create_accelerator_and_postprocess(self) -> None:
        """What accelerate's AcceleratorState does for each kind of accelerator when it is given an FSDP plugin."""
        super().create_accelerator_and_postprocess()
        state = self.accelerator.state
        self.found = f"distributed_type {state.distributed_type.value}, is_fsdp2 {self.accelerator.is_fsdp2}"
        if state.distributed_type is DistributedType.MULTI_CPU:
            state.distributed_type = DistributedType.FSDP
            state.fsdp_plugin = FullyShardedDataParallelPlugin(**self.args.fsdp_plugin_args)
            self.is_fsdp_enabled = True
        state.fsdp_plugin.transformer_cls_names_to_wrap = []  # the model is one unit, as in ours
        state.fsdp_plugin.mixed_precision_policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        """All of them."""
        return [name for name, _ in model.named_parameters()]

    def loss(self, outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor) -> torch.Tensor:
        """Σ NLL of this rank / unmasked tokens of all; Trainer multiplies by the ranks. Labels are shifted already."""
        logits = outputs.logits.flatten(0, 1).float()
        nll = F.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")
        self.nll.append(nll.detach())
        return nll / num_items_in_batch

    def losses(self, ours: Ours) -> list[float]:
        """Σ NLL / Σ unmasked tokens over all ranks, of every step so far."""
        nll = torch.stack(self.nll).double()
        dist.all_reduce(nll)
        return [total / ours.job.rows.step(number)[1] for number, total in enumerate(nll.tolist(), start=1)]


class Turns(TrainerCallback):
    """Lets Trainer and ours take turns: ours, Trainer, Trainer, ours, ours, Trainer, ..."""

    def __init__(self, ours: Ours, what: Asked) -> None:
        """Nothing has run yet."""
        self._ours, self._what = ours, what
        self.ours_spent: list[Spent] = []
        self.theirs_spent: list[Spent] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Ours goes first."""
        self._ours_through(0)
        self._watch = Stopwatch()

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        """At the end of a block, and before Trainer goes on, ours does the blocks that are its turn."""
        if state.global_step % self._what.block:
            return
        self.theirs_spent.append(self._watch.read())
        done = len(self.theirs_spent)
        if done % 2 == 0:
            self._ours_through(min(done, len(self._what.blocks) - 1))
        self._watch = Stopwatch()

    def _ours_through(self, last: int) -> None:
        for numbers in self._what.blocks[len(self.ours_spent) : last + 1]:
            self.ours_spent.append(self._ours.spent(numbers))


def trainer_for(config: Config, ours: Ours, here: Place) -> Sharded:
    """Trainer with the settings that ours has. It logs nothing: its fastest."""
    arguments = TrainingArguments(
        output_dir=str(ours.run.path / "trainer"),
        use_cpu=True,
        fsdp=True,
        fsdp_config={"version": 2},
        max_steps=config.steps,
        per_device_train_batch_size=config.micro_batch,
        train_sampling_strategy="sequential",
        optim="adamw_torch_fused",
        learning_rate=config.lr,
        adam_beta1=config.betas[0],
        adam_beta2=config.betas[1],
        adam_epsilon=config.eps,
        weight_decay=config.weight_decay,
        max_grad_norm=config.clip,
        lr_scheduler_type="cosine",
        warmup_steps=0,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Sharded(
        model=build_model(config.model, seed=config.seed, device=here.device),
        args=arguments,
        train_dataset=Rows(ours, config.steps),
        compute_loss_func=lambda *given, **named: trainer.loss(*given, **named),
    )
    trainer.nll = []
    return trainer


def measure(here: Place, what: Asked) -> None:
    """Train both in turns; the first rank prints what came out."""
    with ExitStack() as stack:
        ours = Ours(what, here, stack, warmup_steps=0, wrap="whole")
        trainer = trainer_for(ours.config, ours, here)
        turns = Turns(ours, what)
        trainer.add_callback(turns)
        if here.rank == 0:
            print_setting("against_trainer: ours against transformers.Trainer with FSDP2", what, "accelerate")
            print(f"asked for FSDP2 on CPUs, accelerate by itself has set: {trainer.found}; FSDP2 was put in by hand\n")
        trainer.train()
        units = sum(isinstance(module, FSDPModule) for module in trainer.model.modules())
        assert units > 1, "Trainer's model is not sharded"
        found, expected = ours.losses(), trainer.losses(ours)
        if here.rank == 0:
            pairs = [Pair(*both) for both in zip(turns.ours_spent, turns.theirs_spent, strict=True)][LEFT_OUT:]
            print_pairs(pairs, what, ours="ours", theirs="Trainer")
            same = sum(one == two for one, two in zip(found, expected, strict=True))
            apart = max(abs(one - two) for one, two in zip(found, expected, strict=True))
            print(f"losses equal, bit for bit, at {same} of {len(found)} steps; largest difference {apart:.2g}")
            print(f"from {found[0]:.4f} to {found[-1]:.4f} and from {expected[0]:.4f} to {expected[-1]:.4f}\n")
            print_throughput(pairs, ours.tokens_per_block(what.blocks)[LEFT_OUT:], ours="ours", theirs="Trainer")


if __name__ == "__main__":
    what = asked(__doc__, block=4, pairs=60)
    on_two_ranks(__file__, lambda here: measure(here, what))
