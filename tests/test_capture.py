"""torch.profiler windows: which steps are recorded, under which names, and that a failing profiler harms nothing."""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import profile

from stepscope.profiling.ranges import region
from stepscope.profiling.schedule import Schedule
from stepscope.profiling.trace_file import pack
from stepscope.profiling.window import TorchWindow
from stepscope.record.errors import ConfigError
from stepscope.record.run import RunDir

NONE, WARMUP, RECORD, SAVE = "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE"


def test_a_schedule_waits_warms_up_and_records_then_repeats() -> None:
    schedule = Schedule.cycles(wait=2, warmup=1, active=2, repeat=2)
    cycle = [NONE, NONE, WARMUP, RECORD, SAVE]
    assert [schedule.action(step) for step in range(1, 13)] == [*cycle, *cycle, NONE, NONE]
    assert [step for step in range(1, 13) if schedule.opens(step)] == [4, 9]


@given(st.integers(0, 4), st.integers(0, 3), st.integers(1, 4), st.integers(1, 3))
def test_every_window_records_exactly_its_active_steps(wait: int, warmup: int, active: int, repeat: int) -> None:
    schedule = Schedule.cycles(wait=wait, warmup=warmup, active=active, repeat=repeat)
    actions = [schedule.action(step) for step in range(1, 60)]
    assert sum(action in (RECORD, SAVE) for action in actions) == active * repeat
    assert actions.count(SAVE) == repeat
    assert actions.count(WARMUP) == warmup * repeat
    assert sum(schedule.opens(step) for step in range(1, 60)) == repeat


@given(st.integers(0, 4), st.integers(0, 3), st.integers(1, 4), st.integers(1, 3), st.integers(0, 9))
def test_a_schedule_after_a_step_is_the_same_shifted(
    wait: int, warmup: int, active: int, repeat: int, after: int
) -> None:
    shifted = Schedule.cycles(wait=wait, warmup=warmup, active=active, repeat=repeat, after=after)
    plain = Schedule.cycles(wait=wait, warmup=warmup, active=active, repeat=repeat)
    assert [shifted.action(after + step) for step in range(1, 60)] == [plain.action(step) for step in range(1, 60)]


def test_spans_of_steps_are_written_as_first_and_last() -> None:
    schedule = Schedule.at("3:4, 8", warmup=1)
    assert schedule.spans == ((3, 4), (8, 8))
    assert schedule.last == 8
    actions = [schedule.action(step) for step in range(1, 10)]
    assert actions == [NONE, WARMUP, RECORD, SAVE, NONE, NONE, WARMUP, SAVE, NONE]


@pytest.mark.parametrize("text", ["", "0:3", "5:4", "a", "1:2:3", "4:6,6:7", "8,3", "1-4"])
def test_a_text_that_is_no_spans_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="write first:last"):
        Schedule.at(text)


def test_a_cut_span_is_shorter_or_gone_and_the_others_stay() -> None:
    schedule = Schedule.at("3:6,9:9")
    assert schedule.cut(3, 2).spans == ((3, 4), (9, 9))
    assert schedule.cut(3, 9).spans == schedule.spans
    assert schedule.cut(9, 0).spans == ((3, 6),)


def test_windows_end_where_the_limit_of_bytes_does(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    window = TorchWindow(RunDir(tmp_path), 0, Schedule.at("2:3,6:9,12:13"), limit_bytes=1)
    with window:
        for number in range(1, 15):
            window.step(number)
    assert [path.name for path in RunDir(tmp_path).traces()] == ["rank0.2.pt.trace.json.gz"]
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the window at step 6 records 0 of 4 steps", "the window at step 12 records 0 of 2 steps"
    ]  # fmt: skip


def test_the_first_step_of_a_long_window_that_nothing_is_known_of_says_how_many_more_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with TorchWindow(RunDir(tmp_path), 0, Schedule.at("2:40,50:52"), limit_bytes=1) as window:
        recording = []
        for number in range(1, 60):
            recording += [number] if window.recording else []
            window.step(number)
    assert [path.name for path in RunDir(tmp_path).traces()] == ["rank0.2.pt.trace.json.gz", "rank0.3.pt.trace.json.gz"]
    assert recording == [1, 2, 3, 4], "a window that is open ends with its next step at the earliest"
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the window at step 3 records 2 of 38 steps", "the window at step 50 records 0 of 3 steps"
    ]  # fmt: skip


def test_a_long_window_with_room_is_recorded_whole(tmp_path: Path) -> None:
    traces = trained(tmp_path, Schedule.at("2:12"), steps=13)
    steps = [[name for name in annotations(trace) if name.startswith("ProfilerStep")] for trace in traces.values()]
    assert steps == [["ProfilerStep#2"], [f"ProfilerStep#{step}" for step in range(3, 13)]]


