"""Which range holds what, against plain definitions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyzers.nsys.reports_nesting import OverlapError, enclosed, nested

INTERVALS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=12)


def as_arrays(intervals: list[tuple[int, int]]) -> tuple[Any, Any]:
    start = np.array([start for start, _ in intervals], dtype=np.int64)
    return start, start + np.array([length for _, length in intervals], dtype=np.int64)


@given(INTERVALS)
def test_a_ranges_parent_is_the_one_around_it_that_began_last(intervals: list[tuple[int, int]]) -> None:
    start, end = as_arrays(intervals)
    found = nested(start, end, np.zeros(len(start), dtype=np.int64)).parent.tolist()
    for inner, parent in enumerate(found):
        around = [
            (int(start[outer]), -int(end[outer]), outer)
            for outer in range(len(start))
            if start[outer] <= start[inner] and end[outer] >= end[inner]
            and (start[outer], -end[outer], outer) < (start[inner], -end[inner], inner)
        ]  # fmt: skip
        assert parent == (max(around)[2] if around else -1)


@given(INTERVALS, INTERVALS)
def test_the_calls_in_a_range_are_those_that_lie_in_it_however_calls_overlap(
    ranges: list[tuple[int, int]], calls: list[tuple[int, int]]
) -> None:
    start, end = as_arrays(ranges)
    call_start, call_end = as_arrays(calls)
    found: list[set[int]] = [set() for _ in ranges]
    for chosen, first, last, _ in enclosed(start, end, call_start, call_end):
        for index in range(len(ranges)):
            found[index] |= set(chosen[first[index] : last[index]].tolist())
    assert found == [
        {call for call in range(len(calls)) if call_start[call] >= low and call_end[call] <= high}
        for low, high in zip(start.tolist(), end.tolist(), strict=True)
    ]


def test_calls_that_overlap_as_no_threads_can_are_an_error() -> None:
    times = np.arange(100, dtype=np.int64)
    with pytest.raises(OverlapError, match="more than 64"):
        list(enclosed(times[:1], times[:1], times, times + 1000))
