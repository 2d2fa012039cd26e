"""`stepscope trace` as people and machines meet it."""

import csv
import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.analyzers.kineto.find import find_traces
from stepscope.analyzers.kineto.read import read_traces
from stepscope.analyzers.trace_answers import answers
from stepscope.dashboards.cli import COMMANDS, main
from stepscope.dashboards.trace_views import VIEWS, ViewName

ON_SCREEN = (
    "mi300_resnet_act_checkpoint.json.gz", "gpu_only.json.gz", "mi250_minitoy.json.gz",
    "h100_gaunernst_bert-small-uncased.json.gz", "cpu_only_rank34.pt.trace.json.gz",
)  # fmt: skip
SAMPLE = Path(__file__).parent.parent / "traces" / "sample" / "mxtw"


def test_a_gpu_trace_shows_devices_kinds_and_kernels(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(fixtures / "torch" / "large_integer.json.gz")]) == 0
    out = capsys.readouterr().out
    assert "Devices: the span in four parts" in out
    assert "100.0 %" in out, "its one kernel is communication that nothing hides"
    assert "ncclKernel_AllReduce" in out


def test_a_cpu_run_shows_ranges_and_operators_and_says_that_device_time_is_not_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["trace", str(SAMPLE), "--top", "3"]) == 0
    out = capsys.readouterr().out
    assert "Named ranges: the first 3 of" in out
    assert "CPU operators: the first 3 of" in out
    assert "FSDP: all-gather forward 5 in" in out
    assert "Ranks side by side; 18 collectives matched" in out
    assert "device time is not measured" in out


def test_the_default_view_is_one_screen_of_80_columns(
    fixtures: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for path in (SAMPLE, *(fixtures / "torch" / name for name in ON_SCREEN)):
        assert main(["trace", str(path)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) <= 75, path
        assert max(map(len, lines)) <= 80, path


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_a_table_as_csv_or_says_what_it_takes(
    view: ViewName, fixtures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in (SAMPLE, fixtures / "torch" / "h100_gaunernst_bert-small-uncased.json.gz"):
        assert main(["trace", str(path), "--view", view, "--format", "csv"]) == 0
        header, *lines = csv.reader(io.StringIO(capsys.readouterr().out))
        assert all(len(line) == len(header) for line in lines)
        shown = main(["trace", str(path), "--view", view])
        out, err = capsys.readouterr()
        assert (shown, bool(out)) == ((0, True) if lines else (1, False))
        assert len(err.splitlines()) == (not lines)


def test_a_view_shows_the_same_whether_or_not_the_rest_was_answered_too(fixtures: Path) -> None:
    for path in (SAMPLE, fixtures / "torch" / "mi300_resnet_act_checkpoint.json.gz"):
        timeline = read_traces(find_traces([path]))
        whole = answers(timeline)
        for view in VIEWS.values():
            alone = answers(timeline, only=view.needs)
            assert view.build(alone).rows == view.build(whole).rows
            if view.draw:
                shown = [[(table.title, table.rows) for table in view.draw(report, 0)] for report in (alone, whole)]
                assert shown[0] == shown[1]


def test_operators_are_told_apart_by_their_input_shapes_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for more in ([], ["--by-shape"]):
        assert main(["trace", str(SAMPLE), "--view", "operators", "--format", "csv", *more]) == 0
        found.append([row for row in csv.DictReader(io.StringIO(capsys.readouterr().out)) if row["name"] == "aten::mm"])
    whole, apart = found
    assert len(whole) == 2, "one for each rank"
    assert len(apart) > 6
    assert {row["shapes"] for row in whole} == {""}
    assert all(json.loads(row["shapes"])[0] for row in apart)
    for column in ("count", "total_ns", "self_ns"):
        assert sum(int(row[column]) for row in apart) == sum(int(row[column]) for row in whole)


def test_json_is_the_whole_report_with_its_schema(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fixtures / "torch" / "mi300_resnet_act_checkpoint.json.gz"
    assert main(["trace", str(path), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == "stepscope.timeline/1"
    [device] = report["ranks"][0]["devices"]
    parts = [device[name] for name in ("compute_ns", "comm_exposed_ns", "memory_ns", "idle_ns")]
    assert sum(parts) == device["span_ns"]
    assert len(device["kernels"]) == 55
    assert set(device["kernels"][0]) == {
        "name", "kind", "count", "total_ns", "mean_ns", "median_ns", "p95_ns", "min_ns", "max_ns"
    }  # fmt: skip


def test_csv_has_every_kernel_and_nothing_else_on_stdout(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fixtures / "torch" / "mi300_resnet_act_checkpoint.json.gz"
    assert main(["trace", str(path), "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 55
    assert sum(int(row["count"]) for row in rows) == 2995
    assert all(int(row["min_ns"]) <= float(row["median_ns"]) <= int(row["max_ns"]) for row in rows)


def test_traces_are_written_for_perfetto_one_a_rank_and_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "mine.json.gz"
    assert main(["trace", str(SAMPLE), "--perfetto", str(out)]) == 0
    files = [tmp_path / f"mine.rank{rank}.json.gz" for rank in (0, 1)]
    assert capsys.readouterr().err == "".join(f"wrote {file}\n" for file in files)
    assert sorted(tmp_path.iterdir()) == files
    reports = []
    for paths in ([SAMPLE], files):
        assert main(["trace", *map(str, paths), "--format", "json"]) == 0
        report = json.loads(capsys.readouterr().out)
        reports.append([{**rank, "source": None} for rank in report["ranks"]] + [report["skew"], report["findings"]])
    assert reports[0] == reports[1]
    assert main(["trace", str(SAMPLE), "--perfetto", str(out)]) == 1
    assert "exists; add --force" in capsys.readouterr().err
    assert main(["trace", str(SAMPLE), "--perfetto", str(out), "--force"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace"],
        ["trace", "x", "--top", "many"],
        ["trace", "x", "--top", "-1"],
        ["trace", "x", "--format", "xml"],
        ["trace", str(SAMPLE), "--perfetto", "x.html"],
        ["trace", "x", "--view", "all"],
    ],
)
def test_misuse_is_one_line_and_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_path_that_does_not_exist_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "absent.json"]) == 1
    assert capsys.readouterr().err == "stepscope: absent.json: no such file or folder\n"


def test_help_loads_neither_torch_nor_arrow() -> None:
    code = "import sys; from stepscope.dashboards.cli import main; main(['trace', '--help']);"
    code += "print({'torch', 'pyarrow', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("set()\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_screen_and_has_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) <= 50
    assert any(line.startswith(f"Example: stepscope {command}") for line in lines)


def test_reading_shows_its_progress_on_a_terminal_only(fixtures: Path) -> None:
    """On a pseudo-terminal bars come and go on stderr; in a pipe stderr stays empty. stdout is the same."""
    path = str(fixtures / "torch" / "v100_ddp_test.json.gz")
    code = f"from stepscope.dashboards.cli import main; main(['trace', {path!r}, '--format', 'csv'])"
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert piped.stderr == b""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=theirs) as running:
        os.close(theirs)
        assert running.stdout is not None
        assert running.stdout.read() == piped.stdout
    shown = b""
    while piece := _read(ours):
        shown += piece
    os.close(ours)
    assert b"v100_ddp_test.json.gz" in shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux says so where the other end is closed
        return b""
