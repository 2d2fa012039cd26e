"""GPU time of NVTX ranges through launches, idle gaps and who was late, launch overhead, steps: worked out by hand."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_export import PID, Made

from stepscope.analyzers.activities import NONE
from stepscope.analyzers.intervals import covered_before, union
from stepscope.analyzers.nesting import innermost, nest, sorted_ranges
from stepscope.analyzers.nsys.answers import answers
from stepscope.analyzers.nsys.result import NsysRank
from stepscope.analyzers.projection import Projection, RangeTime
from stepscope.analyzers.steps import is_step

MAIN, AUTOGRAD = PID, 77
"""The main thread has the process's number."""


def only_rank(made: Made, folder: Path) -> NsysRank:
    [rank] = answers([made.write(folder / "x.sqlite")]).ranks
    return rank


def projected(made: Made, folder: Path) -> tuple[Projection, dict[str, RangeTime]]:
    found = only_rank(made, folder).projection
    assert found is not None
    return found, {row.name: row for row in found.ranges}


def test_work_belongs_to_the_innermost_range_around_its_launch_and_counts_in_all_around_that(tmp_path: Path) -> None:
    made = Made().range(0, 100, "step").range(10, 50, "forward").range(20, 30, "layer")
    made.launch(22, 200, 207, corr=1).launch(40, 210, 215, corr=2).launch(60, 220, 223, corr=3)
    made.launch(110, 230, 231, corr=4)
    made.kernel(240, 242, corr=9)  # whose launch was not recorded
    found, rows = projected(made, tmp_path)
    assert [(name, rows[name].inclusive_ns, rows[name].exclusive_ns) for name in ("step", "forward", "layer")] == [
        ("step", 15, 3), ("forward", 12, 5), ("layer", 7, 7),
    ]  # fmt: skip
    assert (found.gpu_ns, found.attributed_ns, found.outside_ns, found.unlaunched_ns) == (18, 15, 1, 2)
    assert found.by_time_ns == 0


def test_ids_that_repeat_over_processes_are_told_apart(tmp_path: Path) -> None:
    made = Made()
    for pid in (1, 2):
        made.range(0, 10, f"of {pid}", pid=pid).launch(5, 20, 20 + pid, corr=7, pid=pid)
    _, rows = projected(made, tmp_path)
    assert {name: row.exclusive_ns for name, row in rows.items()} == {"of 1": 1, "of 2": 2}


@pytest.mark.parametrize("scattered", [1, 10**12])
def test_ids_may_lie_far_apart(tmp_path: Path, scattered: int) -> None:
    made = Made().range(0, 10, "a").range(10, 20, "b")
    made.launch(1, 30, 34, corr=1 * scattered).launch(11, 40, 49, corr=5 * scattered)
    _, rows = projected(made, tmp_path)
    assert {name: row.exclusive_ns for name, row in rows.items()} == {"a": 4, "b": 9}


def test_what_autograds_thread_launches_counts_by_time_in_the_main_threads_ranges_and_is_marked(tmp_path: Path) -> None:
    made = Made().range(0, 100, "step", tid=MAIN).range(50, 90, "backward", tid=MAIN)
    made.launch(60, 200, 210, corr=1, tid=AUTOGRAD).range(70, 80, "MulBackward0", tid=AUTOGRAD)
    made.launch(71, 210, 214, corr=2, tid=AUTOGRAD).launch(10, 150, 151, corr=3, tid=MAIN)
    found, rows = projected(made, tmp_path)
    step, backward, mul = rows["step"], rows["backward"], rows["MulBackward0"]
    assert (step.inclusive_ns, step.exclusive_ns, step.by_time_ns) == (15, 1, 14)
    assert (backward.inclusive_ns, backward.exclusive_ns, backward.by_time_ns) == (14, 10, 14)
    assert (mul.inclusive_ns, mul.exclusive_ns, mul.by_time_ns) == (4, 4, 0)
    assert (found.attributed_ns, found.by_time_ns) == (15, 10)
    assert sum(row.exclusive_ns or 0 for row in found.ranges) == found.attributed_ns


