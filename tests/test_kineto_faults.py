"""Faults that users of other tools for traces reported, each as a small trace through `stepscope trace`.

Nsight Systems' own are in `test_nsys_faults`. What only the reader sees (text beyond JSON, sizes) is in `test_kineto`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from trace_events import AUTOGRAD, GEMM, NCCL, Event, call, kernel, launched, note, on_host, op

from stepscope.dashboards.cli import main

US = 1000
PARTS = ("span_ns", "compute_ns", "comm_exposed_ns", "memory_ns", "idle_ns")


def told(capsys: pytest.CaptureFixture[str], *paths: Path) -> dict[str, Any]:
    """What the command prints of traces as JSON; without NaN, which is no JSON."""
    assert main(["trace", *map(str, paths), "--format", "json"]) == 0

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} in JSON")

    report: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=refuse)
    return report


def traced(folder: Path, capsys: pytest.CaptureFixture[str], events: list[Event], **more: Any) -> dict[str, Any]:
    path = folder / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": 0}} | more))
    return told(capsys, path)


def parts(device: dict[str, Any]) -> tuple[float, ...]:
    return tuple(device[name] / US for name in PARTS)


def of(report: dict[str, Any]) -> dict[str, Any]:
    """Its one device."""
    [rank] = report["ranks"]
    [device] = rank["devices"]
    found: dict[str, Any] = device
    return found


def codes(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["code"]: finding["evidence"] for finding in report["findings"]}


@pytest.mark.parametrize("name", ["Stream Sync", "Event Sync", "Context Sync", "Stream Wait Event"])
def test_waiting_for_a_stream_is_neither_compute_nor_busy_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """HTA#162 and #149; 1, 2."""
    waits = {**kernel(name, 10, 90, 2), "cat": "cuda_sync"}
    events = [*launched(GEMM, 0, 10, 30, 1), waits, *launched(NCCL, 1, 40, 60, 3, 9), *launched(GEMM, 2, 90, 100, 4)]
    assert parts(of(traced(tmp_path, capsys, events))) == (90, 30, 20, 0, 40)


@pytest.mark.parametrize(
    "name",
    [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymkDevKernel_ReduceScatter_LL_sum_bf16(ncclSymkDevWorkArgs const*)",
        "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)",
    ],
)
def test_collectives_of_every_nccl_are_communication(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """HTA#109; 3. The trace without any has no NaN: `told` refuses it."""
    device = of(traced(tmp_path, capsys, [*launched(name, 0, 10, 30, 1)]))
    assert parts(device) == (20, 0, 20, 0, 0)
    assert parts(of(traced(tmp_path, capsys, launched(GEMM, 0, 10, 30, 1)))) == (20, 20, 0, 0, 0)


def test_kernels_shorter_than_a_microsecond_keep_their_nanoseconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """HTA#342 and #317; 4."""
    short = [kernel(GEMM, 10, 10, 1) | {"dur": 0.7}, kernel(GEMM, 11, 11, 2) | {"dur": 0.9}]
    [row] = traced(tmp_path, capsys, short)["ranks"][0]["kernels"]
    assert (row["total_ns"], row["mean_ns"], row["min_ns"]) == (1600, 800, 700)


def test_integers_beyond_64_bits_invalid_bytes_and_control_characters_stop_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """HTA#324, pytorch/kineto#336 (Windows paths unescaped), google/perfetto#598; 5, 10, 18."""
    event = json.dumps(kernel("NAME", 10, 30, 1, **{"Comms Id": 10159970886766084423}))
    for name in (b"plain", b"\xff\xfe", b"C:\\Users\\me\\x.py(3)", b"a\x01b"):
        path = tmp_path / "rank0.json"
        path.write_bytes(b'{"traceEvents": [' + event.encode().replace(b"NAME", name) + b"]}")
        assert parts(of(told(capsys, path))) == (20, 20, 0, 0, 0), name


def test_a_trace_that_does_not_say_its_rank_is_rank_0_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """HTA#107, #17, #179; 6. A file's name may say it."""
    for name, rank, said in (("one.json", 0, True), ("rank3.json", 3, False), ("rank0.json", 0, False)):
        path = tmp_path / name
        path.write_text(json.dumps({"traceEvents": launched(GEMM, 0, 10, 20, 1)}))
        report = told(capsys, path)
        assert report["ranks"][0]["rank"] == rank
        assert ("rank-not-told" in codes(report)) == said


def test_a_trace_without_a_kind_of_call_has_all_other_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """HTA#16; 7. No memset, no copy, no step, no operator."""
    report = traced(tmp_path, capsys, launched(GEMM, 0, 10, 20, 1))
    [launch] = report["ranks"][0]["launches"]
    assert (launch["call"], launch["count"]) == ("cudaLaunchKernel", 1)


def test_communication_is_the_union_of_its_intervals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """HTA#241; 8. And communication between thresholds of overlap is told (nsys-ai#278); 33."""
    events = [
        *launched(GEMM, 0, 10, 30, 1), *launched(NCCL, 1, 20, 60, 2, stream=9), *launched(NCCL, 2, 40, 70, 3, stream=11)
    ]  # fmt: skip
    device = of(traced(tmp_path, capsys, events))
    assert parts(device) == (60, 20, 40, 0, 0)
    assert device["comm_overlapped_ns"] == 10 * US


def test_operators_that_begin_together_nest_with_the_longest_outside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """HTA#113, #254; 9."""
    events = [op("inner", 10, 20), op("outer", 10, 40), op("middle", 10, 30)]
    found = traced(tmp_path, capsys, events)["ranks"][0]["operators"]
    assert {row["name"]: row["self_ns"] for row in found} == dict.fromkeys(("outer", "middle", "inner"), 10 * US)


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kineto#728; 11."""
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(launched(GEMM, 0, 10, 20, 1)))
    assert parts(of(told(capsys, path))) == (10, 10, 0, 0, 0)


