"""Several ranks side by side, collectives, counters, findings, and exports that lack tables."""

import itertools
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_export import Made

from stepscope.analyzers.collectives import collective_of
from stepscope.analyzers.nsys.answers import answers, ranked
from stepscope.dashboards.cli import analyze_nsys_main
from stepscope.record.errors import UserError

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def trained(late: int, clock: int, steps: int = 4) -> Made:
    """Steps of 1,000 ns with a GEMM of 300 ns, begun `late` ns late, then an all-reduce that ends when all are done."""
    made = Made()
    for number in range(steps):
        at = clock + 1000 * number
        made.range(at, at + 999, "step").launch(at + 1, at + 10 + late, at + 310 + late, corr=2 * number + 1)
        made.launch(at + 2, at + 310 + late, at + 600, ALL_REDUCE, corr=2 * number + 2)
    return made


def test_ranks_of_several_files_are_aligned_on_collectives_and_the_last_to_enter_is_told(tmp_path: Path) -> None:
    paths = [
        trained(late, clock).write(tmp_path / f"run.rank{rank}.sqlite")
        for rank, (late, clock) in enumerate([(0, 100), (40, 7100), (5, 300)])
    ]
    report = answers(reversed(paths))
    assert [rank.rank for rank in report.ranks] == [0, 1, 2]
    skew = report.skew
    assert skew is not None
    assert skew.collectives == 4
    assert [(row.offset_ns, row.spread_ns) for row in skew.workers] == [(0, 0), (7000, 0), (200, 0)]
    assert [(row.last_in, row.waited_ns) for row in skew.workers] == [(0, 160), (4, 0), (0, 140)]
    # Exposed: from the GEMM's end to 600 ns into each step.
    assert [row.comm_exposed_ns for row in skew.workers] == [4 * 290, 4 * 250, 4 * 285]
    [finding] = [found for found in report.findings if found.code == "last-to-collectives"]
    assert finding.text.startswith("Rank 1 (process 5, GPU 0) was the last to enter 4 of 4 collectives")
    assert finding.evidence == {"last_in": 4, "collectives": 4, "waited_ns": 300, "spread_ns": 0.0}


def test_the_step_that_differs_most_over_ranks_is_found_with_its_slowest_rank(tmp_path: Path) -> None:
    quick, slow = trained(0, 0, steps=2), trained(0, 0, steps=2)
    for made, took in ((quick, 50), (slow, 390)):
        made.range(2000, 2999, "step").launch(2001, 2010, 2010 + took, corr=9)
    skew = answers([quick.write(tmp_path / "a.sqlite"), slow.write(tmp_path / "b.sqlite")]).skew
    assert skew is not None
    assert [(row.number, row.shortest_ns, row.longest_ns) for row in skew.steps] == [
        (0, 1000, 1000), (1, 1000, 1000), (2, 50, 390),
    ]  # fmt: skip
    assert skew.steps[2].slowest_rank == 1


def test_processes_of_one_export_share_its_clock(tmp_path: Path) -> None:
    made = Made()
    for pid, begins in ((1, 10), (2, 30)):
        made.kernel(begins, 100, ALL_REDUCE, pid=pid, deviceId=pid).kernel(
            200 + begins, 300, ALL_REDUCE, pid=pid, deviceId=pid
        )
    skew = answers([made.write(tmp_path / "x.sqlite")]).skew
    assert skew is not None
    assert [(row.process, row.offset_ns, row.last_in, row.waited_ns) for row in skew.workers] == [
        (1, 0, 0, 40), (2, 0, 2, 0),
    ]  # fmt: skip


def test_ranks_without_collectives_in_common_are_not_said_to_wait(tmp_path: Path) -> None:
    paths = []
    for rank, kernels in enumerate((1, 2)):
        made = Made()
        for number in range(kernels):
            made.kernel(10 * number, 10 * number + 5, ALL_REDUCE)
        paths.append(made.write(tmp_path / f"{rank}.sqlite"))
    report = answers(paths)
    assert report.skew is not None
    assert [(row.offset_ns, row.last_in) for row in report.skew.workers] == [(None, None), (None, None)]
    assert "not-aligned" in [finding.code for finding in report.findings]


