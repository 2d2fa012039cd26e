"""The reports of nsys stats: official traces rebuilt to the last digit, and small captures worked out by hand."""

import csv
import json
import lzma
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyzers.nsys.export import Export
from stepscope.analyzers.nsys.reports import REPORTS, Asked, Row, report
from stepscope.analyzers.nsys.reports_filters import range_window, time_window
from stepscope.analyzers.nsys.reports_nesting import OverlapError, enclosed, nested
from stepscope.dashboards.cli import analyze_nsys_main
from stepscope.record.errors import ConfigError, UserError

PID, TID, OTHER = 5, 6, 7
THREAD, OTHER_THREAD, PROCESS = PID << 24 | TID, PID << 24 | OTHER, PID << 24


def fill(database: sqlite3.Connection, table: str, columns: str, rows: Iterable[tuple[Any, ...]]) -> None:
    names = columns.split()
    database.execute(f"CREATE TABLE {table} ({', '.join(f'{chr(34)}{name}{chr(34)}' for name in names)})")
    database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)


NVTX = "start end eventType text globalTid endGlobalTid domainId"
KERNEL = (
    "start end deviceId contextId greenContextId streamId correlationId globalPid demangledName shortName mangledName "
    "registersPerThread gridX gridY gridZ blockX blockY blockZ staticSharedMemory dynamicSharedMemory"
)
CALL = "start end globalTid correlationId nameId returnValue"
COPY = "start end deviceId contextId streamId correlationId globalPid bytes copyKind srcKind dstKind virtualAddress"