@pytest.mark.parametrize(
    ("start", "length", "how"), [(0, 0, "without a time"), (30, -1, "negative"), (30, -5_000, "negative")]
)
def test_unfinished_work_is_counted_and_stretches_no_span(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], start: int, length: int, how: str
) -> None:
    """kineto#109, #646, pytorch#150131; 12, 13."""
    broken = [kernel(GEMM, 0, 0, 10 + n) | {"ts": start, "dur": length} for n in range(1000)]
    report = traced(tmp_path, capsys, [*launched(GEMM, 1, 1000, 1020, 1), *broken])
    assert parts(of(report)) == (20, 20, 0, 0, 0)
    assert codes(report)["impossible-times"] == {how: 1000}


def test_work_without_length_overlaps_nothing_and_breaks_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """kineto#136, TraceLens#610; 14, 22."""
    events = [*launched(GEMM, 0, 10, 20, 1), *launched("empty", 2, 15, 15, 2), *launched(GEMM, 4, 20, 30, 3)]
    report = traced(tmp_path, capsys, events)
    assert parts(of(report)) == (20, 20, 0, 0, 0)
    assert "overlap-on-a-stream" not in codes(report)
    assert parts(of(traced(tmp_path, capsys, launched("empty", 0, 15, 15, 1)))) == (0, 0, 0, 0, 0)


def test_kernels_of_backward_belong_to_their_step_and_range_though_the_annotation_ends_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """kineto#1022, NVIDIA/NVTX#101; 15, 37."""
    shown = {**kernel("ProfilerStep#1", 10, 20, 1), "cat": "gpu_user_annotation"}
    events = [
        note("ProfilerStep#1", 0, 100), note("backward", 40, 90), shown, *launched(GEMM, 5, 10, 20, 1),
        *launched(GEMM, 50, 55, 95, 2, thread=AUTOGRAD),
    ]  # fmt: skip
    [rank] = traced(tmp_path, capsys, events)["ranks"]
    assert [step["launched_ns"] for step in rank["steps"]] == [50 * US]
    [row] = [row for row in rank["projection"]["ranges"] if row["name"] == "backward"]
    assert (row["inclusive_ns"], row["by_time_ns"]) == (40 * US, 40 * US), "by time, and that is said"


def test_several_traces_are_several_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """kineto#640; 16. Neither hides another's idle time, TraceLens#167; 24. Names alone tell the ranks here."""
    for rank, (start, end) in enumerate([(10, 50), (50, 90)]):
        events = [*launched(GEMM, 0, 1, 2, 1), *launched(GEMM, 5, start, end, 2), *launched(GEMM, 6, 99, 100, 3)]
        (tmp_path / f"node_rank{rank}.pt.trace.json").write_text(json.dumps({"traceEvents": events}))
    report = told(capsys, tmp_path)
    assert [(rank["rank"], parts(rank["devices"][0])) for rank in report["ranks"]] == [
        (0, (99, 42, 0, 0, 57)), (1, (99, 42, 0, 0, 57))
    ]  # fmt: skip


