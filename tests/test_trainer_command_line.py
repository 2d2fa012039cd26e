"""What the command line of `profile-train` takes, fills in from files and presets, and refuses in one line."""

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from stepscope.trainer.command import main
from stepscope.trainer.config import Config
from stepscope.trainer.demo import demo
from stepscope.trainer.hardware import Hardware
from stepscope.trainer.resolve import resolved


def test_of_the_ranks_of_a_machine_only_the_first_says_that_a_flag_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    said = []
    for local_rank in ("0", "1"):
        monkeypatch.setenv("LOCAL_RANK", local_rank)
        assert main(["--no-such-flag"]) == 2
        said.append(capsys.readouterr().err.count("\n"))
    assert said == [1, 0]
    monkeypatch.delenv("RANK")  # no launcher has started it
    assert main(["--no-such-flag"]) == 2
    assert capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "flags", "code", "says"),
    [
        (['{"question": "a", "answer": "b"}', '{"text": "c"}'], [], 1, "line 2 fits no form"),
        (['{"question": "a", "answer": "b"}', "{"], [], 1, "line 2 is no JSON"),
        (['{"question": "a", "answer": "b"}'] * 3, ["--eval-samples", "3"], 2, "has 3 examples with an answer, and"),
        (['{"question": "a", "answer": null}'], ["--eval-samples", "0"], 2, "has 0 examples with an answer"),
    ],
)
@pytest.mark.parametrize("sweep", [[], ["--repeats", "2"]])
def test_data_that_nothing_can_train_on_is_refused_before_there_is_a_folder(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    lines: list[str],
    flags: list[str],
    code: int,
    says: str,
    sweep: list[str],
) -> None:
    data = tmp_path / "a.jsonl"
    data.write_text("\n".join(lines))
    assert main(["--data", str(data), "--out", str(tmp_path / "runs"), *flags, *sweep]) == code
    [line] = capsys.readouterr().err.splitlines()
    assert says in line
    assert not (tmp_path / "runs").exists()