def test_one_rank_is_not_compared(tmp_path: Path) -> None:
    assert answers([Made().kernel(0, 1).write(tmp_path / "x.sqlite")]).skew is None


def test_files_are_ranks_by_the_number_in_their_name_where_each_has_its_own() -> None:
    a, b = Path("run.rank1.sqlite"), Path("run.rank0.sqlite")
    assert ranked([a, b]) == [(0, b), (1, a)]
    assert ranked([a, Path("other.sqlite")]) == [(0, a), (1, Path("other.sqlite"))]


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        (ALL_REDUCE, "AllReduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "AllReduce"),
        ("ncclAllReduceRingLLKernel_sum_f16(ncclColl)", "AllReduce"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "AllGather"),
        ("ncclSymkDevKernel_AllGather_LLMC(x)", "AllGather"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "ReduceScatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(x)", "Reduce"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "SendRecv"),
        ("ncclSend", "SendRecv"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(x)", "Broadcast"),
        ("ncclDevKernel_Generic(ncclDevComm*)", "unnamed"),
    ],
)
def test_a_collective_is_told_from_the_kernels_name(name: str, collective: str) -> None:
    assert collective_of(name) == collective


def test_sizes_that_nccl_recorded_make_a_bandwidth_where_each_kernel_has_one(tmp_path: Path) -> None:
    made = Made().kernel(0, 100, ALL_REDUCE).kernel(200, 500, ALL_REDUCE).kernel(600, 700, "ncclDevKernel_SendRecv(x)")
    for size in (1000, 3000):
        made.range(0, 5, "ncclAllReduce", domainId=1, jsonText=f'{{"Message size [bytes]": {size}, "Root": 0}}')
    [reduce, send] = answers([made.write(tmp_path / "x.sqlite")]).ranks[0].collectives
    assert (reduce.collective, reduce.count, reduce.total_ns, reduce.calls, reduce.bytes) == (
        "AllReduce",
        2,
        400,
        2,
        4000,
    )
    assert reduce.bytes_per_s == pytest.approx(4000 / 400e-9)
    assert (send.collective, send.bytes, send.bytes_per_s) == ("SendRecv", None, None)


def test_gpu_metrics_are_known_by_name(tmp_path: Path) -> None:
    made = Made().kernel(0, 1)
    made.add("TARGET_INFO_GPU_METRICS", typeId=77, metricId=3, metricName="SMs Active [Throughput %]")
    for at, value in ((0, 10), (1, 40)):
        made.add("GPU_METRICS", timestamp=at, typeId=77, metricId=3, value=value)
    metrics = answers([made.write(tmp_path / "x.sqlite")]).ranks[0].metrics
    assert metrics is not None
    [row] = metrics
    assert (row.source, row.metric, row.samples, row.mean, row.max) == (
        "GPU 0",
        "SMs Active [Throughput %]",
        2,
        25.0,
        40.0,
    )


def test_what_costs_most_beside_computing_is_said_with_its_evidence(tmp_path: Path) -> None:
    made = Made().range(0, 400, "load data")
    made.launch(0, 10, 20, corr=1).call(20, 90, "cudaStreamSynchronize_v3020").launch(95, 100, 130, corr=2)
    [finding] = answers([made.write(tmp_path / "x.sqlite")]).findings
    assert finding.code == "idle"
    assert "80 ns of 120 ns (66.7 %)" in finding.text
    assert "cudaStreamSynchronize in range load data" in finding.text
    assert finding.evidence["before_launch_ns"] == 75


def test_copies_from_pageable_memory_are_told_where_they_are_most_of_host_copies(tmp_path: Path) -> None:
    slow = Made().kernel(0, 10).copy(10, 90, 800).copy(90, 95, 500, srcKind=1)
    quick = Made().kernel(0, 10).copy(10, 12, 8).copy(12, 95, 9000, srcKind=1)
    found = [
        [finding.code for finding in answers([made.write(tmp_path / f"{number}.sqlite")]).findings]
        for number, made in enumerate((slow, quick))
    ]
    assert found == [["exposed-copies", "pageable-copies"], ["exposed-copies"]]