def test_devices_of_one_trace_are_told_apart_though_their_streams_have_one_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """nsys-ai#142, #139, #135, TraceLens#167; 24, 26, 27."""
    events = []
    for device in range(4):
        work = kernel(GEMM, 10 + 10 * device, 50 + 10 * device, device + 1, stream=17)
        work["args"]["device"] = work["pid"] = device
        events += [work, call("cudaLaunchKernel", device, device + 1, device + 1)]
    report = traced(tmp_path, capsys, events)
    assert [(row["device"], parts(row)) for row in report["ranks"][0]["devices"]] == [
        (device, (40, 40, 0, 0, 0)) for device in range(4)
    ]
    assert "overlap-on-a-stream" not in codes(report)


def test_a_step_that_ends_within_an_operator_is_tolerated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """torchtune#2323; 17."""
    events = [note("ProfilerStep#1", 0, 50), op("aten::mm", 40, 60), *launched(GEMM, 45, 48, 55, 1)]
    [rank] = traced(tmp_path, capsys, events)["ranks"]
    assert [step["launched_ns"] for step in rank["steps"]] == [7 * US]


@pytest.mark.parametrize("end", [32, 10_000])
def test_work_that_overruns_the_next_of_its_stream_is_kept_counted_once_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: int
) -> None:
    """perfetto#4280 (overlap on purpose), TraceLens#669, Hyperloom#1116 (late stamps); 19, 20, 21."""
    events = [*launched(GEMM, 0, 10, end, 1), *launched("second", 1, 30, 50, 2), *launched("third", 2, 60, 80, 3)]
    report = traced(tmp_path, capsys, events)
    assert {row["name"] for row in report["ranks"][0]["kernels"]} == {GEMM, "second", "third"}
    found = codes(report)["overlap-on-a-stream"]
    assert (found["activities"], found["overlap_ns"]) == (1, (end - 30) * US)
    assert found["clipped_ns"] == 60 * US, "20 each, ended where the next begins"


def test_gaps_inside_one_launch_of_a_graph_are_not_left_as_idle_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TraceLens#728; 23. The launch is one, whatever its nodes (nsys-ai#569, #236); 32."""
    events = [call("hipGraphLaunch", 0, 1, 1), *(kernel(GEMM, 10 * n, 10 * n + 7, 1) for n in range(1, 11))]
    report = traced(tmp_path, capsys, events)
    assert codes(report)["idle-inside-graphs"]["in_graph_ns"] == 27 * US
    [launch] = report["ranks"][0]["launches"]
    assert (launch["call"], launch["count"], launch["activities"]) == ("hipGraphLaunch", 1, 10)


def test_no_share_is_above_100_where_streams_run_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """nsys-ai#574; 25."""
    events = [
        *launched(GEMM, 0, 10, 100, 1),
        *launched(GEMM, 1, 10, 100, 2, stream=8),
        *launched(NCCL, 2, 20, 90, 3, 9),
    ]
    report = traced(tmp_path, capsys, events)
    assert parts(of(report)) == (90, 90, 0, 0, 0)
    assert max(row["share_pct"] for row in report["ranks"][0]["kernels"]) == 100


def test_what_was_not_recorded_is_not_measured_rather_than_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """lucebox#431; 35."""
    report = traced(tmp_path, capsys, [kernel(GEMM, 10, 20, 1)])
    [rank] = report["ranks"]
    assert (rank["launches"], rank["steps"], rank["projection"]) == (None, None, None)
    assert "no-launches" in codes(report)
    report = traced(tmp_path, capsys, [op("aten::mm", 0, 10)])
    assert report["ranks"][0]["devices"] == []
    assert "no-device-activity" in codes(report)


@pytest.mark.parametrize("others", [[], launched(GEMM, 0, 10, 20, 1)])
def test_graphs_of_which_nothing_was_recorded_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], others: list[Event]
) -> None:
    """sglang#845; 38. With other kernels in the trace and without any."""
    events = [*others, call("cudaGraphLaunch", 30, 31, 2), call("cudaGraphLaunch", 40, 41, 3)]
    report = traced(tmp_path, capsys, events)
    [found] = [row for row in report["findings"] if row["code"].startswith("graphs-")]
    assert found["evidence"] == {"rank": 0, "launches": 2, "without_activity": 2}
    assert "--cuda-graph-trace=node" in found["text"]


def test_launches_whose_kernels_were_dropped_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """pytorch#192021, kineto#996; 39."""
    dropped = [on_host("cuda_runtime", "cudaLaunchKernel", n, n + 1, correlation=n) for n in range(100, 150)]
    report = traced(tmp_path, capsys, [*dropped, *launched(GEMM, 200, 210, 220, 1)])
    assert codes(report)["launches-without-activity"] == {"rank": 0, "launches": 51, "without_activity": 50}