def test_backward_work_is_linked_to_its_forward_range_by_autograds_number(tmp_path: Path) -> None:
    made = Made()
    for layer, seq in ((0, 3), (1, 4)):
        at = layer * 10
        made.range(at, at + 9, f"layers.{layer}", tid=MAIN)
        made.range(at + 1, at + 8, f"aten::linear, seq = {seq}, op_id = {at}", tid=MAIN)
        made.range(at + 2, at + 7, f"aten::mm, seq = {seq}, op_id = {at + 1}, sizes = [[8, 16], [16, 4]]", tid=MAIN)
        made.launch(at + 3, 100 + at, 101 + at, corr=layer + 1, tid=MAIN)
    for at, seq, took in ((30, 4, 40), (35, 3, 20)):
        made.range(at, at + 4, f"MmBackward0, seq = {seq}, op_id = {at}", tid=AUTOGRAD)
        made.range(at + 1, at + 3, "aten::mm, seq = 3, op_id = 99", tid=AUTOGRAD)  # within backward: makes no function
        made.launch(at + 2, 1000 + at * 50, 1000 + at * 50 + took, corr=at, tid=AUTOGRAD)
    _, rows = projected(made, tmp_path)
    assert (rows["layers.0"].backward_ns, rows["layers.1"].backward_ns) == (20, 40)
    assert rows["aten::mm"].backward_ns == 60
    assert (rows["MmBackward0"].count, rows["MmBackward0"].inclusive_ns) == (2, 60)


def test_without_autograds_numbers_backward_is_not_measured(tmp_path: Path) -> None:
    _, rows = projected(Made().range(0, 9, "a").launch(1, 20, 21, corr=1), tmp_path)
    assert rows["a"].backward_ns is None


def test_a_range_within_one_of_its_name_counts_once(tmp_path: Path) -> None:
    made = Made().range(0, 10, "block").range(2, 8, "block").launch(3, 20, 25, corr=1)
    _, rows = projected(made, tmp_path)
    block = rows["block"]
    assert (block.count, block.host_ns, block.inclusive_ns, block.exclusive_ns) == (2, 10, 5, 5)


def test_work_within_ranges_of_one_name_on_two_threads_counts_once(tmp_path: Path) -> None:
    made = Made().range(0, 100, "step", tid=MAIN).range(50, 90, "backward", tid=MAIN)
    made.range(55, 85, "backward", tid=AUTOGRAD).range(60, 70, "mul", tid=AUTOGRAD)
    made.launch(61, 200, 210, corr=1, tid=AUTOGRAD).launch(75, 210, 214, corr=2, tid=AUTOGRAD)
    made.launch(87, 214, 215, corr=3, tid=AUTOGRAD).launch(52, 215, 217, corr=4, tid=MAIN)
    found, rows = projected(made, tmp_path)
    step, backward = rows["step"], rows["backward"]
    # On autograd's thread 14, by time alone the 1 after its range, and 2 on the main thread.
    assert (backward.inclusive_ns, backward.exclusive_ns, backward.by_time_ns) == (17, 7, 1)
    assert (step.inclusive_ns, step.by_time_ns, rows["mul"].inclusive_ns) == (17, 15, 10)
    assert found.gpu_ns == found.attributed_ns == 17


def test_start_end_ranges_belong_to_the_process_and_have_no_exclusive_time(tmp_path: Path) -> None:
    made = Made().range(0, 10, "request", style=60, tid=8).launch(5, 20, 23, corr=1, tid=9).launch(11, 30, 31, corr=2)
    _, rows = projected(made, tmp_path)
    row = rows["request"]
    assert (row.style, row.inclusive_ns, row.by_time_ns, row.exclusive_ns) == ("startend", 3, 3, None)


