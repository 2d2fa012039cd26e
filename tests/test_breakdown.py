"""Device time split in parts that sum to the span, statistics by name, operators' self time: worked out by hand."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyzers.breakdown import DeviceTime, TimelineReport, breakdown
from stepscope.analyzers.operators import OperatorTime
from stepscope.analyzers.timeline import ACTIVITIES, LAUNCHES, OPS, Source, Timeline

NCCL, GEMM = "ncclDevKernel_AllReduce", "sm90_xmma_gemm_bf16bf16"


def activity(start: int, end: int, name: str = GEMM, kind: str = "kernel", **more: Any) -> dict[str, Any]:
    return {"rank": 0, "device": 0, "stream": 7, "start": start, "end": end, "kind": kind, "name": name} | more


def timeline(activities: list[dict[str, Any]], ops: list[dict[str, Any]] | None = None) -> Timeline:
    ranks = sorted({row["rank"] for row in [*activities, *(ops or [])]} or {0})
    made = Timeline(
        sources=tuple(Source(rank=rank, path=f"rank{rank}", format="test") for rank in ranks),
        activities=pa.Table.from_pylist(activities, ACTIVITIES),
        ops=pa.Table.from_pylist(ops or [], OPS),
    )
    made.check()
    return made


def only_device(report: TimelineReport) -> DeviceTime:
    [device] = report.ranks[0].devices
    return device


def parts(device: DeviceTime) -> tuple[int, int, int, int, int]:
    return (device.span_ns, device.compute_ns, device.comm_exposed_ns, device.memory_ns, device.idle_ns)


def test_the_span_is_split_by_what_runs_alone() -> None:
    device = only_device(
        breakdown(
            timeline(
                [
                    activity(0, 10),
                    activity(5, 20, NCCL, stream=13),  # 5..10 hidden under the GEMM, 10..20 exposed
                    activity(18, 30, "Memcpy DtoH", "memcpy", stream=20),  # 18..20 under communication, 20..30 alone
                    activity(40, 50),
                ]
            )
        )
    )
    assert parts(device) == (50, 20, 10, 10, 10)
    assert device.comm_overlapped_ns == 5
    assert device.busy_ns == 40


def test_kernels_on_two_streams_at_once_keep_the_device_busy_once() -> None:
    device = only_device(breakdown(timeline([activity(0, 10), activity(0, 10, stream=8)])))
    assert parts(device) == (10, 10, 0, 0, 0)
    assert device.kernels[0].total_ns == 20


def test_waiting_for_a_stream_is_no_work() -> None:
    waiting = activity(0, 1000, "Stream Sync", "sync")
    assert parts(only_device(breakdown(timeline([waiting, activity(100, 110)])))) == (10, 10, 0, 0, 0)


def test_each_device_of_each_rank_is_reported_by_itself() -> None:
    rows = [activity(0, 10), activity(5, 9, device=1), activity(100, 101, rank=3)]
    report = breakdown(timeline(rows))
    found = [(rank.rank, device.device, device.span_ns) for rank in report.ranks for device in rank.devices]
    assert found == [(0, 0, 10), (0, 1, 4), (3, 0, 1)]


def test_statistics_by_name_are_those_of_the_durations() -> None:
    rows = [activity(0, 1, "a"), activity(10, 13, "a"), activity(20, 28, "a"), activity(30, 34, "a")]
    rows += [activity(50, 70, "b")]
    device = only_device(breakdown(timeline(rows)))
    assert [row.name for row in device.kernels] == ["b", "a"]
    of_a = device.kernels[1]
    assert (of_a.count, of_a.total_ns, of_a.mean_ns, of_a.median_ns, of_a.min_ns, of_a.max_ns) == (
        4,
        16,
        4.0,
        3.5,
        1,
        8,
    )


INTERVALS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 30), st.sampled_from([GEMM, NCCL, "memcpy"]), st.integers(0, 2)),
    min_size=1,
    max_size=12,
)


@given(INTERVALS)
def test_the_parts_sum_to_the_span_and_communication_to_its_union(drawn: list[tuple[int, int, str, int]]) -> None:
    rows = [
        activity(start, start + length, name, "memcpy" if name == "memcpy" else "kernel", stream=stream)
        for start, length, name, stream in drawn
    ]
    device = only_device(breakdown(timeline(rows)))
    span_ns, compute_ns, exposed_ns, memory_ns, idle_ns = parts(device)
    assert span_ns == compute_ns + exposed_ns + memory_ns + idle_ns
    assert min(compute_ns, exposed_ns, memory_ns, idle_ns) >= 0
    covered = {at for start, length, name, _ in drawn if name == NCCL for at in range(start, start + length)}
    assert exposed_ns + device.comm_overlapped_ns == len(covered)


def op(name: str, start: int, end: int, thread: int = 1) -> dict[str, Any]:
    return {"rank": 0, "process": 1, "thread": thread, "start": start, "end": end, "name": name}


def test_an_operators_self_time_is_what_its_callees_leave() -> None:
    ops = [
        op("linear", 0, 100),
        op("addmm", 10, 80),
        op("copy_", 20, 30),
        op("linear", 200, 210),
        op("linear", 0, 5, 2),
    ]
    rank = breakdown(timeline([], ops)).ranks[0]
    assert rank.operators == [
        OperatorTime(name="addmm", count=1, total_ns=70, self_ns=60),
        OperatorTime(name="linear", count=3, total_ns=115, self_ns=45),
        OperatorTime(name="copy_", count=1, total_ns=10, self_ns=10),
    ]


def test_operators_that_start_together_nest_by_length() -> None:
    rank = breakdown(timeline([], [op("inner", 0, 10), op("outer", 0, 30)])).ranks[0]
    assert {row.name: row.self_ns for row in rank.operators} == {"inner": 10, "outer": 20}


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 20)), min_size=1, max_size=12))
def test_self_times_are_never_negative_and_sum_to_the_threads_busy_time_when_nested(
    drawn: list[tuple[int, int]],
) -> None:
    ops = [op("x", start, start + length) for start, length in drawn]
    [row] = breakdown(timeline([], ops)).ranks[0].operators
    covered = {at for start, length in drawn for at in range(start, start + length)}
    assert row.self_ns >= len(covered)


def test_a_timeline_without_device_work_says_so() -> None:
    report = breakdown(timeline([], [op("x", 0, 1)]))
    assert report.ranks[0].devices == []
    assert [finding.code for finding in report.findings] == ["no-device-activity"]


def test_an_activity_that_overruns_the_next_on_its_stream_is_told_and_on_another_stream_is_not() -> None:
    rows = [activity(0, 100), activity(90, 200), activity(50, 150, stream=8), activity(10, 20, device=1)]
    [finding] = breakdown(timeline(rows)).findings
    assert (finding.code, finding.severity) == ("overlap-on-a-stream", "warning")
    assert finding.evidence == {
        "rank": 0, "activities": 1, "overlap_ns": 10, "summed_ns": 320, "clipped_ns": 310, "most_of": GEMM,
    }  # fmt: skip


def test_activities_that_touch_or_have_no_length_overrun_nothing() -> None:
    rows = [activity(0, 10), activity(5, 5), activity(10, 10), activity(10, 20)]
    assert breakdown(timeline(rows)).findings == []


def test_streams_of_one_number_are_each_processs_own() -> None:
    assert breakdown(timeline([activity(0, 10, process=1), activity(5, 20, process=2)])).findings == []


@pytest.mark.parametrize(("lost", "told"), [(10, False), (11, True)])
def test_launches_whose_kernels_are_missing_are_told_beyond_a_windows_edge(lost: int, told: bool) -> None:  # noqa: FBT001
    host = {"rank": 0, "process": 1, "thread": 1, "start": 0, "end": 1}
    launches = [host | {"name": "cudaLaunchKernel", "correlation": n} for n in range(40)]
    launches += [host | {"name": "cudaMemcpyAsync", "correlation": 100 + n} for n in range(40)]
    rows = [activity(n, n + 1, correlation=n) for n in range(40 - lost)]
    made = replace(timeline(rows), launches=pa.Table.from_pylist(launches, LAUNCHES))
    made.check()
    findings = breakdown(made).findings
    assert [finding.code for finding in findings] == (["launches-without-activity"] if told else [])
    if told:
        assert findings[0].evidence == {"rank": 0, "launches": 40, "without_activity": 11}


@pytest.mark.parametrize("duration", [0, 1])
def test_an_interval_of_no_length_counts_as_a_call_and_takes_no_time(duration: int) -> None:
    device = only_device(breakdown(timeline([activity(5, 5 + duration)])))
    assert (device.kernels[0].count, device.busy_ns) == (1, duration)
