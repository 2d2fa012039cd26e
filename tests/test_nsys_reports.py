"""The reports of nsys stats on small captures, worked out by hand."""

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nsys_capture import CALL, KERNEL, NVTX, OTHER, PID, THREAD, TID, answer, fill, kernel, printed

from stepscope.analyzers.nsys.reports import REPORTS


def test_kernels_by_base_and_mangled_name_and_by_the_innermost_range_around_their_launch(capture: Path) -> None:
    def names(name: str) -> list[Any]:
        return [(row[1], row[-1]) for row in answer(capture, name)]

    assert names("cuda_gpu_kern_sum") == [(31, "add<int>"), (14, "gemm<float>")]
    assert names("cuda_gpu_kern_sum:base") == [(31, "add"), (14, "gemm")]
    assert names("gpukernsum:mangled") == [(31, "_Z3add"), (14, "_Z4gemm")]
    # call 3 lies in step and, later begun, in window; the other thread's call in nothing
    assert names("cuda_gpu_kern_sum:nvtx-name:base") == [
        (30, "window/add"), (10, "forward/gemm"), (4, "gemm/gemm"), (1, "add"),
    ]  # fmt: skip


def test_grids_are_part_of_a_kernels_key_and_set_as_nsys_sets_them(capture: Path) -> None:
    assert [row[1:3] + row[-3:] for row in answer(capture, "cuda_gpu_kern_gb_sum")] == [
        (31, 2, "   8    1    1", " 128    1    1", "add<int>"),
        (10, 1, "   8    1    1", " 128    1    1", "gemm<float>"),
        (4, 1, "  16    1    1", " 128    1    1", "gemm<float>"),
    ]


def test_kernels_and_copies_stand_in_one_sum_by_category(capture: Path) -> None:
    assert [(row[1], *row[-2:]) for row in answer(capture, "cuda_gpu_sum:base")] == [
        (2_000_000_000, "MEMORY_OPER", "[CUDA memcpy HtoD]"),
        (1000, "MEMORY_OPER", "[CUDA memcpy Unknown]"),
        (31, "CUDA_KERNEL", "add"),
        (14, "CUDA_KERNEL", "gemm"),
    ]


