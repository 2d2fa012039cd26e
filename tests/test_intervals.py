"""Interval arithmetic against sets of whole nanoseconds, one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyzers.intervals import EMPTY, Intervals, length, shared, together, union, without

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
    assert length(together()) == length(shared(EMPTY, EMPTY)) == 0


@given(PAIRS)
def test_a_union_is_sorted_disjoint_and_covers_the_same_points(pairs: list[tuple[int, int]]) -> None:
    found = made(pairs)
    assert points(found) == covered(pairs)
    assert length(found) == len(covered(pairs))
    flat = found.ravel()
    assert (np.diff(flat) > 0).all()


@given(PAIRS, PAIRS)
def test_set_operations_are_those_of_the_points(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    a, b = made(left), made(right)
    assert points(shared(a, b)) == covered(left) & covered(right)
    assert points(without(a, b)) == covered(left) - covered(right)
    assert points(together(a, b)) == covered(left) | covered(right)


@given(PAIRS, PAIRS)
def test_what_is_shared_and_what_is_alone_sum_to_the_whole(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    a, b = made(left), made(right)
    assert length(shared(a, b)) + length(without(a, b)) == length(a)
