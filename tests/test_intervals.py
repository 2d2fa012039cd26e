"""Interval arithmetic against sets of whole nanoseconds, one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyzers.intervals import Intervals, length, shared, together, union, without

PAIRS = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=8)


def covered(pairs: list[tuple[int, int]]) -> set[int]:
    return {point for start, end in pairs for point in range(start, end)}


def made(pairs: list[tuple[int, int]]) -> Intervals:
    array = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return union(array[:, 0], array[:, 1])


def points(intervals: Intervals) -> set[int]:
    return covered([(int(start), int(end)) for start, end in intervals])


def test_a_union_joins_what_overlaps_or_touches() -> None:
    assert made([(5, 9), (1, 3), (2, 4), (4, 5), (20, 20)]).tolist() == [[1, 9]]


def test_nothing_covers_nothing() -> None:
    assert made([]).shape == (0, 2)
    assert length(together()) == 0


@given(PAIRS)
def test_a_union_is_sorted_disjoint_and_covers_the_same_points(pairs: list[tuple[int, int]]) -> None:
    found = made(pairs)
    assert points(found) == covered(pairs)
    assert length(found) == len(covered(pairs))
    flat = found.ravel()
    assert (np.diff(flat) > 0).all()


@given(PAIRS, PAIRS)
def test_together_is_what_any_of_the_sets_covers(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    a, b = made(left), made(right)
    assert points(together(a, b)) == covered(left) | covered(right)
    assert length(together(a, b)) <= length(a) + length(b)


@given(PAIRS, PAIRS)
def test_what_sets_share_is_what_both_cover(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    assert points(shared(made(left), made(right))) == covered(left) & covered(right)


@given(PAIRS, PAIRS)
def test_what_is_left_without_a_set_is_what_it_does_not_cover(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    assert points(without(made(left), made(right))) == covered(left) - covered(right)
