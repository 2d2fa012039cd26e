"""Which rows every rank trains on at every step: a pure function of the data, the seed and the step number.

The rows of one step are the same set for any split of the same total batch over ranks and micro-batches. Every rank
knows the whole order, so that the count of unmasked tokens over all ranks costs no communication.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ..record.errors import ConfigError
from .examples import IGNORED, Example, data_source, read_conversations, tokenize
from .forms import reading

Row = tuple[Example, ...]
"""One example, or several packed, that share `seq_len` positions."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One micro-batch of one rank: tensors of shape (rows, seq_len), int64."""

    inputs: torch.Tensor
    labels: torch.Tensor
    positions: torch.Tensor | None
    """Position within its own example; None where a row holds one example."""
    tokens: int
    """Positions of `labels` that count in the loss."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How rows become batches: this rank's place, and the batch's shape."""

    rank: int
    world: int
    micro_batch: int
    accumulation: int
    seq_len: int
    pad: int
    """The token id of padding."""
    pack: bool
    device: torch.device

    @property
    def rows_per_step(self) -> int:
        """Rows of one optimizer step over all ranks: the total batch."""
        return self.micro_batch * self.accumulation * self.world

    def batch(self, rows: list[Row]) -> Batch:
        """Rows as padded tensors on the device; rows that lack to a full micro-batch are all padding."""
        shape = (self.micro_batch, self.seq_len)
        inputs, labels = torch.full(shape, self.pad), torch.full(shape, IGNORED)
        positions = torch.arange(self.seq_len).repeat(self.micro_batch, 1) if self.pack else None
        for index, row in enumerate(rows):
            at = 0
            for example in row:
                end = at + len(example.inputs)
                inputs[index, at:end] = torch.from_numpy(example.inputs)
                labels[index, at:end] = torch.from_numpy(example.labels)
                if positions is not None:
                    positions[index, at:] = torch.arange(self.seq_len - at)
                at = end
            if positions is not None:
                positions[index, at:] = torch.arange(self.seq_len - at)
        return Batch(
            inputs=inputs.to(self.device),
            labels=labels.to(self.device),
            positions=None if positions is None else positions.to(self.device),
            tokens=_tokens(rows),
        )


class TrainingRows:
    """The training rows, in an order drawn anew for each pass over them."""

    def __init__(self, rows: list[Row], layout: Layout, seed: int) -> None:
        """`rows` in file order; `seed` draws the orders."""
        self._rows = rows
        self._layout = layout
        self._order = lru_cache(maxsize=2)(lambda epoch: _shuffled(len(rows), seed, epoch))

    @property
    def positions_per_step(self) -> int:
        """Positions of this rank in one step, padding included."""
        return self._layout.micro_batch * self._layout.accumulation * self._layout.seq_len

    def step(self, number: int) -> tuple[list[Batch], int]:
        """This rank's micro-batches of step `number` (from 1), and the unmasked tokens of all ranks' together."""
        layout = self._layout
        first = (number - 1) * layout.rows_per_step
        rows = [self._row(first + offset) for offset in range(layout.rows_per_step)]
        stride = layout.micro_batch * layout.world
        starts = [micro * stride + layout.rank * layout.micro_batch for micro in range(layout.accumulation)]
        return [layout.batch(rows[start : start + layout.micro_batch]) for start in starts], _tokens(rows)

    def _row(self, place: int) -> Row:
        epoch, offset = divmod(place, len(self._rows))
        return self._rows[self._order(epoch)[offset]]


class HeldOutRows:
    """The evaluation rows, split evenly: every rank has as many batches, the last ones padded with nothing to learn."""

    def __init__(self, rows: list[Row], layout: Layout) -> None:
        """`rows` in file order."""
        self._rows = rows
        self._layout = layout

    def __len__(self) -> int:
        """Batches per rank."""
        return -(-len(self._rows) // (self._layout.micro_batch * self._layout.world))

    def __getitem__(self, index: int) -> Batch:
        """This rank's batch `index`."""
        if not 0 <= index < len(self):
            raise IndexError(index)
        size = self._layout.micro_batch
        start = (index * self._layout.world + self._layout.rank) * size
        return self._layout.batch(self._rows[start : start + size])


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Data as rows, with what was found in it."""

    training: list[Row]
    held_out: list[Row]
    facts: dict[str, Any]


def load_dataset(
    path: Path,
    tokenizer: Any,
    *,
    seq_len: int,
    held_out: int,
    pack: bool,
    split: str | None = None,
    columns: str | None = None,
) -> Dataset:
    """Read, tokenize, hold out the last `held_out` examples, lay the rest in rows. ConfigError where none is left.

    `path`, `split` and `columns` are those of `--data`, `--data-split` and `--data-columns`.
    """
    source, forms = data_source(path, split), reading(columns)
    examples = [tokenize(turns, tokenizer, seq_len) for turns in read_conversations(source, forms)]
    answered = [example for example in examples if len(example.inputs)]
    usable = [example for example in answered if example.tokens]
    if len(usable) <= held_out:
        raise ConfigError(
            f"--data: {path} has {len(usable)} examples with an answer within --seq-len {seq_len}, and --eval-samples "
            f"holds out {held_out}; give more data, a longer --seq-len, or hold out fewer"
        )
    cut = len(usable) - held_out
    training = _rows(usable[:cut], seq_len, pack=pack)
    positions = len(training) * seq_len
    filled = sum(len(example.inputs) for row in training for example in row)
    facts = {
        **source.facts(forms.columns),
        "examples": len(examples),
        "without_answer": len(examples) - len(answered),
        "without_answer_in_seq_len": len(answered) - len(usable),
        "truncated": sum(example.truncated for example in usable),
        "training_rows": len(training),
        "training_tokens": _tokens(training),
        "padded_share": round(1 - filled / positions, 4),
        "held_out_examples": held_out,
    }
    return Dataset(training=training, held_out=_rows(usable[cut:], seq_len, pack=pack), facts=facts)


def _rows(examples: list[Example], seq_len: int, *, pack: bool) -> list[Row]:
    if not pack:
        return [(example,) for example in examples]
    rows: list[list[Example]] = []
    room = 0
    for example in examples:
        if len(example.inputs) > room:
            rows.append([])
            room = seq_len
        rows[-1].append(example)
        room -= len(example.inputs)
    return [tuple(row) for row in rows]


def _shuffled(size: int, seed: int, epoch: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order: list[int] = torch.randperm(size, generator=generator).tolist()
    return order


def _tokens(rows: list[Row]) -> int:
    return sum(example.tokens for row in rows for example in row)
