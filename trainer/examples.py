"""Conversations from JSONL, and their tokens: which positions are answers and count in the loss.

A line has `messages` (a list of role and content), or `question` and `answer`, or `instruction` (with an optional
`input`) and `output`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ..record.errors import ConfigError, TraceError


class Message(msgspec.Struct, frozen=True):
    """One turn of a conversation."""

    role: str
    content: str


class Line(msgspec.Struct, frozen=True):
    """One line of a data file, in any of the known forms."""

    messages: list[Message] | None = None
    question: str | None = None
    answer: str | None = None
    instruction: str | None = None
    input: str | None = None
    output: str | None = None

    def conversation(self) -> list[Message] | None:
        """Its turns; None where no form is complete."""
        if self.messages is not None:
            return self.messages
        if self.question is not None and self.answer is not None:
            return [Message("user", self.question), Message("assistant", self.answer)]
        if self.instruction is not None and self.output is not None:
            prompt = "\n\n".join(part for part in (self.instruction, self.input) if part)
            return [Message("user", prompt), Message("assistant", self.output)]
        return None


class Example(NamedTuple):
    """One conversation as tokens, int32. `labels[i]` is the token to predict at position i, or IGNORED."""

    inputs: npt.NDArray[np.int32]
    labels: npt.NDArray[np.int32]
    tokens: int
    """Positions that count in the loss."""
    truncated: bool


IGNORED = -100
"""The label of a position that does not count, as torch's cross-entropy has it."""


def read_conversations(path: Path) -> Iterator[list[Message]]:
    """The conversations of a JSONL file in order; TraceError names the line that is none."""
    decoder = msgspec.json.Decoder(Line)
    with path.open("rb") as file:
        for number, text in enumerate(file, start=1):
            if not text.strip():
                continue
            try:
                turns = decoder.decode(text).conversation()
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise TraceError(path, f"line {number} is no example ({error})") from None
            if not turns or all(turn.role != "assistant" for turn in turns):
                raise TraceError(
                    path,
                    f"line {number} has no answer to learn: it needs messages with an assistant's turn, question and "
                    "answer, or instruction and output",
                )
            yield turns


def tokenize(turns: list[Message], tokenizer: Any, seq_len: int) -> Example:
    """Tokens of a conversation by the chat template, cut to `seq_len` positions; the assistant's turns count."""
    ids: list[int] = []
    counts: list[bool] = []
    for end, turn in enumerate(turns, start=1):
        if turn.role != "assistant":
            continue
        asked = _template(turns[: end - 1], tokenizer, ask=True)
        told = _template(turns[:end], tokenizer, ask=False)
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
    ids: list[int] = tokenizer.apply_chat_template(chat, add_generation_prompt=ask, return_dict=False)
    return ids
