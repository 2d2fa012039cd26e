"""What `analyze-nsys` and `stepscope trace` print on a terminal of 80 columns, and in a pipe."""

import re
from pathlib import Path

import pytest

from stepscope.analyzers.nsys.reports import REPORTS
from stepscope.dashboards.cli import analyze_nsys_main, main

EXPORTS = ("a100_2.7b_nvtx", "a100_2.7b_clean", "a100x4_mpi_2024.5", "h100x2_after", "h100x2_1s", "pre2021_rtx6000")
TRACES = ("mi300_resnet_act_checkpoint", "v100_ddp_control", "h100_gaunernst_bert-small-uncased")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def widest(text: str) -> int:
    return max(len(line.rstrip()) for line in text.splitlines())


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name", EXPORTS)
def test_the_default_view_fits(fixtures: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert analyze_nsys_main([str(fixtures / "nsys" / f"{name}.sqlite")]) == 0
    text = capsys.readouterr().out
    assert widest(text) <= 80
    assert len(text.splitlines()) <= 80  # with its findings, which wrap


@pytest.mark.usefixtures("narrow")
def test_several_ranks_fit(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(fixtures / "nsys" / f"{name}.sqlite") for name in ("h100x2_1s", "h100x2_after")]
    assert analyze_nsys_main(paths) == 0
    assert widest(capsys.readouterr().out) <= 80


@pytest.mark.usefixtures("narrow")
def test_every_report_and_their_list_fit_and_no_number_is_cut(
    fixtures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(fixtures / "nsys" / "a100_2.7b_nvtx.sqlite")
    for words in (["--list"], ["--top", "3", "--report", ",".join(report.name for report in REPORTS)]):
        assert analyze_nsys_main([path, *words]) == 0
        text = capsys.readouterr().out
        assert widest(text) <= 80
        assert not re.search(r"\d…", text.replace("_v2_v1…", ""))


@pytest.mark.usefixtures("narrow")
def test_text_of_nsys_stats_fits(fixtures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze_nsys_main([str(fixtures / "nsys" / "a100_2.7b_clean.stats.txt")]) == 0
    assert widest(capsys.readouterr().out) <= 80


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("name", TRACES)
def test_a_traces_tables_fit(fixtures: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["trace", str(fixtures / "torch" / f"{name}.json.gz")]) == 0
    assert widest(capsys.readouterr().out) <= 80


@pytest.mark.usefixtures("narrow")
def test_a_trace_without_a_gpu_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(Path(__file__).parent.parent / "traces" / "sample" / "mxtw")]) == 0
    assert widest(capsys.readouterr().out) <= 80


def test_in_a_pipe_names_are_whole_and_no_column_is_missing(
    fixtures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert analyze_nsys_main([str(fixtures / "nsys" / "h100x2_after.sqlite")]) == 0
    text = capsys.readouterr().out
    assert "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<(unsigned long)4096>)" in text
    assert "FP8 of GEMM time" in text
    assert "Too narrow" not in text