def kernel(start: int, end: int, correlation: int, name: int, device: int = 0, grid: int = 8) -> tuple[Any, ...]:
    shape = (32, grid, 1, 1, 128, 1, 1, 0, 2_000_000)
    return (start, end, device, 1, None, 7, correlation, PROCESS, name, name + 10, name + 20, *shape)


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Three launches on one thread and one on another, a copy, ranges of both styles, unified memory."""
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as database:
        strings = [
            (1, "gemm<float>"), (2, "add<int>"), (11, "gemm"), (12, "add"), (21, "_Z4gemm"), (22, "_Z3add"),
            (50, "cudaLaunchKernel_v7000"), (51, "cudaMemcpyAsync_v3020"), (60, "python"),
        ]  # fmt: skip
        fill(database, "StringIds", "id value", strings)
        fill(database, "ThreadNames", "nameId priority globalTid", [(60, 20, THREAD)])
        fill(database, "TARGET_INFO_GPU", "id name", [(0, "NVIDIA H100")])
        calls = [(10, 14, 1, 50), (20, 26, 2, 50), (30, 31, 3, 50), (40, 45, 4, 51)]
        rows = [(start, end, THREAD, correlation, name, 0) for start, end, correlation, name in calls]
        fill(database, "CUPTI_ACTIVITY_KIND_RUNTIME", CALL, [*rows, (12, 13, OTHER_THREAD, 5, 50, 0)])
        kernels = [
            kernel(114, 124, 1, 1), kernel(126, 130, 2, 1, grid=16), kernel(30, 60, 3, 2), kernel(113, 114, 5, 2, 1),
        ]  # fmt: skip
        fill(database, "CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, kernels)
        copies = [(200, 2_000_000_200, 0, 1, 7, 4, PROCESS, 3_000_000, 1, 1, 2, None)]
        copies += [(300, 1300, 0, 1, 7, 6, PROCESS, 2_000_000, 11, 0, 2, 0x7F00)]
        fill(database, "CUPTI_ACTIVITY_KIND_MEMCPY", COPY, copies)
        fill(database, "CUDA_UM_GPU_PAGE_FAULT_EVENTS", "start end deviceId address numberOfPageFaults", [
            (300, 310, 0, 0x7F00, 4), (320, 330, 0, 0x8F00, 5),
        ])  # fmt: skip
        ranges = [
            (0, 100, 59, "step", THREAD, None, 0), (None, None, 75, "NCCL", THREAD, None, 3),
            (9, 27, 59, "forward", THREAD, None, 0), (19, 27, 59, "gemm", THREAD, None, 3),
            (5, 50, 60, "window", THREAD, THREAD, 0), (5, 50, 60, "across", THREAD, OTHER_THREAD, 0),
            (0, None, 59, "open", THREAD, None, 0), (9, 9, 34, "mark", THREAD, None, 0),
        ]  # fmt: skip
        fill(database, "NVTX_EVENTS", NVTX, ranges)
    database.close()
    return path


def answer(path: Path, name: str, asked: Asked | None = None) -> list[Row]:
    with Export(path) as export:
        rows = report(name).rows(export, asked)
    assert rows is not None
    return rows


def printed(path: Path, name: str, capsys: pytest.CaptureFixture[str], *flags: str) -> list[list[str]]:
    assert analyze_nsys_main([str(path), "--report", name, "--format", "csv", *flags]) == 0
    return list(csv.reader(capsys.readouterr().out.splitlines()))


def rebuilt(path: Path, ranges: list[dict[str, str]]) -> list[dict[str, str]]:
    """An export of the ranges of an official trace, each in the row that its id says; other rows are marks."""
    rows: list[tuple[Any, ...]] = [(0, None, 34, "mark", 0, None, 0)] * max(int(row["RangeId"]) for row in ranges)
    domains: dict[str, int] = {"": 0}
    for row in ranges:
        domain, colon, text = row["Name"].partition(":")
        domain, text = (domain, text) if colon else ("", domain)
        thread = int(row["PID"]) << 24 | int(row["TID"])
        number = domains.setdefault(domain, len(domains))
        times = int(row["Start (ns)"]), int(row["End (ns)"])
        rows[int(row["RangeId"]) - 1] = (*times, 59, text, thread, None, number)
    process = int(ranges[0]["PID"]) << 24
    rows += [(0, None, 75, domain, process, None, number) for domain, number in domains.items() if domain]
    with sqlite3.connect(path) as database:
        fill(database, "NVTX_EVENTS", NVTX, rows)
    database.close()
    return ranges


def official_ranges(fixtures: Path, name: str) -> list[dict[str, str]]:
    raw = (fixtures / "nsys" / name).read_bytes()
    text = (lzma.decompress(raw) if name.endswith(".xz") else raw).decode()
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("name", ["nvtx_pushpop_trace.official.csv", "fsdp4_proc0_nvtx_pushpop_trace.csv.xz"])
def test_the_push_pop_trace_of_the_same_ranges_is_the_official_one(
    fixtures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    wanted = rebuilt(tmp_path / "x.sqlite", official_ranges(fixtures, name))
    header, *found = printed(tmp_path / "x.sqlite", "nvtx_pushpop_trace", capsys)
    assert header == list(wanted[0])
    for mine, theirs in zip(found, wanted, strict=True):
        if ":" not in theirs["Name"]:  # nsys before 2024 put no colon before ranges of the default domain
            mine[5], mine[13] = mine[5].removeprefix(":"), mine[13].replace(":", "", 1)
        assert mine == list(theirs.values())


def own_ranges(projection: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The ranges in a projection's rows, as a push/pop trace has them."""
    return [
        {
            "Name": row["Name"], "RangeId": str(int(row["RangeId"])), "PID": str(row["PID"]), "TID": str(row["TID"]),
            "Start (ns)": str(int(row["Orig Start"])), "End (ns)": str(int(row["Orig Start"] + row["Orig Duration"])),
        }
        for row in projection
        if row["Name"] is not None
    ]  # fmt: skip


@pytest.mark.parametrize("process", [0, 1])
def test_the_projection_of_the_same_launches_is_the_official_one(fixtures: Path, tmp_path: Path, process: int) -> None:
    """Each range launches, right after it opens, what the official trace counts in it and in none of its children.

    Of process 0 all ranges are known, those without launches too; of process 1 those that launched something.
    """
    path = tmp_path / "x.sqlite"
    projection = pq.read_table(fixtures / "nsys" / f"fsdp4_proc{process}_nvtx_gpu_proj_trace.parquet").to_pylist()
    named = own_ranges(projection)
    ranges = official_ranges(fixtures, "fsdp4_proc0_nvtx_pushpop_trace.csv.xz") if process == 0 else named
    starts = {int(row["Start (ns)"]) for row in rebuilt(path, ranges)}
    wanted = [list(row.values())[:14] for row in projection]
    in_children: dict[int, int] = {}
    for row in wanted:
        if row[12] is not None:
            in_children[int(row[12])] = in_children.get(int(row[12]), 0) + row[8]
    calls, kernels = [], []
    for correlation, row in enumerate(wanted):
        own = row[8] - in_children.get(int(row[11] or 0), 0)
        launch = int(row[3] or 0) + 1
        assert launch not in starts
        calls.append((launch, launch, row[6] << 24 | row[7], correlation, 0, 0))
        for place in range(own):
            end = row[1] + (row[2] if place == 0 else 0)
            kernels.append((row[1], end, row[6] << 24, correlation, 0))
    with sqlite3.connect(path) as database:
        fill(database, "CUPTI_ACTIVITY_KIND_RUNTIME", CALL, calls)
        fill(database, "CUPTI_ACTIVITY_KIND_KERNEL", "start end globalPid correlationId demangledName", kernels)
    database.close()
    assert [list(row) for row in answer(path, "nvtx_gpu_proj_trace")] == wanted


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


