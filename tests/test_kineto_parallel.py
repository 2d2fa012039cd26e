"""Large traces are read by several processes to the same tables as by one."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.analyzers.kineto import parallel, stream
from stepscope.analyzers.kineto.read import read_trace
from stepscope.analyzers.timeline import SCHEMAS, Timeline

pytestmark = pytest.mark.skipif(parallel.cpus() < 2, reason="one CPU: nothing is shared out")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kB are a large trace here, cut into many stretches."""
    monkeypatch.setattr(parallel, "LEAST_BYTES", 0)
    for module in (parallel, stream):
        monkeypatch.setattr(module, "BLOCK", 4096)


def events(count: int) -> list[dict[str, Any]]:
    """An operator, its launch and its kernel, again and again; every tenth kernel is a collective."""
    found: list[dict[str, Any]] = []
    for at in range(count):
        host = {"ph": "X", "pid": 9, "tid": 9, "ts": at * 10, "dur": 4}
        found.append(host | {"cat": "cpu_op", "name": "aten::mm", "args": {"External id": at, "Input Dims": [[at, 2]]}})
        found.append(host | {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": at}})
        args = {"device": 0, "stream": 7, "correlation": at, "External id": at}
        if at % 10 == 0:
            args |= {"Collective name": "allreduce", "In msg nelems": at, "dtype": "Float", "Group size": 8}
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel {at % 3}", "pid": 0, "tid": 7, "ts": at * 10 + 2.5}
        found.append(kernel | {"dur": 3.001, "args": args})
    return found


def text_of(found: list[dict[str, Any]]) -> bytes:
    return json.dumps({"distributedInfo": {"rank": 3}, "traceEvents": found, "traceName": "t"}, indent=1).encode()


def by_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> Timeline:
    with monkeypatch.context() as patched:
        patched.setattr(parallel, "cpus", lambda: 1)
        return read_trace(path)


def assert_same(one: Timeline, other: Timeline) -> None:
    assert one.sources == other.sources
    assert one.findings == other.findings
    for name in SCHEMAS:
        assert getattr(one, name).to_pylist() == getattr(other, name).to_pylist(), name


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_several_processes_read_what_one_reads(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / f"t.{ending}"
    text = text_of(events(500))
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    assert parallel.read_in_parallel(path, lambda *_: None) is not None
    timeline = read_trace(path)
    assert_same(timeline, by_one(path, monkeypatch))
    assert timeline.sources[0].rank == 3
    assert [len(getattr(timeline, name)) for name in ("ops", "launches", "activities", "collectives")] == [
        500, 500, 500, 50,
    ]  # fmt: skip


def test_a_trace_that_ends_in_an_event_gives_what_comes_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    text = text_of(events(500))
    path.write_bytes(text[: text.rindex(b'"kernel 1"')])
    timeline = read_trace(path)
    assert_same(timeline, by_one(path, monkeypatch))
    assert [finding.code for finding in timeline.findings] == ["truncated"]


def test_one_bad_byte_amid_the_trace_costs_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.json"
    text = text_of(events(500))
    at = text.index(b"kernel 2", len(text) // 2)
    path.write_bytes(text[:at] + b"\xff" + text[at + 1 :])
    assert parallel.read_in_parallel(path, lambda *_: None) is None
    timeline = read_trace(path)
    assert_same(timeline, by_one(path, monkeypatch))
    assert len(timeline.activities) == 500


def test_begins_and_ends_that_lie_far_apart_still_meet(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    host = {"cat": "user_annotation", "name": "all of it", "pid": 9, "tid": 9}
    found = [{"ph": "B", "ts": 1, **host}, *events(300), {"ph": "E", "ts": 5000, **host}]
    path.write_bytes(text_of(found))
    [row] = read_trace(path).ranges.to_pylist()
    assert (row["name"], row["start"], row["end"]) == ("all of it", 1000, 5_000_000)
