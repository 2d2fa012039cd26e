"""Which steps a profiler records, and on which ranks: spans of steps, each after some steps of warm-up.

Steps are counted from 1.
"""

import re
from dataclasses import dataclass, replace
from typing import Literal, Self

from ..record.errors import ConfigError

Action = Literal["NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"]
"""As torch.profiler's `ProfilerAction` calls them."""

MOST_PROFILED = 8
"""Ranks that are all recorded unless told otherwise; of more, the first of each machine."""

Span = tuple[int, int]
"""The first and the last step of a span; both are recorded."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Spans in order, none overlapping another. The profiler is on, unrecorded, in the `warmup` steps before each."""

    spans: tuple[Span, ...]
    warmup: int = 1

    @classmethod
    def cycles(cls, *, wait: int, warmup: int, active: int, repeat: int = 1, after: int = 0) -> Self:
        """`repeat` times: `wait` steps without the profiler, `warmup` unrecorded, `active` recorded; after `after`."""
        length = wait + warmup + active
        firsts = [after + cycle * length + wait + warmup + 1 for cycle in range(repeat)]
        return cls(spans=tuple((first, first + active - 1) for first in firsts), warmup=warmup)

    @classmethod
    def at(cls, text: str, *, warmup: int = 1) -> Self:
        """`10:15,100:105` as spans, or `7` for one step. ConfigError where the text is no such list."""
        spans: list[Span] = []
        for part in text.split(","):
            match = re.fullmatch(r"(\d+)(?::(\d+))?", part.strip())
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
            if not 1 <= first <= last or (spans and first <= spans[-1][1]):
                raise ConfigError(
                    f"{text!r} are no spans of steps: write first:last, counted from 1, in order, like 10:15,100:105"
                )
            spans.append((first, last))
        return cls(spans=tuple(spans), warmup=warmup)

    @property
    def last(self) -> int:
        """The last recorded step; 0 if there is none."""
        return self.spans[-1][1] if self.spans else 0

    def action(self, step: int) -> Action:
        """What the profiler does during a step."""
        for first, last in self.spans:
            if first <= step <= last:
                return "RECORD_AND_SAVE" if step == last else "RECORD"
        if any(first - self.warmup <= step < first for first, _ in self.spans):
            return "WARMUP"
        return "NONE"

    def opens(self, step: int) -> bool:
        """Whether a span begins with `step`."""
        return any(step == first for first, _ in self.spans)

    def prepares(self, step: int) -> int | None:
        """The first step of the span that `step` warms up for, or opens; None if it does neither."""
        return next((first for first, _ in self.spans if first - self.warmup <= step <= first), None)

    def cut(self, first: int, steps: int) -> Self:
        """The same with the span that begins at `first` no longer than `steps`; none if that is 0."""
        spans = [(begin, min(last, begin + steps - 1) if begin == first else last) for begin, last in self.spans]
        return replace(self, spans=tuple((begin, last) for begin, last in spans if begin <= last))

    def probing(self, longest: int) -> Self:
        """The same, but where the first span has more than `longest` steps, its first step is a span of its own."""
        if not self.spans or self.steps_of(self.spans[0][0]) <= longest:
            return self
        (first, last), *others = self.spans
        return replace(self, spans=((first, first), (first + 1, last), *others))

    def steps_of(self, first: int) -> int:
        """Steps of the span that begins at `first`."""
        return next(last - begin + 1 for begin, last in self.spans if begin == first)


def recording_ranks(text: str | None, *, world: int, local_world: int) -> set[int]:
    """Which ranks run torch.profiler: `all`, `first` of each machine, or numbers. ConfigError for any other text."""
    if text is None:
        text = "all" if world <= MOST_PROFILED else "first"
    if text in ("all", "first"):
        return set(range(0, world, 1 if text == "all" else local_world))
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) < world for word in words):
        raise ConfigError(f"--profile-ranks: all, first, or ranks below {world} like 0,3; not {text!r}")
    return {int(word) for word in words}