@pytest.mark.parametrize(("ns", "official"), [(661_398, 6337.593), (21_952, 191063.130), (542_802, 7725.908)])
def test_nsys_throughput_is_what_nsys_printed_for_four_mib(tmp_path: Path, ns: int, official: float) -> None:
    with sqlite3.connect(tmp_path / "x.sqlite") as database:
        fill(database, "StringIds", "id value", [])
        row = (0, ns, 0, 1, 7, 1, PROCESS, 4 * 2**20, 1, 1, 2, None)
        fill(database, "CUPTI_ACTIVITY_KIND_MEMCPY", COPY, [row])
    database.close()
    [found] = answer(tmp_path / "x.sqlite", "gputrace:nsys-throughput")
    assert round(float(found[13] or 0), 3) == official


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


@pytest.mark.parametrize(
    ("text", "window"),
    [("100/200", (100, 200)), ("1s200ms/", (1_200_000_000, None)), ("/1.5us", (None, 1500))],
)
def test_a_time_window_may_have_units_and_lack_an_end(text: str, window: tuple[int | None, int | None]) -> None:
    assert time_window(text) == window


@pytest.mark.parametrize("text", ["", "/", "100", "5/3", "1 s/2 s", "1x/2x", "-5/3"])
def test_what_is_no_time_window_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--filter-time"):
        time_window(text)


def test_an_event_counts_where_any_part_of_it_lies_in_the_window(capture: Path) -> None:
    def starts(first: int | None, last: int | None) -> list[Any]:
        return [row[4] for row in answer(capture, "cuda_kern_exec_trace", Asked(window=(first, last)))]

    assert starts(None, None) == [114, 113, 126, 30]
    assert starts(60, 113) == [113, 30]
    assert starts(125, None) == [126]
    assert starts(131, 150) == []