def test_a_graph_launch_is_one_launch_whatever_it_runs(tmp_path: Path) -> None:
    made = Made().range(0, 10, "decode").call(1, 5, "cudaGraphLaunch_v10000", corr=1)
    made.kernel(20, 30, corr=1).kernel(30, 45, corr=1)
    rank = only_rank(made, tmp_path)
    assert rank.launches is not None
    [row] = rank.launches
    assert (row.call, row.count, row.activities, row.total_ns) == ("cudaGraphLaunch", 1, 2, 4)
    assert row.queued_median_ns == 20.0  # 15 and 25
    assert rank.projection is not None
    assert rank.projection.attributed_ns == 25


def test_a_gap_is_split_at_the_launch_of_what_ended_it_and_says_what_its_thread_was_in(tmp_path: Path) -> None:
    made = Made().range(0, 400, "load data")
    made.launch(0, 10, 20, corr=1).call(20, 90, "cudaStreamSynchronize_v3020").launch(95, 100, 130, corr=2)
    made.kernel(150, 160, corr=9)
    [device] = only_rank(made, tmp_path).devices
    idle = device.idle
    assert (idle.idle_ns, idle.gaps, idle.before_launch_ns, idle.after_launch_ns, idle.unknown_ns) == (
        100,
        2,
        75,
        5,
        20,
    )
    assert idle.idle_ns == device.idle_ns
    assert idle.causes is not None
    [cause] = idle.causes
    assert (cause.call, cause.range, cause.total_ns) == ("cudaStreamSynchronize", "load data", 80)
    assert (cause.longest_ns, cause.longest_start_ns) == (80, 20)


def test_without_calls_neither_gaps_nor_launches_nor_ranges_are_explained(tmp_path: Path) -> None:
    rank = only_rank(Made().kernel(0, 10).kernel(20, 30).range(0, 5, "a"), tmp_path)
    assert (rank.devices[0].idle.causes, rank.devices[0].idle.unknown_ns) == (None, 10)
    assert (rank.launches, rank.projection, rank.steps) == (None, None, None)


def test_steps_split_the_device_time_between_them(tmp_path: Path) -> None:
    made = Made().launch(0, 1, 2, "warm-up", corr=9)
    for number in range(3):
        at = 100 * number + 10
        made.range(at, at + 90, "step").launch(at + 1, at + 20, at + 50, corr=2 * number + 1)
        made.launch(at + 2, at + 60, at + 70, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", corr=2 * number + 2)
    rank = only_rank(made, tmp_path)
    assert rank.steps is not None
    parts = [(s.number, s.span_ns, s.compute_ns, s.comm_exposed_ns, s.memory_ns, s.idle_ns) for s in rank.steps]
    assert parts == [(0, 100, 30, 10, 0, 60), (1, 100, 30, 10, 0, 60), (2, 50, 30, 10, 0, 10)]
    assert [row.launched_ns for row in rank.steps] == [40, 40, 40]
    assert {row.name: row.per_step_ns for row in rank.kernels} == {
        "gemm": 30.0, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)": 10.0, "warm-up": 0.0,
    }  # fmt: skip
    [summary] = rank.step_summary
    assert (summary.count, summary.span_median_ns, summary.compute_pct) == (3, 100.0, 36.0)


@pytest.mark.parametrize(
    "name", ["step", "Step 3", "ProfilerStep#7", "train_step 12", "iteration_4", "iter 9", "batch 1"]
)
def test_names_that_are_steps(name: str) -> None:
    assert is_step(name)


@pytest.mark.parametrize("name", ["optimizer.step", "stepping", "Optimizer.step#AdamW.step", "forward", "step_fn"])
def test_names_that_are_none(name: str) -> None:
    assert not is_step(name)


RANGE = st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(0, 2), st.integers(0, 3))


