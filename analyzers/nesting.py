"""How ranges on a thread lie within one another, and which of them is the innermost at a time.

The innermost range at a time is the last that began of those still open: so ranges that overlap only in part, as those
of two NVTX domains may, have an answer too. Everything is linear in the ranges.
"""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .activities import NONE, Codes, Ints, Mask

PUSH_POP, OPERATOR, MODULE, ANNOTATION, STEP = "pushpop", "operator", "module", "annotation", "step"
"""Styles of ranges that belong to a thread."""

_BACKWARD = r"(?:Backward\d*(?:_\w+)?$|^autograd::engine|AccumulateGrad$)"


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """One row a range, sorted by thread, start, and end (longest first): parents come before their children."""

    start: Ints
    end: Ints
    thread: Ints
    """Process and thread in one number: process · 2²⁴ + thread."""
    name: Codes
    names: tuple[str, ...]
    sequence: Ints
    """Autograd's number in PyTorch's ranges (`seq = 12`); `NONE` elsewhere."""
    styles: tuple[str, ...] = ()
    """What each of the names is a name of; empty: all of push/pop ranges."""

    def __len__(self) -> int:
        """Rows."""
        return len(self.start)

    @cached_property
    def threads(self) -> dict[int, slice]:
        """Thread → its rows."""
        known, first = np.unique(self.thread, return_index=True)
        edges = [*first.tolist(), len(self)]
        return {thread: slice(*edges[at : at + 2]) for at, thread in enumerate(known.tolist())}

    def style(self, code: int) -> str:
        """What the name `code` is a name of."""
        return self.styles[code] if self.styles else PUSH_POP

    def has_style(self, *styles: str) -> Mask:
        """Ranges of the styles."""
        of_name = np.array([self.style(code) in styles for code in range(len(self.names))], dtype=bool)
        return of_name[self.name] if len(of_name) else np.zeros(0, dtype=bool)

    def is_named(self, pattern: str) -> Mask:
        """Ranges whose name has `pattern` in it."""
        sought = re.compile(pattern)
        of_name = np.array([bool(sought.search(name)) for name in self.names], dtype=bool)
        return of_name[self.name] if len(of_name) else np.zeros(0, dtype=bool)

    @cached_property
    def is_backward(self) -> Mask:
        """Ranges of autograd's backward functions, by their name."""
        return self.is_named(_BACKWARD)


@dataclass(frozen=True, kw_only=True)
class HostRanges:
    """Ranges by what they belong to: a thread, or (NVTX's start/end ranges) a process."""

    push_pop: Ranges
    start_end: Ranges


def sorted_ranges(
    *,
    start: Ints,
    end: Ints,
    thread: Ints,
    name: Codes,
    names: tuple[str, ...],
    sequence: Ints,
    styles: tuple[str, ...] = (),
) -> Ranges:
    """Ranges in any order, put in order."""
    order = np.lexsort((sequence, name, -end, start, thread))
    return Ranges(
        start=start[order],
        end=end[order],
        thread=thread[order],
        name=name[order],
        names=names,
        sequence=sequence[order],
        styles=styles,
    )


@dataclass(frozen=True, kw_only=True)
class Nest:
    """For each range: the row of the innermost one around it, and whether one of the same name is around it too."""

    parent: Ints
    repeats: Mask
    """Within a range of the same name on the same thread."""
    in_backward: Mask
    """Within a backward function, not one itself."""


def nest(ranges: Ranges) -> Nest:
    """Who lies within whom."""
    starts, ends, names = ranges.start.tolist(), ranges.end.tolist(), ranges.name.tolist()
    backward = ranges.is_backward.tolist()
    parent = [NONE] * len(ranges)
    repeats, inside = [False] * len(ranges), [False] * len(ranges)
    for rows in ranges.threads.values():
        stack: list[int] = []
        open_until: dict[int, int] = {}
        for row in range(rows.start, rows.stop):
            start, name = starts[row], names[row]
            while stack and ends[stack[-1]] <= start:
                stack.pop()
            if stack:
                outer = parent[row] = stack[-1]
                inside[row] = backward[outer] or inside[outer]
            until = open_until.get(name, start)
            repeats[row] = until > start
            open_until[name] = max(until, ends[row])
            stack.append(row)
    return Nest(
        parent=np.array(parent, dtype=np.int64),
        repeats=np.array(repeats, dtype=bool),
        in_backward=np.array(inside, dtype=bool),
    )


def innermost(ranges: Ranges, parent: Ints, thread: int, times: Ints) -> Ints:
    """For each time the row of the innermost range of `thread` that is open then; `NONE` where there is none."""
    rows = ranges.threads.get(thread)
    if rows is None:
        return np.full(len(times), NONE, dtype=np.int64)
    found = np.searchsorted(ranges.start[rows], times, side="right") - 1
    found[found >= 0] += rows.start
    pending = np.flatnonzero((found >= 0) & (ranges.end[np.maximum(found, 0)] <= times))
    while len(pending):
        found[pending] = parent[found[pending]]
        rest = found[pending]
        pending = pending[(rest >= 0) & (ranges.end[np.maximum(rest, 0)] <= times[pending])]
    return found


def nearest(parent: Ints, mask: Mask) -> Ints:
    """For each row itself if `mask` has it, else the innermost around it that `mask` has; `NONE` without one."""
    if mask.all():
        return np.arange(len(parent), dtype=np.int64)
    found = np.where(mask, np.arange(len(parent), dtype=np.int64), parent)
    pending = np.flatnonzero((found >= 0) & ~mask[found])
    while len(pending):  # those around have gone ahead meanwhile: each round doubles the way
        found[pending] = found[found[pending]]
        rest = found[pending]
        pending = pending[(rest >= 0) & ~mask[rest]]
    return found


def within(parent: Ints, mask: Mask) -> Mask:
    """Rows that `mask` has, and all within them."""
    return nearest(parent, mask) >= 0


def main_threads(ranges: Ranges) -> dict[int, int]:
    """Process → the thread (as in `Ranges.thread`) whose ranges say what the process is about.

    That of its main thread, which has the number of the process; where it has no ranges, the one with most.
    """
    found: dict[int, tuple[bool, int, int]] = {}
    for thread, rows in ranges.threads.items():
        process = thread >> 24
        rank = (thread & ((1 << 24) - 1) == process & ((1 << 24) - 1), rows.stop - rows.start, -thread)
        found[process] = max(found.get(process, rank), rank)
    return {process: -last for process, (_, _, last) in found.items()}