def trained(folder: Path, schedule: Schedule, steps: int, **flags: Any) -> dict[str, dict[str, Any]]:
    """Traces of a loop of matrix products, by file name."""
    run = RunDir(folder)
    recording = []
    with TorchWindow(run, 3, schedule, **flags) as window:
        for number in range(1, steps + 1):
            recording.append(window.recording)
            with region("step"):
                torch.ones(8, 8) @ torch.ones(8, 8)
            window.step(number)
    assert recording == [schedule.action(step) != NONE for step in range(1, steps + 1)]
    assert not [path for path in folder.iterdir() if path.name.startswith(".")], "nothing half-written stays"
    return {path.name: json.loads(gzip.decompress(path.read_bytes())) for path in run.traces()}


def annotations(trace: dict[str, Any]) -> list[str]:
    return [event["name"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]


def test_each_window_becomes_one_trace_named_by_rank_and_first_step(tmp_path: Path) -> None:
    traces = trained(tmp_path, Schedule.cycles(wait=1, warmup=1, active=2, repeat=2), steps=9)
    assert list(traces) == ["rank3.3.pt.trace.json.gz", "rank3.7.pt.trace.json.gz"]
    steps = [[name for name in annotations(trace) if name.startswith("ProfilerStep")] for trace in traces.values()]
    assert steps == [["ProfilerStep#3", "ProfilerStep#4"], ["ProfilerStep#7", "ProfilerStep#8"]]
    assert [annotations(trace).count("step") for trace in traces.values()] == [2, 2]


@pytest.mark.parametrize("spans", ["1", "1:2"])
def test_a_window_from_the_first_step_on_has_it(tmp_path: Path, spans: str) -> None:
    [(name, trace)] = trained(tmp_path, Schedule.at(spans), steps=4).items()
    assert name == "rank3.1.pt.trace.json.gz"
    assert annotations(trace).count("step") == len(spans.split(":"))


def test_a_window_cut_short_is_written_with_the_steps_it_has(tmp_path: Path) -> None:
    [(name, trace)] = trained(tmp_path, Schedule.cycles(wait=1, warmup=0, active=5), steps=3).items()
    assert name == "rank3.2.pt.trace.json.gz"
    assert annotations(trace).count("step") == 2


def test_a_run_that_ends_before_its_window_leaves_no_trace(tmp_path: Path) -> None:
    assert trained(tmp_path, Schedule.cycles(wait=5, warmup=1, active=1), steps=3) == {}


def test_the_trace_holds_shapes_and_memory_but_no_host_name_and_no_path(tmp_path: Path) -> None:
    [trace] = trained(tmp_path, Schedule.cycles(wait=0, warmup=1, active=1), steps=3).values()
    products = [event for event in trace["traceEvents"] if event["name"] == "aten::mm"]
    assert products[0]["args"]["Input Dims"][:2] == [[8, 8], [8, 8]]
    assert [event for event in trace["traceEvents"] if event["name"] == "[memory]"]
    assert trace["host_name"] == ""
    assert trace["traceName"] == "rank3.2.pt.trace.json.gz"
    assert trace["baseTimeNanoseconds"] > 0
    assert str(tmp_path) not in json.dumps(trace)


@given(st.integers(0, 3 << 20), st.sampled_from([{"host_name": 'a "b" c', "n": 1}, {"n": 1}]))
def test_packing_changes_only_the_two_names(filling: int, head: dict[str, Any]) -> None:
    events = [{"name": '"host_name": "kept"', "filling": "x" * filling}]
    document = {**head, "traceEvents": events, "traceName": "/home/someone/.part"}
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder, "plain"), Path(folder, "rank0.1.pt.trace.json.gz")
        plain.write_text(json.dumps(document))
        pack(plain, packed)
        expected = document | {"traceName": packed.name} | ({"host_name": ""} if "host_name" in head else {})
        assert json.loads(gzip.decompress(packed.read_bytes())) == expected
        assert [path.name for path in Path(folder).iterdir()] == [packed.name]


def test_a_profiler_that_fails_is_switched_off_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(profile, "export_chrome_trace", full_disk)
    with TorchWindow(RunDir(tmp_path), 0, Schedule.cycles(wait=0, warmup=1, active=1, repeat=2)) as window:
        for number in range(1, 5):
            window.step(number)
        assert not window.recording
    assert list(tmp_path.iterdir()) == []
    [record] = caplog.records
    assert "torch.profiler ends here, training goes on: OSError: [Errno 28] No space left" in record.getMessage()
