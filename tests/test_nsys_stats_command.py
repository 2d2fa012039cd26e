"""`analyze-nsys` where all there is is what `nsys stats` printed, and where an export is in doubt."""

import csv
import json
import os
from pathlib import Path

import pytest
from test_nsys_input import a_report, an_export

from stepscope.dashboards.cli import analyze_nsys_main as analyze_nsys

KERNELS = """Generating SQLite file run.sqlite from run.nsys-rep
Processing [run.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]...

 ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)              Name
 --------  ---------------  ---------  --------  --------  --------  --------  -----------  ----------------------------
     60,0        6.000.000          2   3000000   3000000   2000000   4000000    1414213,6  nvjet_qqtst_128x256_TNT
     30,0        3.000.000          1   3000000   3000000   3000000   3000000          0,0  ampere_bf16_s16816gemm_bf16
     10,0        1.000.000          4    250000    250000    250000    250000          0,0  ncclDevKernel_AllReduce_Sum

Processing [run.sqlite] with [/opt/nsys/reports/nvtx_sum.py]...
SKIPPED: /home/somebody/run.sqlite does not contain NV Tools Extension (NVTX) data.
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "run.txt"
    path.write_text(KERNELS, encoding="utf-8")
    return path


def test_the_default_view_of_text_has_kinds_of_work_and_says_what_only_the_export_has(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze_nsys([str(text)]) == 0
    out = capsys.readouterr().out
    assert "the time of kernels: gemm fp8 60.0 %, gemm bf16 30.0 %, communication 10.0 %" in out
    assert "6.00 ms   60.0 %       2   3.00 ms   3.00 ms   gemm fp8" in out
    assert "idle time" in out
    assert "NVTX ranges: not measured; nsys stats skipped nvtx_sum: the capture does not contain NV Tools" in out
    assert "API calls: not measured; not printed" in out
    assert "somebody" not in out


def test_text_comes_back_as_the_csv_that_nsys_prints(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze_nsys([str(text), "--report", "gpukernsum,nvtx_sum", "--format", "csv"]) == 0
    shown = capsys.readouterr()
    header, first, *_ = csv.reader(shown.out.splitlines())
    assert dict(zip(header, first, strict=True)) == {
        "Time (%)": "60.0", "Total Time (ns)": "6000000", "Instances": "2", "Avg (ns)": "3000000.0",
        "Med (ns)": "3000000.0", "Min (ns)": "2000000", "Max (ns)": "4000000", "StdDev (ns)": "1414213.6",
        "Name": "nvjet_qqtst_128x256_TNT",
    }  # fmt: skip
    assert shown.err.startswith("skipped: nsys stats skipped nvtx_sum")
    assert analyze_nsys([str(text), "--report", "nvtx_sum", "--format", "csv"]) == 1


def test_json_of_text_is_of_reports_and_null_is_what_was_skipped(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze_nsys([str(text), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "stepscope.nsys-reports/1"
    kernels, ranges = found["reports"]
    assert (kernels["report"], len(kernels["rows"]), kernels["missing"]) == ("cuda_gpu_kern_sum", 3, None)
    assert (ranges["report"], ranges["rows"]) == ("nvtx_sum", None)
    assert ranges["missing"].endswith("the capture does not contain NV Tools Extension (NVTX) data")


def test_a_table_is_cut_to_the_rows_asked_for_and_takes_another_unit(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze_nsys([str(text), "--report", "cuda_gpu_kern_sum", "--top", "1", "--timeunit", "msec"]) == 0
    out = capsys.readouterr().out
    assert "CUDA GPU Kernel Summary (cuda_gpu_kern_sum): the first 1 of 3" in out
    assert "Total Time (ms)" in out
    assert "6.000000" in out
    assert "ampere" not in out


def test_a_report_that_was_not_printed_is_not_measured(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze_nsys([str(text), "--report", "osrt_sum"]) == 0
    assert "OS Runtime Summary: not measured; run.txt does not hold it" in capsys.readouterr().out


def test_the_list_says_which_reports_the_text_holds_and_why_not_the_others(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze_nsys([str(text), "--list"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert "yes" in lines["cuda_gpu_kern_sum"]
    assert "no NV Tools Extension (NVTX) data" in lines["nvtx_sum"]
    assert "not printed" in lines["osrt_sum"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--device", "1"], "--device needs the report or its export"),
        (["--filter-time", "1s/"], "--filter-time needs the report or its export"),
        (["--filter-nvtx", "step"], "--filter-nvtx needs the report or its export"),
    ],
)
def test_what_only_the_export_can_tell_is_refused_in_a_line(
    text: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    assert analyze_nsys([str(text), "--report", "cuda_gpu_kern_sum", *flags]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_arguments_of_reports_and_reports_there_are_not_are_refused(
    text: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze_nsys([str(text), "--report", "cuda_gpu_kern_sum:base"]) == 2
    assert "its arguments are as they were then" in capsys.readouterr().err
    assert analyze_nsys([str(text), "--report", "kernels"]) == 2
    assert "there is no report 'kernels'" in capsys.readouterr().err


def test_the_tables_in_a_folder_are_one_capture_and_written_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "stats"
    folder.mkdir()
    (folder / "run_cuda_api_sum.csv").write_text("Time (%),Total Time (ns),Num Calls,Name\n100.0,5,1,cuInit\n")
    (folder / "run_osrt_sum.csv").write_text("Time (%),Total Time (ns),Num Calls,Name\n100.0,7,1,poll\n")
    (folder / "run_nvtx_sum.csv").write_text("SKIPPED: run.sqlite does not contain NVTX data.\n")
    (folder / "notes.txt").write_text("nothing of nsys'\n")
    assert analyze_nsys([str(folder), "--output", str(tmp_path / "out")]) == 0
    assert "skipped nvtx_sum" in capsys.readouterr().err
    written = {path.name: path.read_text().splitlines()[1] for path in (tmp_path / "out").iterdir()}
    assert written == {"run_cuda_api_sum.csv": "100.0,5,1,cuInit", "run_osrt_sum.csv": "100.0,7,1,poll"}


def test_text_is_named_alone(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze_nsys([str(text), str(an_export(tmp_path / "other.sqlite"))]) == 2
    assert "is what nsys stats printed; name it alone" in capsys.readouterr().err


def test_the_official_text_goes_in_and_the_same_numbers_come_out(
    fixtures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, export = (fixtures / "nsys" / f"a100_2.7b_clean.{end}" for end in ("stats.txt", "sqlite"))
    for report in ("cuda_api_sum", "osrt_sum"):
        printed = []
        for path in (text, export):
            assert analyze_nsys([str(path), "--report", report, "--format", "csv"]) == 0
            printed.append(capsys.readouterr().out)
        assert printed[0] == printed[1]


def test_an_official_csv_goes_through_unchanged(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = fixtures / "nsys" / "nvtx_pushpop_trace.official.csv"
    assert analyze_nsys([str(path), "--report", "nvtx_pushpop_trace", "--format", "csv"]) == 0
    assert list(csv.reader(capsys.readouterr().out.splitlines())) == list(csv.reader(path.read_text().splitlines()))


def test_an_empty_text_is_one_line(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze_nsys([str(fixtures / "nsys" / "a100_2.7b_nvtx.stats.txt")]) == 1
    assert "is empty: nsys stats printed nothing" in capsys.readouterr().err


def test_a_doubt_about_an_export_is_a_finding_and_a_warning_beside_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    report = a_report(tmp_path)
    an_export(tmp_path / "run.sqlite", made_from="run.nsys-rep", at="2024-01-02T03:04:05")
    os.utime(tmp_path / "run.sqlite")
    assert analyze_nsys([str(report), "--format", "json"]) == 0
    finding = json.loads(capsys.readouterr().out)["findings"][0]
    assert (finding["code"], finding["severity"]) == ("export-in-doubt", "warning")
    assert "before run.nsys-rep was last written" in finding["text"]
    assert analyze_nsys([str(report), "--report", "cuda_gpu_kern_sum", "--format", "csv"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("warning: run.sqlite was made on 2024-01-02T03:04:05 UTC")
    assert shown.out.startswith("Time (%)")
