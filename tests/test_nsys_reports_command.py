"""Reports as the command is asked for them: parts of a capture, units, JSON, the list, arguments."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nsys_capture import NVTX, THREAD, answer, fill, printed

from stepscope.analyzers.nsys.export import Export
from stepscope.analyzers.nsys.reports import REPORTS, Asked, report
from stepscope.analyzers.nsys.reports_filters import range_window, time_window
from stepscope.dashboards.cli import analyze_nsys_main
from stepscope.record.errors import ConfigError, UserError


@pytest.mark.parametrize(
    ("text", "window"),
    [("100/200", (100, 200)), ("1s200ms/", (1_200_000_000, None)), ("/1.5us", (None, 1500))],
)
def test_a_time_window_may_have_units_and_lack_an_end(text: str, window: tuple[int | None, int | None]) -> None:
    assert time_window(text) == window


@pytest.mark.parametrize("text", ["", "/", "100", "5/3", "1 s/2 s", "1x/2x", "-5/3"])
def test_what_is_no_time_window_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--filter-time"):
        time_window(text)


def test_an_event_counts_where_any_part_of_it_lies_in_the_window(capture: Path) -> None:
    def starts(first: int | None, last: int | None) -> list[Any]:
        return [row[4] for row in answer(capture, "cuda_kern_exec_trace", Asked(window=(first, last)))]

    assert starts(None, None) == [114, 113, 126, 30]
    assert starts(60, 113) == [113, 30]
    assert starts(125, None) == [126]
    assert starts(131, 150) == []


def test_a_range_is_found_by_name_domain_and_index(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x.sqlite") as database:
        rows = [
            (0, None, 75, "NCCL", THREAD, None, 3), (50, 60, 59, "step", THREAD, None, 0),
            (1, 9, 59, "step", THREAD, None, 0), (20, 30, 59, "a/b@c", THREAD, None, 0),
            (40, 45, 59, "step", THREAD, None, 3),
        ]  # fmt: skip
        fill(database, "NVTX_EVENTS", NVTX, rows)
    database.close()
    with Export(tmp_path / "x.sqlite") as export:
        assert range_window(export, "step") == (1, 9)
        assert range_window(export, "step/2") == (50, 60)
        assert range_window(export, "step@NCCL") == (40, 45)
        assert range_window(export, "step@NCCL/0") == (40, 45)
        assert range_window(export, "step@*/1") == (40, 45)
        assert range_window(export, "a/b@c") == (20, 30)
        with pytest.raises(UserError, match=r"has 3 ranges 'step', from /0 on"):
            range_window(export, "step/3")
        with pytest.raises(UserError, match="has no range 'stop'; it has step, a/b@c"):
            range_window(export, "stop")


def test_the_filters_of_the_command_reach_the_reports(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def kernels(*flags: str) -> list[str]:
        return [row[1] for row in printed(capture, "cuda_gpu_kern_sum", capsys, *flags)[1:]]

    assert kernels() == ["31", "14"]
    assert kernels("--device", "1") == ["1"]
    assert kernels("--filter-time", "120/") == ["14"]
    assert kernels("--filter-nvtx", "window") == ["30"]
    assert analyze_nsys_main([str(capture), "--filter-nvtx", "step", "--filter-time", "1/2"]) == 2
    assert "choose one" in capsys.readouterr().err


def test_flags_of_reports_without_a_report_are_refused(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flags in (["--timeunit", "usec"], ["--filter-time", "1/2"], ["--filter-nvtx", "step"], ["--device", "0"]):
        assert analyze_nsys_main([str(capture), *flags]) == 2
        assert "are for reports; name one: --report" in capsys.readouterr().err


def test_a_sum_of_kernels_loads_neither_pyarrow_nor_numpy(capture: Path) -> None:
    code = "import sys; from stepscope.dashboards.cli import analyze_nsys_main; analyze_nsys_main(sys.argv[1:]); "
    code += "print({'pyarrow', 'numpy'} & set(sys.modules))"
    words = [sys.executable, "-c", code, str(capture), "--report", "cuda_gpu_kern_sum", "--format", "csv"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_times_in_other_units_lose_no_nanosecond(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header, row, *_ = printed(capture, "cuda_gpu_kern_sum", capsys, "--timeunit", "usec")
    assert header[1:4] == ["Total Time (us)", "Instances", "Avg (us)"]
    assert row[1:4] == ["0.031", "2", "0.015"]
    header, row, *_ = printed(capture, "cuda_gpu_mem_time_sum", capsys, "--timeunit", "seconds")
    assert (header[1], row[1]) == ("Total Time (s)", "2.000000000")


def test_reports_as_json_say_what_is_missing(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze_nsys_main([str(capture), "--report", "cuda_gpu_kern_sum:base,osrt_sum", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "stepscope.nsys-reports/1"
    kernels, os_calls = found["reports"]
    assert kernels["report"] == "cuda_gpu_kern_sum_base"
    assert kernels["rows"][0]["Name"] == "add"
    assert kernels["rows"][0]["Time (%)"] == 68.9
    assert os_calls["rows"] is None
    assert os_calls["missing"] == "x.sqlite does not contain OS Runtime trace data"


ANSWERED = [known for known in REPORTS if known.name != "osrt_sum"]


@pytest.mark.parametrize("known", ANSWERED, ids=lambda known: known.name)
def test_every_report_has_as_many_values_as_columns_and_its_json_is_its_csv(
    capture: Path, capsys: pytest.CaptureFixture[str], known: Any
) -> None:
    header, *rows = printed(capture, known.name, capsys)
    assert rows
    assert header == [column.heading for column in known.columns]
    assert {len(row) for row in rows} == {len(header)}
    assert analyze_nsys_main([str(capture), "--report", known.name, "--format", "json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["reports"]
    assert found["columns"] == header
    for row, values in zip(rows, found["rows"], strict=True):
        for text, value in zip(row, values.values(), strict=True):
            assert (
                text == ""
                if value is None
                else float(text) == value
                if isinstance(value, float)
                else text == str(value)
            )
    assert analyze_nsys_main([str(capture), "--report", known.name]) == 0
    assert known.title in capsys.readouterr().out


def test_the_list_says_which_reports_a_file_can_answer_and_what_it_lacks_for_others(
    capture: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze_nsys_main([str(capture), "--list"]) == 0
    out = capsys.readouterr().out
    assert all(known.name in out for known in REPORTS)
    assert "no OS Runtime trace data" in out
    assert out.count("yes") == len(REPORTS) - 1


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("cuda_api_sum:base", "has no argument 'base'; it takes none"),
        ("um_sum:rows=many", "has no argument 'rows=many'; it takes :rows="),
        ("cuda_gpu_kern_sum:short", "it takes :nvtx-name, :base, :mangled"),
    ],
)
def test_an_argument_that_a_report_does_not_take_is_refused(name: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        report(name)
