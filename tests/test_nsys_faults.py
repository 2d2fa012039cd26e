"""Faults that users of other tools for nsys data reported, each as a small export with the right answer by hand."""

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from nsys_export import PID, Made

from stepscope.analyzers.findings import Finding
from stepscope.analyzers.nsys.answers import answers
from stepscope.analyzers.nsys.result import NsysReport
from stepscope.dashboards.cli import analyze_nsys_main

ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
OTHER = 9
"""Another process."""


def report_of(made: Made, folder: Path) -> NsysReport:
    return answers([made.write(folder / "x.sqlite")])


def the(code: str, report: NsysReport) -> Finding:
    [found] = [finding for finding in report.findings if finding.code == code]
    return found


def parts(device: Any) -> tuple[int, int, int, int, int]:
    return device.span_ns, device.compute_ns, device.comm_exposed_ns, device.memory_ns, device.idle_ns


def kernel_rows(path: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert analyze_nsys_main([str(path), "--report", "cuda_gpu_kern_sum", "--format", "json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["reports"]
    rows: list[dict[str, Any]] = found["rows"]
    return rows


def graph(start: int, end: int, corr: int) -> dict[str, Any]:
    return {"start": start, "end": end, "deviceId": 0, "streamId": 7, "graphId": 4} | {
        "correlationId": corr,
        "globalPid": PID << 24,
    }


def test_waiting_for_a_stream_is_neither_compute_nor_busy_time(tmp_path: Path) -> None:
    made = Made().kernel(0, 10).kernel(60, 70)
    made.add("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=0, end=1000, deviceId=0, streamId=7, syncType=3)
    [device] = report_of(made, tmp_path).ranks[0].devices
    assert parts(device) == (70, 20, 0, 0, 50)


def test_kernels_below_a_microsecond_keep_their_nanoseconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Made().kernel(1000, 1300).kernel(2001, 2402)
    [device] = report_of(made, tmp_path).ranks[0].devices
    assert (device.kernels[0].min_ns, device.kernels[0].mean_ns, device.kernels[0].max_ns) == (300, 350.5, 401)
    [row] = kernel_rows(tmp_path / "x.sqlite", capsys)
    assert (row["Total Time (ns)"], row["Avg (ns)"]) == (701, 350.5)


def test_dropped_records_at_time_0_are_counted_and_the_span_does_not_begin_there(tmp_path: Path) -> None:
    made = Made().kernel(1_000_000, 1_000_010)
    for _ in range(3000):
        made.kernel(0, 0)
    report = report_of(made, tmp_path)
    assert parts(report.ranks[0].devices[0]) == (10, 10, 0, 0, 0)
    assert the("impossible-times", report).evidence == {"kernels": 3000}


def test_a_kernel_and_a_range_that_never_ended_take_no_time_and_are_told(tmp_path: Path) -> None:
    made = Made().launch(5, 100, 110, corr=1).launch(6, 120, 0, corr=2).range(0, None, "open").range(0, 50, "step")
    report = report_of(made, tmp_path)
    assert parts(report.ranks[0].devices[0]) == (10, 10, 0, 0, 0)
    projection = report.ranks[0].projection
    assert projection is not None
    assert [(row.name, row.inclusive_ns) for row in projection.ranges] == [("step", 10)]
    assert the("impossible-times", report).evidence == {"kernels": 1, "ranges": 1}


def test_a_kernel_of_no_length_within_another_of_its_stream_is_no_overlap(tmp_path: Path) -> None:
    report = report_of(Made().kernel(0, 10).kernel(5, 5, "empty"), tmp_path)
    assert "overlap-on-a-stream" not in [finding.code for finding in report.findings]
    assert parts(report.ranks[0].devices[0]) == (10, 10, 0, 0, 0)


def test_overlapping_kernels_of_a_stream_are_all_kept_and_busy_time_is_their_union(tmp_path: Path) -> None:
    """As secondary kernels of programmatic dependent launch overlap."""
    report = report_of(Made().kernel(0, 10, "a").kernel(8, 20, "b").kernel(20, 30, "c"), tmp_path)
    [device] = report.ranks[0].devices
    assert {row.name: row.total_ns for row in device.kernels} == {"a": 10, "b": 12, "c": 10}
    assert parts(device) == (30, 30, 0, 0, 0)
    found = the("overlap-on-a-stream", report)
    assert found.evidence["activities"] == 1
    assert (found.evidence["overlap_ns"], found.evidence["clipped_ns"]) == (2, 30)


def test_a_few_corrupt_durations_that_are_most_of_the_time_are_told_with_their_kernel_and_the_time_without(
    tmp_path: Path,
) -> None:
    made = Made()
    for number in range(200):
        at = 100 * number
        made.kernel(at, at + 50, "sound")
    made.kernel(5050, 5050 + 12_000, "broken").kernel(9050, 9050 + 12_000, "broken")
    report = report_of(made, tmp_path)
    found = the("overlap-on-a-stream", report)
    assert found.severity == "warning"
    # 200 · 50 ns are sound; each broken one has 50 ns until the next kernel of its stream begins.
    assert found.evidence == {
        "rank": 0, "activities": 2, "overlap_ns": 2 * 11_950, "summed_ns": 34_000, "clipped_ns": 10_100,
        "most_of": "broken",
    }  # fmt: skip
    assert "all work takes 10.1 µs in place of 34.0 µs" in found.text
    assert report.ranks[0].kernels[0].share_pct <= 100


def test_streams_are_told_apart_by_device_and_by_process(tmp_path: Path) -> None:
    made = Made().kernel(0, 100, streamId=17).kernel(50, 150, streamId=17, deviceId=1)
    made.kernel(60, 160, streamId=17, pid=OTHER)
    report = report_of(made, tmp_path)
    assert "overlap-on-a-stream" not in [finding.code for finding in report.findings]
    assert [parts(device)[0] for device in report.ranks[0].devices] == [160, 100]


def test_replays_of_a_graph_recorded_whole_are_busy_time(tmp_path: Path) -> None:
    made = Made()
    for corr in range(1, 11):
        made.call(corr, corr + 1, "cudaGraphLaunch_v10000", corr=corr)
        made.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **graph(100 * corr, 100 * corr + 99, corr))
    report = report_of(made, tmp_path)
    assert parts(report.ranks[0].devices[0]) == (999, 990, 0, 0, 9)
    assert "graphs-without-activity" not in [finding.code for finding in report.findings]
    [launch] = report.ranks[0].launches or []
    assert (launch.call, launch.count, launch.activities) == ("cudaGraphLaunch", 10, 10)


@pytest.mark.parametrize(("recorded", "told"), [(0, 5), (2, 3), (4, None), (5, None)])
def test_replays_of_which_nothing_was_recorded_are_not_left_to_seem_idle(
    tmp_path: Path, recorded: int, told: int | None
) -> None:
    made = Made().launch(0, 10, 20, corr=100).launch(1, 900, 910, corr=101)
    for corr in range(1, 6):
        made.call(corr, corr + 1, "cudaGraphLaunch_v10000", corr=corr)
        if corr <= recorded:
            made.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **graph(100 * corr, 100 * corr + 90, corr))
    found = [finding for finding in report_of(made, tmp_path).findings if finding.code == "graphs-without-activity"]
    assert [finding.evidence["without_activity"] for finding in found] == ([] if told is None else [told])


def test_no_share_is_above_100_where_streams_run_the_same_kernel_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Made().kernel(0, 90).kernel(0, 80, streamId=8).kernel(10, 100, streamId=9).kernel(0, 50, ALL_REDUCE)
    rank = report_of(made, tmp_path).ranks[0]
    assert [(row.name, row.total_ns, row.share_pct) for row in rank.kernels] == [
        ("gemm", 260, 100.0), (ALL_REDUCE, 50, 50.0),
    ]  # fmt: skip
    assert [(row.kind, row.share_pct) for row in rank.kinds] == [
        ("gemm of unknown precision", 100.0), ("communication", 50.0),
    ]  # fmt: skip
    assert analyze_nsys_main([str(tmp_path / "x.sqlite")]) == 0
    assert "260.0 %" not in capsys.readouterr().out


def test_one_gpus_idle_time_is_not_hidden_by_anothers_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Made().kernel(0, 1_000_000).kernel(0, 1000, deviceId=1).kernel(999_000, 1_000_000, deviceId=1)
    report = report_of(made, tmp_path)
    assert [parts(device) for device in report.ranks[0].devices] == [
        (1_000_000, 1_000_000, 0, 0, 0), (1_000_000, 2000, 0, 0, 998_000),
    ]  # fmt: skip
    total = report.total
    assert total is not None
    assert (total.devices, *parts(total), total.busy_ns) == (2, 2_000_000, 1_002_000, 0, 0, 998_000, 1_002_000)
    assert analyze_nsys_main([str(tmp_path / "x.sqlite")]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["all"]]
    assert "49.9 %" in line


def test_copies_are_of_the_gpu_that_their_process_means(tmp_path: Path) -> None:
    made = Made().copy(0, 10, 100, pid=1).copy(0, 30, 600, pid=2).copy(40, 50, 7, pid=2)
    for pid in (1, 2):
        made.add("TARGET_INFO_CUDA_DEVICE", gpuId=pid + 3, cudaId=0, pid=pid)
    rank = report_of(made, tmp_path).ranks[0]
    assert [(row.device, row.count, row.total_ns, row.bytes) for row in rank.transfers or []] == [
        (5, 2, 40, 607), (4, 1, 10, 100),
    ]  # fmt: skip
    assert [device.device for device in rank.devices] == [4, 5]


def test_ranges_of_a_table_of_a_later_version_count(tmp_path: Path) -> None:
    path = Made().range(0, 50, "step").launch(5, 100, 110, corr=1).write(tmp_path / "x.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_V3")
        database.execute("CREATE TABLE NVTX_EVENTS AS SELECT * FROM NVTX_EVENTS_V3 WHERE 0")
    projection = answers([path]).ranks[0].projection
    assert projection is not None
    assert [(row.name, row.inclusive_ns) for row in projection.ranges] == [("step", 10)]


def test_a_ranges_text_may_be_its_own_or_that_of_an_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Made().range(0, 10, "inline").launch(5, 100, 110, corr=1).launch(15, 120, 125, corr=2)
    made.range(10, 20, "", textId=made.string("by id"))
    projection = report_of(made, tmp_path).ranks[0].projection
    assert projection is not None
    assert [(row.name, row.inclusive_ns) for row in projection.ranges] == [("inline", 10), ("by id", 5)]
    assert analyze_nsys_main([str(tmp_path / "x.sqlite"), "--report", "nvtx_sum", "--format", "csv"]) == 0
    assert [line.rpartition(",")[2] for line in capsys.readouterr().out.splitlines()[1:]] == [":by id", ":inline"]


@pytest.mark.parametrize("table", ["META_DATA_EXPORT", "EXPORT_META_DATA"])
def test_the_schema_version_is_read_where_each_version_of_nsys_puts_it(tmp_path: Path, table: str) -> None:
    made = Made().kernel(0, 10).add(table, name="EXPORT_SCHEMA_VERSION", value="2.9.1")
    made.add(table, name="EXPORT_PRODUCT_VERSION", value="2022.1.1.61")
    assert report_of(made, tmp_path).ranks[0].format == "nsys 2022.1.1.61 (schema 2.9.1)"


def test_communication_that_compute_covers_in_part_is_exposed_by_the_rest(tmp_path: Path) -> None:
    [device] = report_of(Made().kernel(0, 40).kernel(0, 100, ALL_REDUCE, streamId=20), tmp_path).ranks[0].devices
    assert (device.comm_overlapped_ns, device.comm_exposed_ns) == (40, 60)


def test_a_schema_of_a_later_minor_version_is_read_and_said_to_be_newer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def of(version: str) -> list[str]:
        made = Made().kernel(0, 10).add("META_DATA_EXPORT", name="EXPORT_SCHEMA_VERSION", value=version)
        path = made.write(tmp_path / f"{version}.sqlite")
        assert len(kernel_rows(path, capsys)) == 1
        return [finding.code for finding in answers([path]).findings]

    assert of("3.28.1") == []
    assert of("3.29.0") == ["newer-schema"]
    assert analyze_nsys_main([str(tmp_path / "3.29.0.sqlite"), "--report", "cuda_gpu_kern_sum", "--format", "csv"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Time (%),")
    assert "has schema 3.29.0, and this program knows those up to 3.28" in said.err


def test_an_old_export_with_a_new_time_is_read_with_its_doubt_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "run.nsys-rep").write_bytes(b"a report")
    made = Made().kernel(0, 10).add("META_DATA_EXPORT", name="EXPORT_TIME_UTC", value="2024-01-02T03:04:05")
    made.write(tmp_path / "run.sqlite")
    assert analyze_nsys_main([str(tmp_path / "run.nsys-rep")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "warning: run.sqlite was made on 2024-01-02T03:04:05 UTC, before run.nsys-rep was last written" in out


def test_a_new_capture_under_an_old_name_is_read_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.sqlite"
    for took in (10, 70):
        path.unlink(missing_ok=True)
        Made().kernel(0, took).write(path)
        os.utime(path, (1, 1))
        [row] = kernel_rows(path, capsys)
        assert row["Total Time (ns)"] == took


def test_a_table_of_an_earlier_capture_does_not_stay_beside_the_new_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, folder = tmp_path / "x.sqlite", tmp_path / "out"
    for made in (Made().kernel(0, 10).range(0, 5, "step"), Made().kernel(0, 20)):
        path.unlink(missing_ok=True)
        made.write(path)
        words = [str(path), "--report", "cuda_gpu_kern_sum,nvtx_sum", "--output", str(folder), "--force"]
        assert analyze_nsys_main(words) == 0
    assert [file.name for file in folder.iterdir()] == ["x_cuda_gpu_kern_sum.csv"]
    assert "skipped nvtx_sum: x.sqlite does not contain" in capsys.readouterr().err


def test_an_export_damaged_within_leaves_no_half_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Made()
    for number in range(20_000):
        made.kernel(10 * number, 10 * number + 5)
    path, folder = made.write(tmp_path / "x.sqlite"), tmp_path / "out"
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2 : len(whole) // 2 + 8192] = b"\xff" * 8192
    path.write_bytes(whole)
    assert analyze_nsys_main([str(path), "--report", "cuda_gpu_trace", "--output", str(folder)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert list(folder.iterdir()) == []


def test_kernels_dropped_at_a_sessions_start_are_missed_by_their_launches(tmp_path: Path) -> None:
    made = Made()
    for corr in range(1, 101):
        made.call(corr, corr + 1, corr=corr)
        if corr > 40:
            made.kernel(1000 + corr, 1001 + corr, corr=corr)
    found = the("launches-without-activity", report_of(made, tmp_path))
    assert found.evidence == {"rank": 0, "launches": 100, "without_activity": 40}
    assert "40 of 100 kernel launches have no kernel" in found.text


def test_the_environment_of_another_process_among_the_strings_is_told_and_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Made().kernel(0, 10)
    made.string("SHELL=/bin/sh\0PATH=/usr/bin\0HOME=/home/somebody\0TOKEN=secret-value\0")
    path = made.write(tmp_path / "x.sqlite")
    assert the("carries-environment", answers([path])).severity == "warning"
    for words in ([], ["--format", "json"], ["--report", "cuda_gpu_kern_sum"], ["--list"]):
        assert analyze_nsys_main([str(path), *words]) == 0
        said = capsys.readouterr()
        assert "secret-value" not in said.out + said.err
        assert "somebody" not in said.out + said.err


def test_nothing_in_a_name_steers_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "evil\x1b[31m\x07\x9b2J\r\nline"
    made = Made().kernel(0, 100, name).range(0, 400, name).call(120, 149, name).launch(150, 160, 170, name, corr=1)
    for late in range(180, 190):
        made.kernel(late, late + 5, name)
    path = made.write(tmp_path / "x.sqlite")
    for words in ([], ["--report", "cuda_gpu_kern_sum,nvtx_sum,cuda_api_sum"]):
        assert analyze_nsys_main([str(path), *words]) == 0
        out = capsys.readouterr().out
        assert "evil·[31m" in out
        assert [char for char in out if not char.isprintable() and char != "\n"] == []
