"""The pages say what is there: links lead somewhere, every command and flag has its place, output is the real one."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from stepscope.dashboards.cli import COMMANDS, analyze_nsys_main, main
from stepscope.record.recipes import RECIPES
from stepscope.trainer.config import Config

ROOT = Path(__file__).parent.parent
FLOORS = ("record", "profiling", "trainer", "analyzers", "dashboards")
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("traces/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere_and_no_page_names_a_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
    assert not re.search(r"/(?:home|root|tmp|work|Users)/", text)


@pytest.mark.parametrize("command", [*COMMANDS, "profile-train", "analyze-nsys"])
def test_every_command_has_a_page_that_the_index_names(command: str) -> None:
    page = ROOT / "docs" / f"{command}.md"
    title = command if "-" in command else f"stepscope {command}"
    assert page.read_text().startswith(f"# {title}\n")
    assert f"({command}.md)" in (ROOT / "docs" / "README.md").read_text()


def test_the_list_of_commands_names_those_that_stand_alone(capsys: pytest.CaptureFixture[str]) -> None:
    from stepscope.dashboards.cli import main

    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "profile-train" in shown
    assert "analyze-nsys" in shown


def test_every_setting_of_profile_train_is_on_its_page_and_no_other() -> None:
    text = (ROOT / "docs" / "profile-train.md").read_text()
    flags = {"--" + field.name.replace("_", "-") for field in fields(Config)} | {"--dry-run", "--bf16-all-gather"}
    table = set(re.findall(r"`(--[a-z0-9-]+)`", text.split("## Checkpoints")[0]))
    assert table == flags


def test_every_schema_in_the_code_has_its_place_on_the_page_of_machine_readable_output() -> None:
    modules = [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]
    found = {name for path in modules for name in re.findall(r"stepscope\.[a-z_-]+/\d+", path.read_text())}
    assert {"stepscope.run/1", "stepscope.doctor/1"} < found
    headings = re.findall(r"^## (stepscope.+)$", (ROOT / "docs" / "json.md").read_text(), re.MULTILINE)
    assert found == {name for heading in headings for name in heading.split(", ")}


def test_pages_name_every_recipe() -> None:
    for page in ("README.md", "docs/recipes.md"):
        text = (ROOT / page).read_text()
        assert all(row.name in text for row in RECIPES)


@pytest.mark.parametrize(
    ("page", "arguments", "columns"),
    [
        ("README.md", ["compare", "traces/sample"], 125),
        ("docs/compare.md", ["compare", "traces/sample"], 125),
        ("README.md", ["recipes"], 100),
        ("docs/recipes.md", ["recipes"], 100),
        ("docs/recipes.md", ["recipes", "mxtw"], 100),
        ("docs/trace.md", ["trace", "traces/sample/mxtw"], 80),
        ("docs/watch.md", ["watch", "traces/sample/mxtw", "--once"], 80),
    ],
)
def test_the_output_on_a_page_is_what_the_command_prints(
    page: str, arguments: list[str], columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(arguments) == 0
    assert printed(capsys) in (ROOT / page).read_text(encoding="utf-8")


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()).strip("\n")


REPORTS = "cuda_gpu_kern_sum,cuda_gpu_mem_time_sum,cuda_gpu_mem_size_sum,cuda_api_sum,nvtx_sum"


@pytest.mark.parametrize(
    ("page", "words", "columns"),
    [
        ("README.md", "analyze-nsys h100x2_after.sqlite", 115),
        ("docs/analyze-nsys.md", "analyze-nsys a100_2.7b_nvtx.sqlite", 80),
        ("docs/analyze-nsys.md", f"analyze-nsys a100_2.7b_nvtx.sqlite --top 3 --report {REPORTS}", 140),
        ("docs/analyze-nsys.md", "analyze-nsys a100_2.7b_clean.stats.txt --top 3", 105),
        ("README.md", "stepscope trace mi300_resnet_act_checkpoint.json.gz --top 5", 100),
        ("docs/trace.md", "stepscope trace mi300_resnet_act_checkpoint.json.gz --top 5", 100),
    ],
)
def test_the_output_on_a_page_is_what_the_command_prints_of_a_real_capture(
    page: str,
    words: str,
    columns: int,
    fixtures: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program, *arguments = words.split()
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(fixtures / ("nsys" if program == "analyze-nsys" else "torch"))
    assert (analyze_nsys_main if program == "analyze-nsys" else main)(arguments) == 0
    text = (ROOT / page).read_text(encoding="utf-8")
    assert f"```\n{printed(capsys)}\n```" in text
    assert " ".join(words.split()[:2]) in text
