"""torch.profiler traces of every era: real ones, and small ones for each kind of event and time."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_rows import kernel, rows, written

from stepscope.analyzers.breakdown import breakdown
from stepscope.analyzers.intervals import length, union
from stepscope.analyzers.kineto import stream
from stepscope.analyzers.kineto.read import read_trace
from stepscope.analyzers.kineto.times import nanoseconds

REAL = [
    "backward_thread.json", "cpu_only_rank34.pt.trace.json.gz", "gpu_only.json.gz",
    "h100_Falconsai_nsfw_image_detection.json.gz", "h100_facebook_timesformer-base-finetuned-k400.json.gz",
    "h100_gaunernst_bert-small-uncased.json.gz", "large_integer.json.gz", "mi250_minitoy.json.gz",
    "mi300_ddp_resnet18.json.gz", "mi300_resnet_act_checkpoint.json.gz", "no_distributed_info.json.gz",
    "torch_compile_triton.json.gz", "v100_ddp_control.json.gz", "v100_ddp_test.json.gz",
    "v100_resnet50_2021.pt.trace.json.gz",
]  # fmt: skip


_STATISTICS = ("count", "sum", "min", "max")


KNOWN = {
    "kernel": "activities", "Kernel": "activities", "gpu_memcpy": "activities", "Memcpy": "activities",
    "gpu_memset": "activities", "Memset": "activities", "cuda_runtime": "launches", "cuda_driver": "launches",
    "Runtime": "launches", "cpu_op": "ops", "Operator": "ops", "user_annotation": "ranges",
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_every_event_of_a_real_trace_is_in_its_table(fixtures: Path, name: str) -> None:
    path = fixtures / "torch" / name
    raw = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes())
    wanted = dict.fromkeys(("activities", "launches", "ops", "ranges", "memory"), 0)
    for event in raw["traceEvents"]:
        wanted["memory"] += event.get("name") == "[memory]"
        table = KNOWN.get(event.get("cat") or "")
        if event.get("cat") == "python_function" and event["name"].startswith("nn.Module: "):
            table = "ranges"
        if table and event["ph"] == "X":
            wanted["ranges" if event["name"].startswith("ProfilerStep#") else table] += 1
    timeline = read_trace(path)
    timeline.check()
    assert {table: len(getattr(timeline, table)) for table in wanted} == wanted
    assert sum(wanted.values()) > 0


@pytest.mark.parametrize(
    "name",
    ["Falconsai_nsfw_image_detection", "facebook_timesformer-base-finetuned-k400", "gaunernst_bert-small-uncased"],
)
def test_device_time_is_what_a_peer_tool_says_of_it(fixtures: Path, name: str) -> None:
    """TraceLens counts memory sets as compute, we as memory operations; busy, idle and the whole are defined alike."""
    stem = fixtures / "torch" / f"h100_{name}"
    with Path(f"{stem}.peer_gpu_timeline.csv").open() as file:
        peer_ms = {row["type"]: float(row["time ms"]) for row in csv.DictReader(file)}
    timeline = read_trace(Path(f"{stem}.json.gz"))
    [device] = breakdown(timeline).ranks[0].devices
    assert device.span_ns / 1e6 == pytest.approx(peer_ms["total_time"], abs=2e-6)
    assert device.busy_ns / 1e6 == pytest.approx(peer_ms["busy_time"], abs=2e-6)
    assert device.idle_ns / 1e6 == pytest.approx(peer_ms["idle_time"], abs=2e-6)
    computing = [row for row in rows(timeline) if row["kind"] != "memcpy"]
    both = union(*(np.array([row[edge] for row in computing]) for edge in ("start", "end")))
    assert length(both) / 1e6 == pytest.approx(peer_ms["computation_time"], abs=2e-6)
    peers: dict[str, tuple[int, float, float, float]] = {}
    with Path(f"{stem}.peer_kernel_summary.csv").open() as file:
        for row in csv.DictReader(file):
            count, total, least, most = (float(row[f"Kernel duration (µs)_{what}"]) for what in _STATISTICS)
            known = peers.get(row["Kernel name"], (0, 0.0, least, most))
            peers[row["Kernel name"]] = (
                known[0] + int(count), known[1] + total, min(known[2], least), max(known[3], most)
            )  # fmt: skip
    ours = {row.name: (row.count, row.total_ns / 1e3, row.min_ns / 1e3, row.max_ns / 1e3) for row in device.kernels}
    assert ours.keys() == peers.keys()
    assert {name: row[0] for name, row in ours.items()} == {name: row[0] for name, row in peers.items()}
    for name, row in peers.items():
        assert ours[name] == pytest.approx(row, abs=2e-3)


def test_the_overlaps_on_one_stream_are_counted_as_a_person_counted_them(fixtures: Path) -> None:
    """31 in the changed job, none in the control; no trace lacks the kernel of a launch."""
    found = {
        name: [(f.code, f.evidence["activities"]) for f in breakdown(read_trace(fixtures / "torch" / name)).findings]
        for name in ("v100_ddp_test.json.gz", "v100_ddp_control.json.gz")
    }
    assert found == {"v100_ddp_test.json.gz": [("overlap-on-a-stream", 31)], "v100_ddp_control.json.gz": []}


@given(st.integers(0, 9_000_000_000_000_000_000))
def test_no_nanosecond_is_lost_on_the_way_from_microseconds(time_ns: int) -> None:
    """Kineto writes µs with three decimals; up to 2⁴³ µs, some hundred days, a double tells neighbours apart."""
    if time_ns < 1000 << 43:
        assert nanoseconds([float(f"{time_ns // 1000}.{time_ns % 1000:03}")]).tolist() == [time_ns]
    assert nanoseconds([time_ns // 1000]).tolist() == [time_ns // 1000 * 1000]


def test_times_may_be_text(tmp_path: Path) -> None:
    [row] = rows(read_trace(written(tmp_path / "t.json", [kernel("1000.001", "0.5")])))
    assert (row["start"], row["end"]) == (1_000_001, 1_000_501)


def test_unix_times_keep_their_place(tmp_path: Path) -> None:
    timeline = read_trace(written(tmp_path / "t.json", [kernel(1_666_149_715_033_200, 45)]))
    assert rows(timeline)[0]["start"] == 1_666_149_715_033_200_000
    assert timeline.sources[0].origin_ns == 0


def test_the_origin_is_the_traces_base_time(tmp_path: Path) -> None:
    timeline = read_trace(written(tmp_path / "t.json", [kernel(10, 1)], baseTimeNanoseconds=1_790_857_026_000_000_000))
    assert timeline.sources[0].origin_ns == 1_790_857_026_000_000_000


def test_impossible_times_are_counted_and_spoil_no_sum(tmp_path: Path) -> None:
    events = [kernel(10, 5), kernel(20, -1), kernel(0, 0), kernel(30, None), kernel("soon", 1), kernel(40, 0)]
    timeline = read_trace(written(tmp_path / "t.json", events))
    assert [(row["start"], row["end"]) for row in rows(timeline)] == [(10_000, 15_000), (40_000, 40_000)]
    [finding] = timeline.findings
    assert finding.code == "impossible-times"
    assert finding.evidence == {"negative": 1, "without a time": 2, "unfinished": 1}


@pytest.mark.parametrize("times", [(1.5, 2**64 / 1000), (1.5, 1e300), (9e15, 9e15), (20, 2**64 - 1), (1.5, 86_400e6)])
def test_durations_of_a_day_or_beyond_any_clock_spoil_no_sum(tmp_path: Path, times: tuple[float, float]) -> None:
    """2⁶⁴ ns is what an end stamp of 0 gives in unsigned arithmetic; scaled in int64 it would look like 384 ns."""
    timeline = read_trace(written(tmp_path / "t.json", [kernel(10, 5), kernel(*times)]))
    assert [(row["start"], row["end"]) for row in rows(timeline)] == [(10_000, 15_000)]
    assert [sum(finding.evidence.values()) for finding in timeline.findings] == [1]


@pytest.mark.parametrize("text", ["1712345678901234.567", '"1712345678901234.567"', "1712345678901234567e-3"])
@pytest.mark.parametrize("name", ["k", "C:\\Users"])
def test_unix_times_keep_the_nanoseconds_that_a_double_would_lose(tmp_path: Path, text: str, name: str) -> None:
    path = tmp_path / "t.json"
    event = f'{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {text}, "dur": 0.001}}'
    path.write_text(f'{{"traceEvents": [{event}, {event}, {event}]}}')
    found = rows(read_trace(path))
    assert [(row["start"], row["end"]) for row in found] == [(1712345678901234567, 1712345678901234568)] * 3


@pytest.mark.parametrize("block", [100, 1 << 20])
def test_begin_and_end_events_make_intervals_nested_by_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(stream, "BLOCK", block)

    def begin(ts: float, name: str, tid: int, cat: str = "user_annotation") -> dict[str, Any]:
        return {"ph": "B", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts}

    def end(ts: float, tid: int) -> dict[str, Any]:
        return {"ph": "E", "pid": 1, "tid": tid, "ts": ts}

    events = [begin(1, "outer", 1), begin(2.5, "inner", 1), begin(3, "other", 2), end(4.001, 1), end(9, 2), end(10, 1)]
    events += [end(11, 1), begin(12, "unknown", 1, "v8"), begin(13, "open", 2)]
    timeline = read_trace(written(tmp_path / "t.json", events))
    found = {(row["name"], row["start"], row["end"]) for row in rows(timeline, "ranges")}
    assert found == {("inner", 2500, 4001), ("other", 3000, 9000), ("outer", 1000, 10_000)}
    assert [finding.evidence for finding in timeline.findings] == [{"unfinished": 1}]


@pytest.mark.parametrize("name", ["n", "C:\\Users"])
def test_counters_give_a_row_for_each_number(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.json"
    event = '{"ph": "C", "name": "%s", "pid": 0, "ts": %s, "args": %s}'
    one = event % (name, "1.5", '{"value": 7}')
    two = event % ("power", "2", '{"gpu0": 300.5, "gpu1": 299, "unit": "W", "ok": true}')
    path.write_text(f'{{"traceEvents": [{one}, {two}, {one}]}}')
    found = [(row["time"], row["name"], row["value"]) for row in rows(read_trace(path), "counters")]
    mended = name.replace("\\\\", "\\")
    assert found == [(1500, mended, 7), (2000, "power: gpu0", 300.5), (2000, "power: gpu1", 299), (1500, mended, 7)]


def test_what_was_begun_in_a_trace_of_another_program_is_no_fault_of_this_one(fixtures: Path) -> None:
    timeline = read_trace(fixtures / "odd" / "perfetto_test_json_all_slice_types.json")
    assert "impossible-times" not in {finding.code for finding in timeline.findings}


def test_allocations_carry_their_device_and_totals(tmp_path: Path) -> None:
    arguments = {"Total Allocated": 900, "Total Reserved": 2000, "Bytes": -100, "Device Id": 1, "Device Type": 1}
    event = {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": 2.5,
        "args": arguments,
    }
    host = event | {"args": {"Bytes": 64, "Device Id": -1, "Device Type": 0}}
    assert rows(read_trace(written(tmp_path / "t.json", [event, host])), "memory") == [
        {"rank": 0, "device": 1, "time": 2500, "delta_bytes": -100, "allocated_bytes": 900, "reserved_bytes": 2000},
        {"rank": 0, "device": -1, "time": 2500, "delta_bytes": 64, "allocated_bytes": None, "reserved_bytes": None},
    ]


def test_what_a_trace_says_of_collectives_is_kept_beside_their_kernels_operators_and_ranges(tmp_path: Path) -> None:
    told = {"Collective name": "allgather", "In msg nelems": 64, "Out msg nelems": 512, "Group size": 8}
    told |= {"dtype": "BFloat16", "Process Group Name": "1"}
    host = {"ph": "X", "cat": "cpu_op", "pid": 9, "tid": 3, "ts": 1, "dur": 5}
    gloo = host | {"cat": "user_annotation", "name": "gloo:all_reduce", "ts": 8}
    events = [
        host | {"name": "record_param_comms", "args": told},
        kernel(4, 9, "ncclDevKernel_AllGather_RING_LL", device=2, stream=5, correlation=77, **told),
        gloo | {"args": {"Input Dims": [[3, 7]], "Input type": ["double"]}},
        host | {"name": "aten::mm", "ts": 20},
    ]
    found = rows(read_trace(written(tmp_path / "t.json", events)), "collectives")
    places = [(row["device"], row["process"], row["thread"], row["correlation"]) for row in found]
    assert sorted(places, key=str) == [(2, None, None, 77), (None, 9, 3, None), (None, 9, 3, None)]
    by_name = {row["name"]: row for row in found}
    for name in ("record_param_comms", "ncclDevKernel_AllGather_RING_LL"):
        row = by_name[name]
        assert (row["collective"], row["group"], row["group_size"]) == ("allgather", "1", 8)
        assert (row["dtype"], row["in_elements"], row["out_elements"]) == ("BFloat16", 64, 512)
    row = by_name["gloo:all_reduce"]
    assert (row["collective"], row["dtype"], row["in_elements"]) == ("gloo:all_reduce", "double", 21)
    assert (row["out_elements"], row["group_size"]) == (None, None)


def test_calls_of_modules_are_ranges_and_other_python_frames_are_left_out(tmp_path: Path) -> None:
    frame = {"ph": "X", "cat": "python_function", "pid": 9, "tid": 3, "ts": 1, "dur": 5}
    events = [frame | {"name": "nn.Module: Linear_0"}, frame | {"name": "train.py(3): step"}]
    [row] = rows(read_trace(written(tmp_path / "t.json", events)), "ranges")
    assert (row["name"], row["style"]) == ("nn.Module: Linear_0", "module")
