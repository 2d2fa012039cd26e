"""The forms in which a row of data may hold a conversation, and how it becomes one.

A form is known by its columns. A row without one of them fits no form and is an error; one whose question or answer is
null or blank fits, and has nothing to learn.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..record.errors import ConfigError


class Message(NamedTuple):
    """One turn of a conversation."""

    role: str
    content: str


class Form(NamedTuple):
    """Columns that make a conversation: either `turns` alone, or a question and an answer."""

    turns: str = ""
    """The column with a list of turns; "" for a form of a question and an answer."""
    question: str = ""
    more: str = ""
    """A column that may come with the question, added below it."""
    answer: str = ""

    @property
    def needed(self) -> tuple[str, ...]:
        """Columns without which a row is not of this form."""
        return (self.turns,) if self.turns else (self.question, self.answer)

    @property
    def columns(self) -> tuple[str, ...]:
        """All its columns."""
        return (*self.needed, self.more) if self.more else self.needed


FORMS = (
    Form(turns="messages"),
    Form(turns="conversations"),
    Form(question="question", answer="answer"),
    Form(question="instruction", more="input", answer="output"),
    Form(question="prompt", answer="completion"),
    Form(question="prompt", answer="response"),
)
KNOWN = "messages; conversations; question, answer; instruction (input), output; prompt, completion or response"
"""The forms in words, for messages."""

_ROLES = {"human": "user", "gpt": "assistant"}
"""ShareGPT's names for roles; any other is a role's own."""


class MisfitError(ValueError):
    """A row that is no conversation, and why."""


class Reading(NamedTuple):
    """How rows are to be read: the forms to try in turn, and what the data calls their columns."""

    forms: tuple[Form, ...] = FORMS
    names: Mapping[str, str] = {}
    """Column of a form → the data's name for it, where that differs."""

    @property
    def columns(self) -> set[str]:
        """The data's names of all columns that matter."""
        return {self._name(column) for form in self.forms for column in form.columns}

    def conversation(self, row: Any) -> list[Message]:
        """A row's turns; none where its question or answer is null or blank. MisfitError where no form fits."""
        if not isinstance(row, Mapping):
            raise MisfitError(f"is no object with columns but {_kind(row)}")
        fitting = [form for form in self.forms if all(self._name(column) in row for column in form.needed)]
        if not fitting:
            wanted = " and ".join(self._name(column) for column in self.forms[0].needed)
            known = f"wanted are {wanted}" if self.names else f"known are {KNOWN}; others by --data-columns"
            raise MisfitError(f"fits no form: it has {', '.join(map(str, row)) or 'nothing'}, and {known}")
        filled = (form for form in fitting if all(row[self._name(column)] is not None for column in form.needed))
        turns = self._turns(row, next(filled, fitting[0]))
        answered = any(turn.role == "assistant" for turn in turns)
        whole = all(turn.content.strip() for turn in turns if turn.role != "system")
        return turns if answered and whole else []

    def _turns(self, row: Mapping[str, Any], form: Form) -> list[Message]:
        if form.turns:
            return _messages(row[self._name(form.turns)], self._name(form.turns))
        question, answer = (_text(row, self._name(column)) for column in form.needed)
        more = _text(row, self._name(form.more)) if form.more else ""
        asked = "\n\n".join(part for part in (question, more) if part)
        return [Message("user", asked), Message("assistant", answer)]

    def _name(self, column: str) -> str:
        return self.names.get(column, column)


def reading(columns: str | None) -> Reading:
    """How to read data with `--data-columns question=soru,answer=cevap`; ConfigError where that makes no form."""
    if columns is None:
        return Reading()
    names: dict[str, str] = {}
    for pair in columns.split(","):
        known, sign, name = (part.strip() for part in pair.partition("="))
        if not (known and sign and name) or known in names:
            raise ConfigError(
                f"--data-columns: {pair!r} is none of name=column once each, as in question=soru,answer=cevap"
            )
        names[known] = name
    forms = tuple(form for form in FORMS if names.keys() <= set(form.columns))
    if not forms:
        raise ConfigError(f"--data-columns: {', '.join(names)} are no columns of one form; known are {KNOWN}")
    return Reading(forms, names)


def _messages(turns: Any, column: str) -> list[Message]:
    """Turns with role and content, or with from and value."""
    if turns is None:
        return []
    if not isinstance(turns, list):
        raise MisfitError(f"has {_kind(turns)} in {column}, not a list of turns")
    found = []
    for number, turn in enumerate(turns, start=1):
        keys = [
            pair
            for pair in (("role", "content"), ("from", "value"))
            if isinstance(turn, Mapping) and {*pair} <= turn.keys()
        ]
        if not keys:
            raise MisfitError(f"has a turn {number} in {column} without role and content, or from and value")
        [(role, content), *_] = keys
        if not isinstance(turn[role], str):
            raise MisfitError(f"has {_kind(turn[role])} as {role} of turn {number} in {column}, not a text")
        found.append(Message(_ROLES.get(turn[role], turn[role]), _text(turn, content)))
    return found


def _text(row: Mapping[str, Any], column: str) -> str:
    """The text in a column, "" for null or where the column is absent."""
    value = row.get(column)
    if value is not None and not isinstance(value, str):
        raise MisfitError(f"has {_kind(value)} in {column}, not a text")
    return value or ""


def _kind(value: Any) -> str:
    kinds = {
        list: "a list",
        dict: "an object",
        bool: "a truth value",
        int: "a number",
        float: "a number",
        str: "a text",
    }
    return "null" if value is None else kinds.get(type(value), f"a {type(value).__name__}")
