"""Which tokens count, which rows come when: the data of a training run."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from stepscope.record.errors import ConfigError
from stepscope.trainer.batches import Batch, HeldOutRows, Layout, Row, TrainingRows, load_dataset
from stepscope.trainer.examples import IGNORED, tokenize
from stepscope.trainer.forms import Message
from stepscope.trainer.tokens import byte_tokenizer

BOS, END, USER, ASSISTANT = 257, 258, 260, 261


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return byte_tokenizer()


@pytest.fixture
def layout() -> Layout:
    return Layout(
        rank=0, world=2, micro_batch=2, accumulation=3, seq_len=64, pad=256, pack=False, device=torch.device("cpu")
    )


def rows_of(qa_file: Path, tokenizer: Any, *, pack: bool = False, seq_len: int = 64) -> list[Row]:
    return load_dataset(qa_file, tokenizer, seq_len=seq_len, held_out=20, pack=pack).training


def contents(batches: list[Batch]) -> Counter[bytes]:
    return Counter(row.numpy().tobytes() for batch in batches for row in batch.inputs)


def test_the_byte_tokenizer_gives_back_any_text(tokenizer: Any) -> None:
    text = "Çığ düşmesi: ölçüt ≥ 3 m\n\tİŞ"
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) == len(text.encode())
    assert max(ids) < 256
    assert tokenizer.decode(ids) == text


def test_only_the_answer_counts_and_each_label_is_the_next_token(tokenizer: Any) -> None:
    example = tokenize([Message("user", "ab"), Message("assistant", "c")], tokenizer, 64)
    a, b, c = (tokenizer.encode(letter)[0] for letter in "abc")
    assert example.inputs.tolist() == [BOS, USER, a, b, END, ASSISTANT, c]
    assert example.labels.tolist() == [IGNORED, IGNORED, IGNORED, IGNORED, IGNORED, c, END]
    assert (example.tokens, example.truncated) == (2, False)


def test_every_turn_of_the_assistant_counts(tokenizer: Any) -> None:
    turns = [Message("user", "a"), Message("assistant", "b"), Message("user", "c"), Message("assistant", "d")]
    b, d = (tokenizer.encode(letter)[0] for letter in "bd")
    counted = [label for label in tokenize(turns, tokenizer, 64).labels.tolist() if label != IGNORED]
    assert counted == [b, END, d, END]


def test_a_turn_of_the_assistant_that_opens_a_conversation_answers_nothing(tokenizer: Any) -> None:
    turns = [Message("assistant", "a"), Message("user", "b"), Message("assistant", "c")]
    example = tokenize(turns, tokenizer, 64)
    assert [label for label in example.labels.tolist() if label != IGNORED] == [tokenizer.encode("c")[0], END]
    assert len(example.inputs) == len(tokenizer.apply_chat_template(turns_of(turns), return_dict=False)) - 1
    assert tokenize(turns[:1], tokenizer, 64).tokens == 0


def turns_of(turns: list[Message]) -> list[dict[str, str]]:
    return [turn._asdict() for turn in turns]


def test_turns_that_a_chat_template_refuses_are_named_in_one_line() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('roles must\nalternate') }}"
    with pytest.raises(ConfigError, match="refuses turns of user, assistant: roles must; leave such"):
        tokenize([Message("user", "a"), Message("assistant", "b")], tokenizer, 64)


def test_a_long_example_is_cut_to_the_positions_there_are(tokenizer: Any) -> None:
    example = tokenize([Message("user", "ab"), Message("assistant", "cdefgh")], tokenizer, 8)
    assert (len(example.inputs), len(example.labels), example.tokens, example.truncated) == (8, 8, 3, True)


def test_more_held_out_than_there_is_is_refused(qa_file: Path, tokenizer: Any) -> None:
    with pytest.raises(ConfigError, match="--eval-samples"):
        load_dataset(qa_file, tokenizer, seq_len=64, held_out=120, pack=False)


def test_a_step_trains_on_the_same_rows_however_they_are_split(qa_file: Path, tokenizer: Any, layout: Layout) -> None:
    rows = rows_of(qa_file, tokenizer)
    for number in (1, 9, 10):
        alone = replace(layout, world=1, micro_batch=12, accumulation=1)
        whole, tokens = TrainingRows(rows, alone, seed=7).step(number)
        split = [TrainingRows(rows, replace(layout, rank=rank), seed=7).step(number) for rank in range(2)]
        assert contents(whole) == contents([batch for batches, _ in split for batch in batches])
        assert [of_all for _, of_all in split] == [tokens, tokens]
        assert sum(batch.tokens for batches, _ in split for batch in batches) == tokens


def test_each_pass_over_the_data_uses_every_row_once_in_an_order_of_its_own(
    qa_file: Path, tokenizer: Any, layout: Layout
) -> None:
    rows = rows_of(qa_file, tokenizer)
    alone = TrainingRows(rows, replace(layout, world=1, micro_batch=10, accumulation=1), seed=7)
    passes = [[alone.step(number)[0][0] for number in range(first, first + 10)] for first in (1, 11)]
    assert len(rows) == 100
    assert contents(passes[0]) == contents(passes[1])
    assert not torch.equal(passes[0][0].inputs, passes[1][0].inputs)


def test_the_seed_draws_the_order(qa_file: Path, tokenizer: Any, layout: Layout) -> None:
    rows = rows_of(qa_file, tokenizer)
    first = [TrainingRows(rows, layout, seed=seed).step(1)[0][0].inputs for seed in (7, 7, 8)]
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])


def test_packing_loses_no_token_and_starts_positions_anew_for_each_example(
    qa_file: Path, tokenizer: Any, layout: Layout
) -> None:
    apart, packed = (rows_of(qa_file, tokenizer, pack=pack, seq_len=256) for pack in (False, True))
    assert sum(example.tokens for row in packed for example in row) == sum(row[0].tokens for row in apart)
    assert len(packed) < len(apart) / 3
    one = replace(layout, world=1, micro_batch=1, accumulation=1, seq_len=256, pack=True)
    batch = one.batch([packed[0]])
    assert batch.positions is not None
    starts = [0]
    for example in packed[0]:
        starts.append(starts[-1] + len(example.inputs))
    assert (batch.positions[0] == 0).nonzero().flatten().tolist() == starts
    assert batch.inputs[0, starts[:-1]].tolist() == [BOS] * len(packed[0])


def test_every_rank_evaluates_as_many_batches_and_each_row_once(qa_file: Path, tokenizer: Any, layout: Layout) -> None:
    held_out = load_dataset(qa_file, tokenizer, seq_len=64, held_out=5, pack=False).held_out
    ranks = [HeldOutRows(held_out, replace(layout, rank=rank)) for rank in range(2)]
    assert [len(rank) for rank in ranks] == [2, 2]
    batches = [rank[index] for rank in ranks for index in range(2)]
    assert sum(batch.tokens for batch in batches) == sum(row[0].tokens for row in held_out)
    assert all(batch.inputs.shape == (2, 64) for batch in batches)
    assert sum(int((batch.labels != IGNORED).sum()) for batch in batches) == sum(batch.tokens for batch in batches)
