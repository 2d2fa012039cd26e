"""Rank files joined into steps of the whole job."""

from stepscope.analyzers.runs import WorldStep, world_steps
from stepscope.record.steps import Mark, Step


def step(number: int, rank: int, duration_ns: int = 10, marks: tuple[Mark, ...] = ()) -> Step:
    start_ns = 100 * number + rank
    return Step(step=number, rank=rank, start_ns=start_ns, duration_ns=duration_ns, tokens=3, positions=4, marks=marks)


def joined(*steps: Step, resumed_after: tuple[int, ...] = ()) -> tuple[WorldStep, ...]:
    by_rank: dict[int, list[Step]] = {}
    for one in steps:
        by_rank.setdefault(one.rank, []).append(one)
    return world_steps(by_rank, resumed_after)


def test_a_step_is_its_slowest_ranks_and_sums_what_ranks_share() -> None:
    [found] = joined(step(1, 0, 10), step(1, 1, 15))
    assert (found.duration_ns, found.by_rank_ns, found.start_ns, found.tokens) == (15, (10, 15), 100, 6)


def test_a_mark_of_any_rank_makes_the_step_untimed() -> None:
    first, second = joined(step(1, 0), step(1, 1, marks=("profiled",)), step(2, 0), step(2, 1))
    assert (first.timed, first.marks, second.timed) == (False, ("profiled",), True)


def test_a_step_that_took_no_time_is_not_timed() -> None:
    assert [one.timed for one in joined(step(1, 0, 0), step(2, 0, 5))] == [False, True]


def test_a_step_that_a_rank_lacks_is_not_timed() -> None:
    assert [one.timed for one in joined(step(1, 0), step(1, 1), step(2, 0))] == [True, False]


def test_a_run_resumed_on_fewer_ranks_has_timed_steps_on_both_sides() -> None:
    steps = [step(1, 0), step(1, 1), step(2, 0), step(2, 1), step(3, 0), step(4, 0)]
    assert [one.timed for one in joined(*steps, resumed_after=(2,))] == [True] * 4
    assert [one.timed for one in joined(*steps)] == [True, True, False, False]