def test_launches_whose_kernels_are_missing_are_told(tmp_path: Path) -> None:
    made = Made()
    for number in range(1, 41):
        made.call(number, number + 1, corr=number)
    for number in range(1, 21):
        made.kernel(100 + number, 101 + number, corr=number)
    report = answers([made.write(tmp_path / "x.sqlite")])
    [finding] = [found for found in report.findings if found.code == "launches-without-activity"]
    assert finding.evidence == {"rank": 0, "launches": 40, "without_activity": 20}


WHOLE = ["h100x2_after", "a100_2.7b_nvtx", "pre2021_rtx6000", "a100x4_mpi_2024.5"]
TABLES = [
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "NVTX_EVENTS",
    "CUPTI_ACTIVITY_KIND_RUNTIME", "StringIds", "TARGET_INFO_GPU", "PROCESSES", "ENUM_CUDA_MEM_KIND",
    "ENUM_CUDA_MEMCPY_OPER", "META_DATA_EXPORT", "META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV",
]  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=25)
@given(st.sets(st.sampled_from(TABLES)))
def test_with_any_tables_gone_there_is_an_answer_or_one_clear_line(
    tmp_path_factory: pytest.TempPathFactory, gone: set[str]
) -> None:
    made = (
        trained(3, 0).copy(700, 720, corr=1).add("CUPTI_ACTIVITY_KIND_MEMSET", start=721, end=722, bytes=4, deviceId=0)
    )
    made.add("TARGET_INFO_GPU", id=0, name="NVIDIA H100").add(
        "META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value="3.1"
    )
    path = made.write(tmp_path_factory.mktemp("made") / "x.sqlite")
    with sqlite3.connect(path) as database:
        for table in sorted(gone):
            database.execute(f"DROP TABLE IF EXISTS {table}")
    database.close()
    try:
        [rank] = answers([path]).ranks
    except UserError as error:
        said = str(error)
    else:
        said = ""
    assert "\n" not in said
    if said:
        return
    for device in rank.devices:
        assert device.span_ns == device.compute_ns + device.comm_exposed_ns + device.memory_ns + device.idle_ns
        assert device.idle.idle_ns == device.idle_ns
    if rank.projection:
        assert rank.projection.gpu_ns == sum(row.total_ns for row in rank.kinds)


@pytest.mark.parametrize("name", WHOLE)
def test_real_exports_are_shown_on_one_screen_and_nothing_of_the_environment_is(
    fixtures: Path, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    assert analyze_nsys_main([str(fixtures / "nsys" / f"{name}.sqlite")]) == 0
    out = capsys.readouterr().out
    assert "Devices: the span in four parts" in out
    assert len(out.splitlines()) < 65
    assert not re.search(r"scrubbed|not-a-real-secret|PATH=", out)


def test_several_files_are_ranks_and_official_reports_take_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [str(trained(late, 0).write(tmp_path / f"rank{late}.sqlite")) for late in (0, 9)]
    assert analyze_nsys_main(paths) == 0
    out = capsys.readouterr().out
    assert "Ranks side by side; 4 collectives matched" in out
    assert "Skew of steps" in out
    assert analyze_nsys_main([str(tmp_path)]) == 0
    assert "Ranks side by side; 4 collectives matched" in capsys.readouterr().out
    assert analyze_nsys_main([*paths, "--report", "cuda_gpu_kern_sum"]) == 2
    assert "take one file, not 2" in capsys.readouterr().err


def test_without_device_work_ranges_are_shown_with_their_time_on_the_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Made().range(0, 2_000_000, "load").range(0, 1_000_000, "load", tid=9).range(5, 6, "x", style=60)
    path = made.write(tmp_path / "x.sqlite")
    [rank] = answers([path]).ranks
    assert [(row.name, row.kind, row.count, row.total_ns) for row in rank.ranges] == [
        ("load", "pushpop", 2, 3_000_000), ("x", "startend", 1, 1),
    ]  # fmt: skip
    assert analyze_nsys_main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "NVTX ranges on the host" in out
    assert "device time is not measured" in out


def test_the_order_of_files_changes_nothing(tmp_path: Path) -> None:
    paths = [trained(late, late * 50).write(tmp_path / f"rank{late}.sqlite") for late in (0, 3, 9)]
    found = [answers(list(order)) for order in itertools.permutations(paths)]
    assert all(one == found[0] for one in found)
