"""torch.profiler traces of every era and in every state: real ones, and small ones made to go wrong in one way each."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepscope.analyzers.breakdown import breakdown
from stepscope.analyzers.intervals import length, union
from stepscope.analyzers.kineto import stream
from stepscope.analyzers.kineto.find import find_traces
from stepscope.analyzers.kineto.read import read_trace, read_traces
from stepscope.analyzers.kineto.times import nanoseconds
from stepscope.analyzers.timeline import Timeline
from stepscope.record.errors import TraceError, UserError

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


def written(path: Path, events: list[dict[str, Any]], **facts: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events} | facts))
    return path


def kernel(ts: Any, dur: Any, name: str = "k", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def rows(timeline: Timeline, table: str = "activities") -> list[dict[str, Any]]:
    timeline.check()
    found: list[dict[str, Any]] = getattr(timeline, table).to_pylist()
    return found


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


def test_the_rank_is_what_the_trace_says_else_what_its_name_says_else_0(tmp_path: Path) -> None:
    told = written(tmp_path / "rank3_trace.json", [kernel(1, 1)], distributedInfo={"rank": 5, "world_size": 8})
    named = written(tmp_path / "x.rank-12.json", [kernel(1, 1)])
    neither = written(tmp_path / "y.json", [kernel(1, 1)])
    assert [read_trace(path).sources[0].rank for path in (told, named, neither)] == [5, 12, 0]
    assert read_trace(told).sources[0].world_size == 8


def test_two_traces_of_one_rank_are_refused(tmp_path: Path) -> None:
    paths = [written(tmp_path / f"{name}.json", [kernel(1, 1)]) for name in "ab"]
    with pytest.raises(UserError, match="rank 0 has 2 traces"):
        read_traces(paths)


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


def test_a_bare_list_of_events_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([kernel(1, 2)]))
    assert len(rows(read_trace(path))) == 1


def test_integers_beyond_64_bits_do_not_stop_the_reading(tmp_path: Path) -> None:
    huge = 1 << 70
    events = [kernel(1, 2, correlation=huge, stream=huge), kernel(5, 2, correlation=(1 << 63) - 1)]
    found = rows(read_trace(written(tmp_path / "t.json", events)))
    assert [row["correlation"] for row in found] == [None, (1 << 63) - 1]


@pytest.mark.parametrize(
    "name", [b"raw \x01 control", b"invalid \xff utf-8", rb"C:\Users\torch\x.py", b'quoted \\" name', b"ncclKernel"]
)
def test_strange_bytes_in_names_are_mended_and_said(tmp_path: Path, name: bytes) -> None:
    path = tmp_path / "t.json"
    event = b'{"ph": "X", "cat": "kernel", "name": "%s", "pid": 0, "tid": 7, "ts": 1, "dur": 2}'
    path.write_bytes(b'{"traceEvents": [' + event % b"first" + b"," + event % name + b"]}")
    timeline = read_trace(path)
    assert len(rows(timeline)) == 2
    needs_mending = name[0] in b"riC"
    assert [finding.code for finding in timeline.findings] == (["mended"] if needs_mending else [])


def many(count: int) -> list[dict[str, Any]]:
    return [kernel(10 * n + 1, 5, f"kernel {n % 7}", stream=n % 3, device=0, correlation=n) for n in range(count)]


@pytest.mark.parametrize("block", [64, 500, 4096, 1 << 20])
def test_where_blocks_are_cut_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    path = written(tmp_path / "t.json", many(300), distributedInfo={"rank": 2}, traceName="x")
    monkeypatch.setattr(stream, "BLOCK", block)
    timeline = read_trace(path)
    assert [row["correlation"] for row in rows(timeline)] == list(range(300))
    assert timeline.sources[0].rank == 2
    assert timeline.findings == ()


@pytest.mark.parametrize("block", [64, 500, 1 << 20])
def test_keys_in_another_order_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    events = [{"args": {"device": 0, "more": {"deep": 1}}, **kernel(n + 1, 1)} | {"ph": "X"} for n in range(50)]
    monkeypatch.setattr(stream, "BLOCK", block)
    reordered = [
        {key: event[key] for key in ("args", "name", "ts", "dur", "cat", "pid", "tid", "ph")} for event in events
    ]
    assert len(rows(read_trace(written(tmp_path / "t.json", reordered)))) == 50


@pytest.mark.parametrize("block", [300, 2000])
def test_keys_that_change_their_order_midway_are_read_block_by_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """As where a tool has sorted the keys and the first events have no arguments."""
    monkeypatch.setattr(stream, "BLOCK", block)
    monkeypatch.setattr(stream, "_WHOLE_BYTES", 4000)
    plain = [{"ph": "M", "name": "process_name", "pid": n} for n in range(40)]
    events = plain + [{"args": {"correlation": n, "deep": [{"ph": "X"}]}, **kernel(n + 1, 1)} for n in range(100)]
    events[40:] = [{key: event[key] for key in sorted(event)} for event in events[40:]]
    for number, event in enumerate(events[40:]):
        event["args"]["correlation"] = number
    timeline = read_trace(written(tmp_path / "t.json", events, distributedInfo={"rank": 3}))
    assert [row["correlation"] for row in rows(timeline)] == list(range(100))
    assert timeline.sources[0].rank == 3
    assert timeline.findings == ()


@pytest.mark.parametrize("block", [64, 300, 1 << 20])
@pytest.mark.parametrize("place", [0, 1, 20, 38])
def test_an_event_that_is_no_json_is_left_out_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, place: int
) -> None:
    monkeypatch.setattr(stream, "BLOCK", block)
    texts = [json.dumps(event) for event in many(40)]
    texts[place] = texts[place].replace("kernel ", 'kern"el ')
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [' + ",\n".join(texts) + '], "distributedInfo": {"rank": 2}}')
    timeline = read_trace(path)
    assert [row["correlation"] for row in rows(timeline)] == [n for n in range(40) if n != place]
    assert [(finding.code, finding.evidence) for finding in timeline.findings] == [("unreadable", {"events": 1})]
    assert timeline.sources[0].rank == 2


@given(cut=st.integers(250, 4000))
def test_a_file_cut_anywhere_gives_what_comes_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("cut") / "t.json"
    whole = json.dumps({"schemaVersion": 1, "traceEvents": many(60)}).encode()
    path.write_bytes(whole[:cut])
    complete = whole[:cut].count(b"}}")
    timeline = read_trace(path)
    assert [row["correlation"] for row in rows(timeline)] == list(range(complete))
    assert [finding.code for finding in timeline.findings] == ["truncated"]


@given(
    changes=st.lists(st.tuples(st.integers(0, 2200), st.binary(max_size=3)), min_size=1, max_size=4),
    block=st.sampled_from([64, 700, 1 << 20]),
)
def test_damage_anywhere_gives_a_sound_timeline_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]], block: int
) -> None:
    content = bytearray(json.dumps({"traceEvents": many(15), "distributedInfo": {"rank": 1}}).encode())
    for place, new in changes:
        content[place : place + 1] = new
    path = tmp_path_factory.mktemp("damaged") / "t.json"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "BLOCK", block)
        try:
            timeline = read_trace(path)
        except TraceError as error:
            assert "\n" not in str(error)  # noqa: PT017
            return
    timeline.check()
    breakdown(timeline)


def test_a_gzip_stream_that_stops_short_gives_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    whole = gzip.compress(json.dumps({"traceEvents": many(5000)}).encode())
    path.write_bytes(whole[: len(whole) // 2])
    timeline = read_trace(path)
    assert 0 < len(rows(timeline)) < 5000
    assert [finding.code for finding in timeline.findings] == ["truncated"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"hello", "is no trace: there is no traceEvents array"),
        (b"SQLite format 3\x00" + bytes(100), "is no trace"),
        (b'{"schemaVersion": 1}', "is no trace: there is no traceEvents array"),
        (b'{"traceEvents": []}', "has no events"),
        (b'{"traceEvents": [1, 2]}', "has no events"),
        (b"\x1f\x8b nonsense", "is a damaged gzip file"),
        (b"[nonsense", "is no trace"),
        (b"[" * 100_000, "is no trace: its arrays and objects nest too deep"),
        (b'{"traceEvents": [{"ph": "X", "na"me": 1}, {"ph": "X" 1}]}', "holds 2 events, none of which reads as JSON"),
    ],
)
def test_other_files_are_named_in_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=says) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_a_trace_of_something_else_is_read_and_said_to_be_so(fixtures: Path) -> None:
    timeline = read_trace(fixtures / "odd" / "perfetto_test_json_all_slice_types.json")
    assert [finding.code for finding in timeline.findings] == ["nothing-known"]


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


def test_a_folder_gives_the_last_window_of_each_rank(tmp_path: Path) -> None:
    for name in ("rank0.6", "rank0.16", "rank1.6", "rank1.16"):
        (tmp_path / f"{name}.pt.trace.json.gz").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("")
    names = [path.name for path in find_traces([tmp_path])]
    assert names == ["rank0.16.pt.trace.json.gz", "rank1.16.pt.trace.json.gz"]


def test_windows_are_told_apart_by_the_number_before_the_ending_whatever_the_worker_is_called(tmp_path: Path) -> None:
    """As tensorboard_trace_handler names them: host, process and a time in ms or ns."""
    for name in ("node1_77.999", "node1_77.1000", "node2_77.998"):
        (tmp_path / f"{name}.pt.trace.json").write_bytes(b"")
    assert [path.name for path in find_traces([tmp_path])] == [
        "node1_77.1000.pt.trace.json",
        "node2_77.998.pt.trace.json",
    ]


def test_the_one_folder_of_traces_below_a_folder_is_meant(tmp_path: Path) -> None:
    below = tmp_path / "profile" / "iteration_10"
    below.mkdir(parents=True)
    for rank in range(2):
        (below / f"rank{rank}_trace.json.gz").write_bytes(b"")
    assert [path.name for path in find_traces([tmp_path])] == ["rank0_trace.json.gz", "rank1_trace.json.gz"]


def test_a_folder_of_several_runs_or_of_no_trace_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no trace"):
        find_traces([tmp_path])
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank0.6.pt.trace.json").write_bytes(b"")
    with pytest.raises(UserError, match="holds the traces of 2 runs; name one of them"):
        find_traces([tmp_path])
    with pytest.raises(UserError, match="no such file"):
        find_traces([tmp_path / "absent"])


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("all_categories", {"void cunn_ClassNLLCriterion_updateGradInput_kernel<float>": (1, 15)}),
        ("self_time", {"void cunn_ClassNLLCriterion_updateGradInput_kernel<float>": (2, 20 + 16)}),
        ("top_level_runtime", {"void gemmSN_TN_kernel_64addr": (1, 8)}),
        (
            "tensor_core",
            {
                "kernel_no_tc": (1, 10),
                "volta_fp16_s884cudnn_fp16_128x128_ldg8_splitK_relu_f2f_exp_small_nhwc_tn_v1": (1, 15),
            },
        ),
    ],
)
def test_kernels_of_the_odd_cases_are_what_their_own_project_states(
    fixtures: Path, name: str, kernels: dict[str, tuple[int, int]]
) -> None:
    timeline = read_trace(fixtures / "odd" / f"kineto_test_{name}_0.json")
    [device] = breakdown(timeline).ranks[0].devices
    assert {row.name: (row.count, row.total_ns // 1000) for row in device.kernels} == kernels


def test_kinds_of_work_of_the_odd_case_are_what_its_own_project_states(fixtures: Path) -> None:
    report = breakdown(read_trace(fixtures / "odd" / "kineto_test_all_categories_0.json"))
    [device] = report.ranks[0].devices
    assert {row.kind: row.total_ns for row in device.kinds} == {
        "softmax and loss": 15_000, "memcpy": 10_000, "memset": 5_000
    }  # fmt: skip
    operators = {row.name: row.total_ns for row in report.ranks[0].operators}
    assert (operators["aten::to"], operators["aten::nll_loss_backward"]) == (60_000, 70_000)


def test_self_time_of_the_odd_case_differs_from_its_projects_by_the_launches_alone(fixtures: Path) -> None:
    """It takes the CUDA calls that an operator makes off its self time (35 and 30 µs are left); here they stay in."""
    timeline = read_trace(fixtures / "odd" / "kineto_test_self_time_0.json")
    operators = {row.name: row for row in breakdown(timeline).ranks[0].operators}
    launches = {row["correlation"]: row["end"] - row["start"] for row in rows(timeline, "launches")}
    assert operators["aten::mat_mul"].total_ns == 100_000
    assert operators["aten::mat_mul"].self_ns - launches[335] == 35_000
    assert operators["aten::mm"].total_ns == 40_000
    assert operators["aten::mm"].self_ns - launches[334] == 30_000


def test_every_odd_case_reads_and_holds_the_invariants(fixtures: Path) -> None:
    paths = sorted((fixtures / "odd").glob("*.json"))
    assert len(paths) > 20
    for path in paths:
        timeline = read_trace(path)
        timeline.check()
        breakdown(timeline)


def test_the_odd_cases_memory_is_its_allocations_and_releases(fixtures: Path) -> None:
    path = fixtures / "odd" / "kineto_test_memory_view_0.json"
    raw = [event["args"] for event in json.loads(path.read_text()) if event["name"] == "[memory]"]
    found = rows(read_trace(path), "memory")
    assert [row["delta_bytes"] for row in found] == [args["Bytes"] for args in raw]
    assert [row["device"] for row in found] == [args["Device Id"] if args["Device Type"] else -1 for args in raw]
    assert {row["device"] for row in found} == {-1, 0}