def test_a_range_is_found_by_name_domain_and_index(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.sqlite") as database:
        rows = [
            (0, None, 75, "NCCL", THREAD, None, 3), (50, 60, 59, "step", THREAD, None, 0),
            (1, 9, 59, "step", THREAD, None, 0), (20, 30, 59, "a/b@c", THREAD, None, 0),
            (40, 45, 59, "step", THREAD, None, 3),
        ]  # fmt: skip
        fill(database, "NVTX_EVENTS", NVTX, rows)
    database.close()
    with Export(tmp_path / "x.sqlite") as export:
        assert range_window(export, "step") == (1, 9)
        assert range_window(export, "step/2") == (50, 60)
        assert range_window(export, "step@NCCL") == (40, 45)
        assert range_window(export, "step@NCCL/0") == (40, 45)
        assert range_window(export, "step@*/1") == (40, 45)
        assert range_window(export, "a/b@c") == (20, 30)
        with pytest.raises(UserError, match=r"has 3 ranges 'step', from /0 on"):
            range_window(export, "step/3")
        with pytest.raises(UserError, match="has no range 'stop'; it has step, a/b@c"):
            range_window(export, "stop")


def test_the_filters_of_the_command_reach_the_reports(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def kernels(*flags: str) -> list[str]:
        return [row[1] for row in printed(capture, "cuda_gpu_kern_sum", capsys, *flags)[1:]]

    assert kernels() == ["31", "14"]
    assert kernels("--device", "1") == ["1"]
    assert kernels("--filter-time", "120/") == ["14"]
    assert kernels("--filter-nvtx", "window") == ["30"]
    assert analyze_nsys_main([str(capture), "--filter-nvtx", "step", "--filter-time", "1/2"]) == 2
    assert "choose one" in capsys.readouterr().err


def test_flags_of_reports_without_a_report_are_refused(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--timeunit", "usec"], ["--filter-time", "1/2"], ["--filter-nvtx", "step"], ["--device", "0"]):
        assert analyze_nsys_main([str(capture), *flags]) == 2
        assert "are for reports; name one: --report" in capsys.readouterr().err


def test_a_sum_of_kernels_loads_neither_pyarrow_nor_numpy(capture: Path) -> None:
    code = "import sys; from stepscope.dashboards.cli import analyze_nsys_main; analyze_nsys_main(sys.argv[1:]); "
    code += "print({'pyarrow', 'numpy'} & set(sys.modules))"
    words = [sys.executable, "-c", code, str(capture), "--report", "cuda_gpu_kern_sum", "--format", "csv"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_times_in_other_units_lose_no_nanosecond(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, row, *_ = printed(capture, "cuda_gpu_kern_sum", capsys, "--timeunit", "usec")
    assert header[1:4] == ["Total Time (us)", "Instances", "Avg (us)"]
    assert row[1:4] == ["0.031", "2", "0.015"]
    header, row, *_ = printed(capture, "cuda_gpu_mem_time_sum", capsys, "--timeunit", "seconds")
    assert (header[1], row[1]) == ("Total Time (s)", "2.000000000")


def test_reports_as_json_say_what_is_missing(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze_nsys_main([str(capture), "--report", "cuda_gpu_kern_sum:base,osrt_sum", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "stepscope.nsys-reports/1"
    kernels, os_calls = found["reports"]
    assert kernels["report"] == "cuda_gpu_kern_sum_base"
    assert kernels["rows"][0]["Name"] == "add"
    assert kernels["rows"][0]["Time (%)"] == 68.9
    assert os_calls["rows"] is None
    assert os_calls["missing"] == "x.sqlite does not contain OS Runtime trace data"


ANSWERED = [known for known in REPORTS if known.name != "osrt_sum"]
"""What the small capture can answer; calls of the OS runtime are in the official text."""


@pytest.mark.parametrize("known", ANSWERED, ids=lambda known: known.name)
def test_every_report_has_as_many_values_as_columns_and_its_json_is_its_csv(
    capture: Path, capsys: pytest.CaptureFixture[str], known: Any
) -> None:
    header, *rows = printed(capture, known.name, capsys)
    assert rows
    assert header == [column.heading for column in known.columns]
    assert {len(row) for row in rows} == {len(header)}
    assert analyze_nsys_main([str(capture), "--report", known.name, "--format", "json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["reports"]
    assert found["columns"] == header
    for row, values in zip(rows, found["rows"], strict=True):
        for text, value in zip(row, values.values(), strict=True):
            assert (
                text == ""
                if value is None
                else float(text) == value
                if isinstance(value, float)
                else text == str(value)
            )
    assert analyze_nsys_main([str(capture), "--report", known.name]) == 0
    assert known.title in capsys.readouterr().out


def test_the_list_says_which_reports_a_file_can_answer_and_what_it_lacks_for_others(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze_nsys_main([str(capture), "--list"]) == 0
    out = capsys.readouterr().out
    assert all(known.name in out for known in REPORTS)
    assert "no OS Runtime trace data" in out
    assert out.count("yes") == len(REPORTS) - 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cuda_api_sum:base", "has no argument 'base'; it takes none"),
        ("um_sum:rows=many", "has no argument 'rows=many'; it takes :rows="),
        ("cuda_gpu_kern_sum:short", "it takes :nvtx-name, :base, :mangled"),
    ],
)
def test_an_argument_that_a_report_does_not_take_is_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        report(name)


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


_BY_ROW = ("RangeId", "ParentId", "RangeStack")


def test_permuting_the_rows_of_a_capture_changes_no_report(capture: Path, tmp_path: Path) -> None:
    turned = tmp_path / "turned.sqlite"
    turned.write_bytes(capture.read_bytes())
    with sqlite3.connect(turned) as database:
        for table in ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"):
            database.execute(f"CREATE TABLE turned AS SELECT * FROM {table} ORDER BY rowid DESC")
            database.execute(f"DROP TABLE {table}")
            database.execute(f"ALTER TABLE turned RENAME TO {table}")
    database.close()
    for known in ANSWERED:
        mine, theirs = answer(turned, known.name), answer(capture, known.name)
        if known.name.endswith("_trace"):  # ids of ranges are numbers of rows, and equal times stay as rows lie
            keep = [index for index, column in enumerate(known.columns) if not column.heading.startswith(_BY_ROW)]
            mine, theirs = (
                sorted((tuple(row[index] for index in keep) for row in rows), key=repr) for rows in (mine, theirs)
            )
        assert mine == theirs, known.name