def test_a_presets_held_out_examples_are_more_than_the_shipped_set_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--preset", "study-1node", "--model", "pico", "--seq-len", "64", "--out", str(tmp_path / "runs")]) == 2
    assert "turkish_qa.jsonl, which comes with this, has 162 examples" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_steps_and_epochs_exclude_each_other_across_sources_and_the_nearest_wins(
    qa_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text("epochs = 3\n")

    def length(*flags: str) -> tuple[object, object]:
        assert main(["--data", str(qa_file), *flags, "--dry-run"]) == 0
        shown = json.loads(capsys.readouterr().out)
        return shown["steps"], shown["epochs"]

    assert length("--preset", "study-1node") == (None, 1.0)
    assert length("--preset", "study-multinode-bs64") == (None, 2.0)
    assert length("--preset", "study-1node", "--config", str(file)) == (None, 3.0)
    assert length("--preset", "study-1node", "--config", str(file), "--steps", "8") == (8, None)
    file.write_text("steps = 9\n")
    assert length("--preset", "study-1node", "--config", str(file)) == (9, None)


def test_a_file_and_a_preset_fill_in_what_flags_leave_open(
    qa_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f'model = "pico"\nseq-len = 64\nlr = 0.5\nbetas = [0.8, 0.9]\ndata = "{qa_file}"\n')
    flags = ["--preset", "study-1node", "--config", str(file), "--lr", "0.25", "--eval-samples", "4", "--dry-run"]
    assert main(flags) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["lr"], shown["betas"], shown["seq_len"], shown["model"]) == (0.25, [0.8, 0.9], 64, "pico")
    assert (shown["accumulation"], shown["checkpoint_every"], shown["eval_every"]) == (4, 10, 5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lr = ", "does not read as TOML"),
        ("learning_rate = 1", "has a setting 'learning_rate'"),
        ("stepz = 1", "did you mean steps?"),
        ("[train]\nlr = 1", "'train'"),
        ('steps = "many"', "steps"),
        ('resume = "traces/a"', "sets resume, which only the flag --resume can"),
        ('preset = "study-1node"', "sets preset"),
        ("recipe = [1, 2]", "has a list in recipe with something that is no name"),
        ("steps = 12.5", "run.toml sets steps to 12.5, and it must be a whole number"),
        ('steps = "12"', "run.toml sets steps to '12', and it must be a whole number"),
        ("micro-batch = true", "run.toml sets micro-batch to True, and it must be a whole number"),
        ("betas = [0.9]", "run.toml sets betas to [0.9], and it must be a list of two numbers"),
        ('lr = "1e-3"', "run.toml sets lr to '1e-3', and it must be a number"),
        ("pack = 1", "run.toml sets pack to 1, and it must be true or false"),
        ("data = 1", "run.toml sets data to 1, and it must be a text"),
        ('master_dtype = "fp16"', "run.toml sets master_dtype to 'fp16', and it must be one of 'bf16', 'fp32'"),
    ],
)
def test_a_settings_file_that_is_no_good_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    assert main(["--config", str(file), "--dry-run"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.mark.parametrize(
    "words",
    [["--micro-batch", "1.5"], ["--steps", "12.5"], ["--steps=inf"], ["--nproc", "2.5"], ["--eval-every", "nan"]],
)
def test_a_fraction_is_never_rounded_to_a_whole_number(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--dry-run"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    flag, _, number = " ".join(words).replace("=", " ").partition(" ")
    assert f"{flag}: a whole number is needed, not {number}" in line


@pytest.mark.parametrize("words", [["demo", "--steps", "2.5"], ["trace", "x", "--top", "1.5"]])
def test_nor_does_any_other_command_round_one(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from stepscope.dashboards.cli import main as stepscope

    assert stepscope(words) == 2
    assert f"{words[-2]}: a whole number is needed, not {words[-1]}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "abc", "-1"])
def test_a_launchers_variable_that_is_no_number_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    for name, value in {"RANK": text, "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert main(["--dry-run"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"RANK is {text!r}" in line


def test_a_word_with_bytes_that_are_no_text_is_shown_as_well_as_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--out", "a\udcff", "--dry-run"]) == 0
    assert json.loads(capsys.readouterr().out)["out"] == "a?"


def test_an_unknown_preset_lists_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--preset", "study", "--dry-run"]) == 2
    assert "study-1node, study-multinode-bs32, study-multinode-bs64" in capsys.readouterr().err


def test_a_dry_run_prints_the_settings_as_they_would_run(qa_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--recipe", "mxtw", "--data", str(qa_file), "--steps", "8", "--dry-run"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["recipe"]["all_gather"] == "float8"
    assert (shown["fp8_all_gather"], shown["pad_inner_dim"], shown["profile_ranks"]) == (True, True, "all")
    assert (shown["steps"], shown["lr"], shown["profile_active"]) == (8, 1e-3, 3)


@pytest.mark.parametrize(
    "words",
    [["--recipe", "fp4"], ["--steps", "many"], ["--no-such-flag"], ["--wrap", "some"]],
)
def test_misuse_costs_one_line_and_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert printed.err.startswith("profile-train: ")


def test_no_flag_is_taken_for_an_abbreviation_of_torchruns() -> None:
    from torch.distributed.run import get_args_parser

    help_page = subprocess.run(
        [sys.executable, "-m", "stepscope.trainer", "--help"], capture_output=True, text=True, check=True
    ).stdout
    flags = {word.strip(",│") for word in help_page.split() if word.startswith("--")} - {"--help", "--version"}
    assert len(flags) > 30
    for flag in flags - {"--nproc"}:
        parsed = get_args_parser().parse_args(["-m", "stepscope.trainer", flag, "1"])
        assert parsed.training_script_args == [flag, "1"]


def test_help_loads_neither_torch_nor_transformers() -> None:
    program = (
        "import sys; from stepscope.trainer.command import main; main(['--help']); "
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_the_demo_takes_as_many_steps_as_a_run_so_that_both_can_be_compared() -> None:
    parameters = inspect.signature(demo).parameters
    assert parameters["steps"].default == resolved(Config(), Hardware(gpus=0, capability=None, cores=2), {}).steps
