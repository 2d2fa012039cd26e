"""Gates: what they ask, what noise and lack of evidence make of them, exit codes, JUnit and Markdown."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from made_runs import CPU, Maker

from stepscope.analyzers.compare import compare
from stepscope.analyzers.gates import METRICS, Gate, judge, parse_gate
from stepscope.analyzers.results import Comparison, GateResult
from stepscope.analyzers.runs import read_runs
from stepscope.dashboards.cli import main
from stepscope.record.errors import ConfigError
from stepscope.record.manifest import Outcome

ROOT = Path(__file__).parent.parent
STEADY = [900, *[200] * 8, 700]


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    (tmp_path / "runs").mkdir()
    return Maker(tmp_path / "runs")


def compared(make: Maker) -> Comparison:
    return compare(*read_runs([make.parent]))


def outcome(make: Maker, text: str, **options: str) -> tuple[str, str | None]:
    [found] = judge([parse_gate(text)], compared(make), **options)  # type: ignore[arg-type]
    return found.outcome, found.why


@pytest.mark.parametrize("text", ["step_time > +3%", "step_time>3 %", " STEP_TIME  > 3.0%"])
def test_a_gate_is_read_however_it_is_spaced(text: str) -> None:
    assert parse_gate(text) == Gate(metric="step_time", operator=">", limit=3.0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("step_time", "is no condition"),
        ("speed > 3%", "nothing is called 'speed'; there are step_time"),
        ("step_time > 3", "add a %"),
        ("loss_spikes > 3%", "leave out the %"),
        ("step_time > nan%", "is no condition"),
    ],
)
def test_what_is_no_gate_is_said_in_one_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match="--fail-if: .*" + says.replace("%", ".")):
        parse_gate(text)


def test_a_gate_fails_or_passes_where_the_whole_interval_does(make: Maker) -> None:
    for repeat in range(3):
        make(f"a{repeat}", durations=STEADY)
        make(f"b{repeat}", recipe_name="mxtw", durations=[900, *[220] * 8, 700])
    assert outcome(make, "step_time > +3%") == ("fail", None)  # 10 % more
    assert outcome(make, "step_time > +12%") == ("pass", None)
    assert outcome(make, "tokens_per_s < -5%") == ("fail", None)  # 9.1 % fewer
    assert outcome(make, "step_time > +10%") == ("pass", None)  # it is 10, not more
    assert outcome(make, "step_time >= +10%") == ("fail", None)


def test_a_limit_within_the_noise_is_inconclusive_or_what_was_asked_for(make: Maker) -> None:
    make("a", durations=STEADY)
    make("b", recipe_name="mxtw", durations=[900, 180, 190, 200, 210, 220, 230, 210, 220, 700])
    assert outcome(make, "step_time > +3%") == ("inconclusive", "the limit lies within the noise")
    assert outcome(make, "step_time > +3%", within_noise="pass")[0] == "pass"
    assert outcome(make, "step_time > +3%", within_noise="fail")[0] == "fail"


def test_a_gate_decided_by_single_runs_says_what_its_interval_lacks(make: Maker) -> None:
    make("a", durations=STEADY)
    make("b", recipe_name="mxtw", durations=[900, *[300, 310] * 4, 700])
    assert outcome(make, "step_time > +3%") == ("fail", "from 1 run a side: how runs vary is not in it")


@pytest.mark.parametrize("metric", [name for name in METRICS if METRICS[name].unit])
def test_what_is_not_measured_is_inconclusive_whatever_was_asked_for(make: Maker, metric: str) -> None:
    make("b", recipe_name="mxtw")  # no baseline
    assert outcome(make, f"{metric} > 3%", within_noise="pass") == ("inconclusive", "not measured")


def test_too_few_steps_for_an_interval_are_inconclusive(make: Maker) -> None:
    make("a", durations=[900, 200, 200, 700])
    make("b", recipe_name="mxtw", durations=[900, 200, 200, 700])
    assert outcome(make, "step_time > +50%", within_noise="pass") == (
        "inconclusive", "no interval: too few steps or repeats"
    )  # fmt: skip


def test_times_of_emulated_fp8_and_confounded_pairs_are_inconclusive(make: Maker) -> None:
    make("a", durations=STEADY)
    make("b", recipe_name="mxtw", durations=STEADY, emulated=True, emulated_why="no GPU")
    assert outcome(make, "step_time > +50%") == ("inconclusive", "FP8 was emulated: its times say nothing")
    assert outcome(make, "peak_memory > +2%") == ("pass", None)
    make("c", recipe_name="rowwise", durations=STEADY, config={"wrap": "whole"})
    [found, _] = judge([parse_gate("peak_memory > +2%")], compared(make))
    assert found.recipe == "rowwise"
    assert found.outcome == "inconclusive"
    assert (found.why or "").startswith("confounded")


def test_resident_memory_of_single_runs_is_not_exact(make: Maker) -> None:
    make("a", device=CPU)
    make("b", recipe_name="mxtw", device=CPU)
    assert outcome(make, "peak_memory > +2%")[0] == "inconclusive"


def test_a_recipe_whose_runs_all_failed_passes_nothing(make: Maker) -> None:
    make("a", durations=STEADY)
    said = "the loss is nan at step 3 and training cannot go on from there"
    make("b", recipe_name="mxtw", outcome=Outcome(state="failed", message=said))
    assert outcome(make, "step_time > 3%") == ("inconclusive", "its runs diverged")
    assert outcome(make, "diverged > 0")[0] == "fail"


def test_a_run_that_cannot_be_read_passes_nothing(make: Maker) -> None:
    make("a", durations=STEADY)
    make("b", recipe_name="mxtw", durations=STEADY)
    (make.parent / "broken").mkdir()
    (make.parent / "broken" / "run.json").write_text("{")
    found = judge([parse_gate("diverged > 0")], compared(make))
    assert [(one.recipe, one.outcome) for one in found] == [("mxtw", "pass"), ("broken", "inconclusive")]


def test_without_a_recipe_beside_the_baseline_gates_are_inconclusive(make: Maker) -> None:
    make("a", durations=STEADY)
    assert outcome(make, "diverged > 0") == ("inconclusive", "there is no recipe beside bf16")


@pytest.mark.parametrize(
    ("gates", "code", "says"),
    [
        (["step_time > +50%"], 0, ""),
        (
            ["step_time > +3%", "peak_memory > 2%"],
            3,
            "stepscope: gate failed: mxtw: step_time +10.00 % [+10.00, +10.00]",
        ),
        (
            ["energy_per_token > 3%"],
            4,
            "stepscope: gate inconclusive: mxtw: energy_per_token not measured, fails if > +3 %",
        ),
        (["energy_per_token > 3%", "step_time > 3%"], 3, "gate failed"),
    ],
)
def test_exit_codes_and_one_line_reasons(
    make: Maker, capsys: pytest.CaptureFixture[str], gates: list[str], code: int, says: str
) -> None:
    for repeat in range(3):
        make(f"a{repeat}", durations=STEADY)
        make(f"b{repeat}", recipe_name="mxtw", durations=[900, *[220] * 8, 700])
    asked = [word for gate in gates for word in ("--fail-if", gate)]
    assert main(["compare", str(make.parent), "--format", "json", *asked]) == code
    out, err = capsys.readouterr()
    assert says in err
    assert len(err.splitlines()) == sum(gate["outcome"] != "pass" for gate in json.loads(out)["gates"])
    assert [gate["gate"].partition(" ")[0] for gate in json.loads(out)["gates"]] == [
        gate.partition(" ")[0] for gate in gates
    ]


def test_a_junit_file_has_a_case_for_each_gate_and_recipe(
    make: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for repeat in range(3):
        make(f"a{repeat}", durations=STEADY)
        make(f"b{repeat}", recipe_name="mxtw", durations=[900, *[220] * 8, 700])
    file = tmp_path / "new" / "gates.xml"
    asked = ["--fail-if", "step_time > 3%", "--fail-if", "wall_clock > 90%", "--fail-if", "energy_per_token > 3%"]
    assert main(["compare", str(make.parent), "--junit", str(file), *asked]) == 3
    assert main(["compare", "--junit", str(file), *asked, str(make.parent)]) == 1
    assert "exists; add --force" in capsys.readouterr().err
    assert main(["compare", "--force", "--junit", str(file), *asked, str(make.parent)]) == 3
    capsys.readouterr()
    suite = ElementTree.parse(file).getroot()[0]
    assert {name: suite.get(name) for name in ("tests", "failures", "errors")} == {
        "tests": "3", "failures": "1", "errors": "1"
    }  # fmt: skip
    assert [[child.tag for child in case] for case in suite] == [["failure"], [], ["error"]]
    assert suite[0].get("name") == "mxtw: fails if step_time > +3 %"


def test_junit_without_a_gate_is_a_misuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(ROOT / "traces" / "sample"), "--junit", "x.xml"]) == 2
    assert "add a --fail-if" in capsys.readouterr().err


def test_markdown_is_a_block_with_verdicts_gates_and_whole_tables(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--format", "markdown", "--fail-if", "loss_gap > 0.25%"]
    assert main(["compare", str(ROOT / "traces" / "sample"), *asked]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "### Recipes against bf16"
    assert any(line.startswith("**mxtw**: No verdict on speed: FP8 was emulated.") for line in lines)
    assert any(line.startswith(r"| mxtw | loss\_gap &gt; +0.25 % | pass |") for line in lines)
    width = 0
    for line in lines:
        cells = line.replace(r"\|", "").count("|") if line.startswith("|") else 0
        assert not cells or not width or cells == width, line  # every row is as wide as the one above
        width = cells


def test_names_from_inputs_are_no_markup(make: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    make("a", model={"name": "<b>|x|`*"})
    make("b", model={"name": "other"}, recipe_name="mxtw")
    assert main(["compare", str(make.parent), "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert "<b>" not in out
    assert r"&lt;b&gt;\|x\|\`\*" in out


def test_a_result_says_its_figure_in_a_line() -> None:
    found = GateResult(
        gate="loss_gap > +0.25 %",
        metric="loss_gap",
        recipe="mxtw",
        outcome="fail",
        value=0.5,
        ci95=(0.3, 0.7),
        unit="%",
    )
    assert found.line == "mxtw: loss_gap +0.50 % [+0.30, +0.70], fails if > +0.25 %"