@given(st.lists(RANGE, max_size=12), st.lists(st.integers(-2, 60), max_size=10))
def test_the_innermost_range_is_the_last_to_begin_of_those_open_even_where_they_overlap_in_part(
    drawn: list[tuple[int, int, int, int]], times: list[int]
) -> None:
    array = np.array(drawn, dtype=np.int64).reshape(-1, 4)
    ranges = sorted_ranges(
        start=array[:, 0],
        end=array[:, 0] + array[:, 1],
        thread=array[:, 2],
        name=array[:, 3].astype(np.int32),
        names=("a", "b", "c", "d"),
        sequence=np.full(len(array), NONE, dtype=np.int64),
    )
    found = innermost(ranges, nest(ranges).parent, 1, np.array(times, dtype=np.int64))
    for time, row in zip(times, found.tolist(), strict=True):
        rows = [n for n in range(len(ranges)) if ranges.thread[n] == 1 and ranges.start[n] <= time < ranges.end[n]]
        assert row == max(rows, default=NONE)  # rows are in order of start


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=8), st.lists(st.integers(-3, 60), max_size=8)
)
def test_what_is_covered_before_a_time_is_counted_nanosecond_by_nanosecond(
    drawn: list[tuple[int, int]], times: list[int]
) -> None:
    starts = np.array([start for start, _ in drawn], dtype=np.int64)
    ends = starts + np.array([size for _, size in drawn], dtype=np.int64)
    covered = {at for start, size in drawn for at in range(start, start + size)}
    found = covered_before(union(starts, ends), np.array(times, dtype=np.int64))
    assert found.tolist() == [len([at for at in covered if at < time]) for time in times]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 9), st.sampled_from([MAIN, AUTOGRAD])), min_size=1, max_size=8
    ),
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 20), st.sampled_from([MAIN, AUTOGRAD])), min_size=1, max_size=8
    ),
    st.randoms(),
)
def test_exclusive_times_and_what_is_not_attributed_sum_to_gpu_time_in_any_order_of_rows(
    tmp_path_factory: pytest.TempPathFactory,
    launches: list[tuple[int, int, int]],
    ranges: list[tuple[int, int, int]],
    luck: random.Random,
) -> None:
    found = []
    rows = [("launch", (n, *row)) for n, row in enumerate(launches, start=1)]
    rows += [("range", (n, *row)) for n, row in enumerate(ranges)]
    for _ in range(2):
        made = Made()
        for what, (number, at, length, tid) in rows:
            if what == "range":
                made.range(at, at + length, f"range {number % 3}", tid=tid)
            else:
                made.launch(at, 100 + 10 * number, 100 + 10 * number + length, corr=number, tid=tid)
        rank = only_rank(made, tmp_path_factory.mktemp("made"))
        projection = rank.projection
        assert projection is not None
        assert projection.gpu_ns == projection.attributed_ns + projection.outside_ns + projection.unlaunched_ns
        assert sum(row.exclusive_ns or 0 for row in projection.ranges) == projection.attributed_ns
        main = MAIN if MAIN in {tid for _, _, tid in ranges} else AUTOGRAD
        for row in projection.ranges:
            assert 0 <= (row.exclusive_ns or 0) <= row.inclusive_ns <= projection.gpu_ns
            mine = [drawn for number, drawn in enumerate(ranges) if f"range {number % 3}" == row.name]
            inside = [
                length
                for at, length, tid in launches
                if any(start <= at < start + long and thread in (tid, main) for start, long, thread in mine)
            ]
            assert row.inclusive_ns == sum(inside)
        found.append(rank)
        luck.shuffle(rows)
    assert found[0].projection == found[1].projection
    assert found[0].devices == found[1].devices
    assert found[0].launches == found[1].launches


def test_real_pytorch_ranges_account_for_all_gpu_time_but_what_has_no_launch(fixtures: Path) -> None:
    [rank] = answers([fixtures / "nsys" / "h100x2_after.sqlite"]).ranks
    projection = rank.projection
    assert projection is not None
    assert (projection.gpu_ns, projection.attributed_ns, projection.unlaunched_ns) == (
        494_109_503,
        493_228_962,
        880_541,
    )
    rows = {row.name: row for row in projection.ranges}
    # Every addmm lies in a linear; flash attention's kernels took 240,755,667 ns.
    assert rows["aten::linear"].inclusive_ns == rows["aten::addmm"].inclusive_ns
    assert rows["flash_attn::_flash_attn_forward"].exclusive_ns == 240_755_667
