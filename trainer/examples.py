"""Conversations from files or the hub, and their tokens: which positions are answers and count in the loss."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jinja2 import TemplateError

from ..record.errors import ConfigError, TraceError, first_line
from .forms import Message, MisfitError, Reading
from .hub import HubSplit, is_hub_id
from .shards import Shards


class Example(NamedTuple):
    """One conversation as tokens, int32. `labels[i]` is the token to predict at position i, or IGNORED."""

    inputs: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    tokens: int
    """Positions that count in the loss."""
    truncated: bool


IGNORED = -100
"""The label of a position that does not count, as torch's cross-entropy has it."""

_ANY_FORM = Reading()


def data_source(path: Path, split: str | None = None) -> Shards | HubSplit:
    """What `--data` names: files here, else a data set of the hub. ConfigError where it is neither."""
    if path.exists():
        if split is not None:
            raise ConfigError(f"--data-split: {path} is read whole; splits are those of data sets of the hub")
        return Shards(path)
    if is_hub_id(path):
        return HubSplit(path, split)
    raise ConfigError(f"--data: there is no file or folder {path}")


def read_conversations(source: Shards | HubSplit, reading: Reading = _ANY_FORM) -> Iterator[list[Message]]:
    """The conversations of all rows in order, an empty one where a row has no answer.

    TraceError names the row that fits no form.
    """
    for file, place, row in source.rows(reading.columns):
        try:
            yield reading.conversation(row)
        except MisfitError as error:
            raise TraceError(file, f"{place} {error}") from None


def tokenize(turns: list[Message], tokenizer: Any, seq_len: int) -> Example:
    """Tokens of a conversation by the chat template, cut to `seq_len` positions; the assistant's turns count.

    A turn of the assistant that opens the conversation answers nothing, and does not count.
    """
    ids: list[int] = []
    counts: list[bool] = []
    for end, turn in enumerate(turns, start=1):
        if turn.role != "assistant":
            continue
        told = _template(turns[:end], tokenizer, ask=False)
        if end == 1:
            ids, counts = told, [False] * len(told)
            continue
        asked = _template(turns[: end - 1], tokenizer, ask=True)
        if told[: len(asked)] != asked or asked[: len(ids)] != ids:
            raise ConfigError(
                "--model: its chat template writes earlier turns differently once an answer follows, so that answers "
                "cannot be told from prompts; use another model's tokenizer"
            )
        counts += [False] * (len(asked) - len(ids)) + [True] * (len(told) - len(asked))
        ids = told
    inputs = np.array(ids[:-1], np.int32)[:seq_len]
    labels = np.where(counts[1:], ids[1:], IGNORED).astype(np.int32)[:seq_len]
    return Example(inputs, labels, int((labels != IGNORED).sum()), truncated=len(ids) - 1 > seq_len)


def _template(turns: list[Message], tokenizer: Any, *, ask: bool) -> list[int]:
    chat = [{"role": turn.role, "content": turn.content} for turn in turns]
    try:
        ids: list[int] = tokenizer.apply_chat_template(chat, add_generation_prompt=ask, return_dict=False)
    except (TemplateError, ValueError) as error:
        roles = ", ".join(turn.role for turn in turns[:8])
        raise ConfigError(
            f"--data: the chat template of --model refuses turns of {roles}: {first_line(error)}; leave such "
            "conversations out, or use another model's tokenizer"
        ) from None
    return ids
