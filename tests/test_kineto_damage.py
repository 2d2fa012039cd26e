"""Traces in every state: cut, mended, damaged, packed, laid out otherwise, or of something else."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kineto_rows import kernel, rows, written

from stepscope.analyzers.breakdown import breakdown
from stepscope.analyzers.kineto import stream
from stepscope.analyzers.kineto.read import read_trace
from stepscope.record.errors import TraceError


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


def test_half_a_character_in_a_name_or_a_thread_is_a_question_mark(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(
        json.dumps({"traceEvents": [kernel(1, 2, "half \ud83d"), kernel(3, 1, "whole \U0001f600")]}).encode()
    )
    assert [row["name"] for row in rows(read_trace(path))] == ["half ?", "whole \U0001f600"]


def test_shapes_that_are_no_text_spoil_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2, "args": %s}'
    given = '{"Input type": ["c10::Hal\xff"], "Input Dims": [[2, 3]]}'
    path.write_bytes(('{"traceEvents": [' + event % given + "]}").encode("latin-1"))
    [row] = rows(read_trace(path), "ops")
    assert (row["name"], row["shapes"], row["dtypes"]) == ("aten::mm", "[[2,3]]", '["c10::Hal\ufffd"]')


def test_a_counter_beyond_any_double_is_left_out(tmp_path: Path) -> None:
    series = {"fits": 1 << 100, "does not": 10**400, "is none": True}
    event = {"ph": "C", "name": "GPU 0", "pid": 0, "ts": 1, "args": series}
    timeline = read_trace(written(tmp_path / "t.json", [event, kernel(1, 2)]))
    assert [(row["name"], row["value"]) for row in rows(timeline, "counters")] == [("GPU 0: fits", float(1 << 100))]
