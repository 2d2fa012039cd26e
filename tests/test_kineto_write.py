"""A timeline written as a Chrome trace is one that reads back equal, and in which no slice overlaps another."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepscope.analyzers.kineto.read import read_trace
from stepscope.analyzers.kineto.write import write_trace
from stepscope.analyzers.timeline import ACTIVITIES, RANGES, SCHEMAS, Source, Timeline

SAMPLE = Path(__file__).parent.parent / "traces" / "sample"
TIMES = st.integers(1, 4000)
NAMES = st.sampled_from(
    ["aten::mm", "nccl:all_reduce", 'quo"ted \\ name', "naïve \u2028", "ProfilerStep#3", "nn.Module: Linear_0", "\x01"]
)
ORIGIN = st.sampled_from([0, 5_271_700_980_000, 1_700_000_000_000_000])
NUMBER = st.none() | st.integers(1, 1 << 62)
COLLECTIVE = st.fixed_dictionaries(
    {"Collective name": st.sampled_from(["allreduce", "_allgather_base"])},
    optional={"In msg nelems": st.integers(1, 99), "Group size": st.integers(2, 8), "dtype": st.just("BFloat16")},
)


@st.composite
def events(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Events as torch.profiler writes them, crossing each other on their tracks as they like."""
    origin = draw(ORIGIN)
    found = []
    for _ in range(draw(st.integers(1, 12))):
        category = draw(
            st.sampled_from(["kernel", "gpu_memcpy", "cuda_sync", "cuda_runtime", "cpu_op", "user_annotation"])
        )
        args: dict[str, Any] = {"correlation": draw(NUMBER), "External id": draw(NUMBER)}
        if category in ("kernel", "gpu_memcpy", "cuda_sync"):
            args |= {"device": draw(st.integers(0, 1)), "stream": draw(st.integers(7, 8)), "bytes": draw(NUMBER)}
        if category == "cpu_op":
            shapes = draw(st.none() | st.lists(st.lists(st.integers(0, 9), max_size=2), max_size=2))
            args |= {"Input Dims": shapes, "Sequence number": draw(NUMBER)}
        if category != "cuda_runtime" and draw(st.booleans()):
            args |= draw(COLLECTIVE)
        time, length = (f"{value // 1000}.{value % 1000:03}" for value in (draw(TIMES), draw(TIMES)))
        whole, rest = time.split(".")
        found.append(
            {"ph": "X", "cat": category, "name": draw(NAMES), "pid": 9, "tid": draw(st.integers(1, 2))}
            | {"ts": f"{origin + int(whole)}.{rest}", "dur": length, "args": args}
        )
    memory = {"Bytes": draw(st.integers(-99, 99)), "Device Type": draw(st.integers(0, 1)), "Device Id": 0}
    found.append({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": origin + 1, "args": memory})
    found.append({"ph": "C", "name": "power", "pid": 1, "ts": origin + 2, "args": {"watts": 1.5, "limit": 2}})
    return found


def rows(timeline: Timeline) -> dict[str, list[str]]:
    """The tables; what is said of collectives, of which no order is kept, by its text."""
    timeline.check()
    found = {name: list(map(str, getattr(timeline, name).to_pylist())) for name in SCHEMAS}
    found["collectives"].sort()
    return found


def overlaps(path: Path) -> list[tuple[Any, ...]]:
    """Slices of one track that begin within another and end after it."""
    raw = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes(), parse_float=str)
    found, tracks = [], {}
    for event in raw["traceEvents"]:
        if event["ph"] == "X":
            start, length = (int(event[key].replace(".", "")) for key in ("ts", "dur"))
            tracks.setdefault((event["pid"], event["tid"]), []).append((start, -start - length, event["cat"]))
    for track, slices in tracks.items():
        still_open: list[int] = []
        for start, minus_end, category in sorted(slices):
            while still_open and still_open[-1] <= start:
                still_open.pop()
            if still_open and (-minus_end > still_open[-1] or category in ("kernel", "gpu_memcpy", "gpu_memset")):
                found.append((track, start, -minus_end))
            still_open.append(-minus_end)
    return found


@settings(deadline=None, max_examples=80)
@given(events())
def test_what_is_written_reads_back_equal_and_no_slices_of_a_track_cross(
    tmp_path_factory: pytest.TempPathFactory, raw: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("round")
    path = folder / "t.json"
    path.write_text(json.dumps({"traceEvents": raw, "distributedInfo": {"rank": 3, "world_size": 8}}))
    timeline = read_trace(path)
    write_trace(timeline, folder / "again.json")
    again = read_trace(folder / "again.json")
    assert rows(again) == rows(timeline)
    assert again.findings == ()
    assert (again.sources[0].rank, again.sources[0].world_size) == (3, 8)
    assert overlaps(folder / "again.json") == []


@pytest.mark.parametrize("recipe", ["bf16", "mxtw"])
def test_the_samples_read_back_equal(tmp_path: Path, recipe: str) -> None:
    timeline = read_trace(next((SAMPLE / recipe).glob("rank1*.pt.trace.json.gz")))
    write_trace(timeline, tmp_path / "again.json.gz")
    again = read_trace(tmp_path / "again.json.gz")
    assert rows(again) == rows(timeline)
    assert again.sources[0].origin_ns == timeline.sources[0].origin_ns
    assert overlaps(tmp_path / "again.json.gz") == []


@pytest.mark.parametrize(
    "name", [pytest.param("v100_ddp_test.json.gz", marks=pytest.mark.slow), "h100_gaunernst_bert-small-uncased.json.gz"]
)
def test_real_traces_read_back_equal(fixtures: Path, tmp_path: Path, name: str) -> None:
    """The first has 31 kernels that overlap others of their stream: Perfetto would drop them."""
    timeline = read_trace(fixtures / "torch" / name)
    write_trace(timeline, tmp_path / "again.json.gz")
    again = read_trace(tmp_path / "again.json.gz")
    assert rows(again) == rows(timeline)
    assert again.sources[0].device_names == timeline.sources[0].device_names
    assert overlaps(tmp_path / "again.json.gz") == []


def test_what_only_nsight_systems_records_is_kept_too(tmp_path: Path) -> None:
    work = {"rank": 0, "device": 0, "stream": 7, "start": 10, "end": 20, "kind": "graph", "name": "CUDA graph 3"}
    host = {"rank": 0, "process": 5, "thread": 0, "start": 1, "end": 9, "name": "step"}
    ranges = [host | {"style": "pushpop"}, host | {"start": 4, "end": 12, "style": "startend"}]
    timeline = Timeline(
        sources=(Source(rank=0, path="x", format="nsys"),),
        activities=pa.Table.from_pylist([work | {"process": 5, "graph": 3}], ACTIVITIES),
        ranges=pa.Table.from_pylist(ranges, RANGES),
    )
    write_trace(timeline, tmp_path / "t.json")
    assert rows(read_trace(tmp_path / "t.json")) == rows(timeline)
    assert overlaps(tmp_path / "t.json") == []
