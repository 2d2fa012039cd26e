"""Which traces are meant by a path, and of which rank each is."""

from pathlib import Path

import pytest
from kineto_rows import kernel, written

from stepscope.analyzers.kineto.find import find_traces
from stepscope.analyzers.kineto.read import read_trace, read_traces
from stepscope.record.errors import UserError


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
