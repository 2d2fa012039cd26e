"""The page: one file, whole without a network, safe against names from inputs, and drawn by a real browser."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from stepscope.dashboards.cli import main
from stepscope.record.run import RunDir

SAMPLE = Path(__file__).parent.parent / "traces" / "sample"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert main(["report", str(SAMPLE), "-o", str(path)]) == 0
    return path


def without_plotly(page: Path) -> str:
    """The page less the plotly library, which is long and no words of ours."""
    return re.sub(r"<script>.*?</script>", "", page.read_text(), count=1, flags=re.DOTALL)


def test_every_part_is_there_and_says_how_to_read_it(page: Path) -> None:
    text = without_plotly(page)
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == [
        "Before you quote a number", "Speed, against bf16", "Throughput", "Memory, utilisation and loss",
        "Cost of a run", "Losses", "Loss against bf16",
        "Loss", "Step time", "Phases of a step", "CPU operators", "Peak memory", "CPU use over time", "The runs",
    ]  # fmt: skip
    for part in text.split("<h2>")[2:]:
        assert re.search(r"<p>\w.{20,}?</p>", part, re.DOTALL), part[:40]
    assert "mxtw ran with emulated FP8 (no GPU)" in text


def test_the_page_asks_nothing_of_the_network(page: Path) -> None:
    text = without_plotly(page)
    assert not re.findall(r"<(?:link|img|iframe|script)[^>]+(?:src|href)=", text)
    assert not re.findall(r"@import|url\(", text)


def test_names_from_inputs_are_escaped(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE / "bf16", tmp_path / "runs" / "<img src=x onerror=alert(1)>")
    run = RunDir(tmp_path / "runs" / "<img src=x onerror=alert(1)>")
    manifest = run.manifest()
    manifest.model["name"] = "<script>alert(2)</script>"
    run.write_manifest(manifest)
    assert main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "r.html")]) == 0
    text = without_plotly(tmp_path / "r.html")
    assert "<img src=x" not in text
    assert "<script>alert(2)" not in text
    assert "&lt;script&gt;alert(2)" in text


def test_a_page_that_exists_is_not_overwritten_unasked(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = page.read_bytes()
    assert main(["report", str(SAMPLE), "-o", str(page)]) == 1
    assert "add --force to overwrite it" in capsys.readouterr().err
    assert page.read_bytes() == before
    assert main(["report", str(SAMPLE), "-o", str(page / "r.html")]) == 1
    assert f"{page}/r.html: cannot be written" in capsys.readouterr().err
    assert main(["report", str(SAMPLE), "-o", str(tmp_path / "absent" / "below" / "r.html")]) == 0
    assert (tmp_path / "absent" / "below" / "r.html").stat().st_size == len(before)


def test_a_browser_draws_every_figure_without_an_error(page: Path, tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    flags += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=8000", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run([browser, *flags, page.as_uri()], capture_output=True, text=True, timeout=90, check=True)
    assert done.stdout.count('class="main-svg"') >= 6
    assert "Uncaught" not in done.stderr