def test_the_trace_of_the_gpu_is_by_start_and_its_throughput_exact_unless_asked_as_nsys_has_it(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *rows = printed(capture, "cuda_gpu_trace", capsys)
    assert header[:3] + header[-5:] == [
        "Start (ns)", "Duration (ns)", "CorrId", "Device", "Ctx", "GreenCtx", "Strm", "Name",
    ]  # fmt: skip
    assert [row[0] for row in rows] == ["30", "113", "114", "126", "200", "300"]
    shape = ["8", "1", "1", "128", "1", "1", "32", "0.000", "2.000", "", "", "", ""]
    assert rows[2] == ["114", "10", "1", *shape, "NVIDIA H100 (0)", "1", "", "7", "gemm<float>"]
    assert rows[1][16] == "(1)"
    # 3 MB in 2 s are 1.5 MB/s; nsys multiplies by the whole times that 2 s fit into one
    assert rows[4][12:16] == ["3.000", "1.500", "Pinned", "Device"]
    assert printed(capture, "cuda_gpu_trace:nsys-throughput", capsys)[5][13] == "0.000"


def test_the_trace_of_calls_names_their_threads(capture: Path) -> None:
    rows = answer(capture, "cudaapitrace")
    assert rows[0] == (10, 4, "cudaLaunchKernel", 0, 1, PID, TID, 20, "python")
    assert rows[1] == (12, 1, "cudaLaunchKernel", 0, 5, PID, OTHER, None, None)


def test_a_launch_has_a_queue_time_only_where_it_is_positive(capture: Path) -> None:
    rows = answer(capture, "cuda_kern_exec_trace:base")
    shape = ("   8    1    1", " 128    1    1")
    assert rows[0] == (10, 4, 14, 100, 114, 10, 114, PID, TID, 0, "cudaLaunchKernel", *shape, "gemm")
    # the kernel began when its call did: no queue, and the total ends with the kernel
    assert rows[3] == (30, 1, None, None, 30, 30, 30, PID, TID, 0, "cudaLaunchKernel", *shape, "add")


def test_launches_are_summed_by_thread_device_call_and_kernel(capture: Path) -> None:
    rows = answer(capture, "cuda_kern_exec_sum:base")
    deviation = pytest.approx(np.sqrt(8))
    # gemm: totals 114 and 110, calls 4 and 6, queues 100 and 100, kernels 10 and 4
    total, call = (112, 112, 110, 114, deviation), (5, 5, 4, 6, pytest.approx(np.sqrt(2)))
    queue, took = (100, 100, 100, 100, 0), (7, 7, 4, 10, pytest.approx(np.sqrt(18)))
    assert rows[0] == (PID, TID, 0, 2, 2, *total, *call, *queue, *took, "cudaLaunchKernel", "gemm")
    assert rows[1][:5] == (PID, OTHER, 1, 1, 1)
    assert rows[2][:5] == (PID, TID, 0, 1, 0)
    assert rows[2][15:20] == (None,) * 5


def test_ranges_are_summed_by_style_and_carry_their_domain(capture: Path) -> None:
    assert [(row[1], *row[-2:]) for row in answer(capture, "nvtx_sum")] == [
        (100, "PushPop", ":step"), (45, "StartEnd", ":across"), (45, "StartEnd", ":window"),
        (18, "PushPop", ":forward"), (8, "PushPop", "NCCL:gemm"),
    ]  # fmt: skip
    assert [(row[0], row[-1]) for row in answer(capture, "nvtx_startend_sum")] == [(50, ":across"), (50, ":window")]
    assert [row[-1] for row in answer(capture, "nvtxppsum")] == [":step", ":forward", "NCCL:gemm"]


def test_a_kernel_counts_in_every_range_around_its_launch_and_else_in_a_row_without_one(capture: Path) -> None:
    assert [(*row[:7], row[-1]) for row in answer(capture, "nvtx_kern_sum:base")] == [
        (":step", "PushPop", PID, TID, 1, 1, 30, "add"),
        (":window", "StartEnd", PID, TID, 1, 1, 30, "add"),
        (":forward", "PushPop", PID, TID, 1, 2, 14, "gemm"),
        (":step", "PushPop", PID, TID, 1, 2, 14, "gemm"),
        (":window", "StartEnd", PID, TID, 1, 2, 14, "gemm"),
        ("NCCL:gemm", "PushPop", PID, TID, 1, 1, 4, "gemm"),
        (None, None, PID, OTHER, None, 1, 1, "add"),
    ]


def test_a_range_is_projected_from_its_first_to_its_last_operation(capture: Path) -> None:
    rows = {row[0]: row for row in answer(capture, "nvtx_gpu_proj_trace")}
    # step launched kernels 1 to 3 and the copy; the copy ends last
    assert rows[":step"] == (":step", 30, 2_000_000_170, 0, 100, "PushPop", PID, TID, 4, 0, 1, 1, None, ":1")
    assert rows[":forward"] == (":forward", 114, 16, 9, 18, "PushPop", PID, TID, 2, 1, 1, 3, 1, ":1:3")
    assert rows["NCCL:gemm"] == ("NCCL:gemm", 126, 4, 19, 8, "PushPop", PID, TID, 1, 2, 0, 4, 3, ":1:3:4")
    assert rows[":window"][8:] == (4, None, 0, 5, None, None)
    assert ":across" not in rows
    sums = {row[0]: row for row in answer(capture, "nvtx_gpu_proj_sum")}
    assert sums[":forward"] == (":forward", "PushPop", 16, 18, 1, 16, 16, 16, 16, 0, 2, 2, 1, 1)


def test_what_is_launched_outside_all_ranges_has_a_row_for_each_thread(capture: Path) -> None:
    alone = [row for row in answer(capture, "nvtx_gpu_proj_trace") if row[0] is None]
    # the other thread's kernel; and the migration, which nobody called for
    assert [row[1:3] + row[6:9] for row in alone] == [(113, 1, PID, OTHER, 1), (300, 1000, None, None, 1)]


def test_a_graphs_launch_is_one_call_that_holds_all_its_kernels(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as database:
        fill(database, "StringIds", "id value", [(1, "node"), (2, "cudaGraphLaunch_v10000")])
        fill(database, "NVTX_EVENTS", NVTX, [(0, 50, 59, "step", THREAD, None, 0)])
        fill(database, "CUPTI_ACTIVITY_KIND_RUNTIME", CALL, [(5, 6, THREAD, 9, 2, 0), (5, 6, THREAD, 9, 2, 0)])
        rows = [kernel(100 + place, 101 + place, 9, 1) for place in range(500)]
        fill(database, "CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, rows)
    database.close()
    [row] = answer(path, "nvtx_kern_sum")
    assert row[:7] == (":step", "PushPop", PID, TID, 1, 500, 500)
    [row] = answer(path, "nvtx_gpu_proj_trace")
    assert (*row[1:3], row[8]) == (100, 500, 500)


def test_unified_memory_is_summed_by_address_and_what_was_not_recorded_is_no_zero(capture: Path) -> None:
    # 2 MB in 1 µs; page faults of the CPU have no table
    assert answer(capture, "um_sum") == [
        ("0x7F00", 2.0, 0.0, None, 4, 2_000_000.0),
        ("0x8F00", 0.0, 0.0, None, 5, None),
    ]
    assert len(answer(capture, "um_sum:rows=1")) == 1


def test_permuting_the_rows_of_a_capture_changes_no_sum(capture: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.sqlite"
    turned.write_bytes(capture.read_bytes())
    with sqlite3.connect(turned) as database:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"):
            database.execute(f"CREATE TABLE turned AS SELECT * FROM {table} ORDER BY rowid DESC")
            database.execute(f"DROP TABLE {table}")
            database.execute(f"ALTER TABLE turned RENAME TO {table}")
    database.close()
    for known in REPORTS:
        if known.name.endswith("_sum") and known.name != "osrt_sum":
            assert answer(turned, known.name) == answer(capture, known.name), known.name
