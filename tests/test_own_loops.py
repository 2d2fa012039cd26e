"""Loops and programs that are not ours: what recording them leaves, and that it never harms them."""

import gzip
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from stepscope.analyzers.compare import compare
from stepscope.analyzers.runs import read_runs
from stepscope.dashboards.cli import main
from stepscope.profiling.capture import Capture, capture
from stepscope.record.errors import ConfigError
from stepscope.record.jsonl import JsonlWriter
from stepscope.record.run import RunDir

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def run_of(recorded: Capture) -> RunDir:
    assert recorded.run is not None
    return recorded.run


def test_five_lines_leave_a_run_that_compare_reads(tmp_path: Path) -> None:
    for name in ("bf16", "mxtw"):
        with capture(tmp_path / name, window="2:3", recipe=name, settings={"lr": 1}) as recorded:
            for number in range(1, 8):
                recorded.step(loss=5.0 - number, tokens=10)
    run = run_of(recorded)
    [steps] = run.steps().values()
    assert [step.loss for step in steps] == [4, 3, 2, 1, 0, -1, -2]
    assert [step.marks for step in steps] == [("first", "profiled"), ("profiled",), ("profiled",), (), (), (), ()]
    assert [path.name for path in run.traces()] == ["rank0.2.pt.trace.json.gz"]
    manifest = run.manifest()
    assert (manifest.outcome.state, manifest.outcome.steps, manifest.config) == ("completed", 7, {"lr": 1})
    assert list(run.telemetry()) == [0]
    comparison = compare(*read_runs([tmp_path]))
    assert [(row.recipe, row.timed_steps, row.confounders) for row in comparison.recipes] == [
        ("bf16", 4, []), ("mxtw", 4, [])
    ]  # fmt: skip


def test_a_recipe_that_is_stated_is_not_believed_and_its_fp8_is_emulated_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in ("bf16", "tensorwise"):
        with capture(tmp_path / name, window=None, telemetry_period=0, recipe=name) as recorded:
            recorded.step()
    manifest = run_of(recorded).manifest()
    assert (manifest.emulated, manifest.emulated_why, manifest.recipe_as_stated) == (True, "no GPU", True)
    assert RunDir(tmp_path / "bf16").manifest().emulated is False
    said = [finding.text for finding in compare(*read_runs([tmp_path])).findings]
    assert "tensorwise: the recipe tensorwise is as stated for a captured loop, not verified." in said
    assert any("tensorwise ran with emulated FP8 (no GPU)" in text for text in said)


@pytest.mark.parametrize(
    ("capabilities", "least"), [(["9.0", "8.0"], (8, 0)), (["10.0", "9.0"], (9, 0)), (["9.0", None], None)]
)
def test_the_least_gpu_of_all_ranks_says_whether_fp8_is_emulated(
    capabilities: list[str | None], least: tuple[int, int] | None
) -> None:
    from stepscope.profiling.capture import _least_capability
    from stepscope.record.manifest import Device

    devices = [Device(kind="cuda", name="a", memory_bytes=1, capability=capability) for capability in capabilities]
    assert _least_capability(devices) == least


def test_where_it_was_recorded_is_said_at_the_end_even_where_the_name_was_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "a-2"):
        with capture(tmp_path / "a", window=None, telemetry_period=0) as recorded:
            recorded.step()
        assert capsys.readouterr().err == f"stepscope: 1 steps recorded in {tmp_path / name}\n"


def test_a_loop_that_tells_no_tokens_has_none_measured(tmp_path: Path) -> None:
    with capture(tmp_path / "a", window=None, telemetry_period=0) as recorded:
        for _ in range(5):
            recorded.step()
    [row] = compare(*read_runs([tmp_path])).recipes
    assert (row.recipe, row.tokens_per_s, row.loss_last) == ("captured", None, None)
    assert row.step_time_ns is not None


def test_a_taken_folder_is_never_written_into(tmp_path: Path) -> None:
    folders = []
    for _ in range(2):
        with capture(tmp_path / "a", window=None, telemetry_period=0) as recorded:
            recorded.step()
        folders.append(run_of(recorded).name)
    assert folders == ["a", "a-2"]


def test_the_loops_own_exception_goes_on_its_way_and_is_written_down(tmp_path: Path) -> None:
    recorded = capture(tmp_path / "a", window="1:5", telemetry_period=0)

    def loop() -> None:
        with recorded:
            recorded.step()
            raise ZeroDivisionError("of the loop")

    with pytest.raises(ZeroDivisionError):
        loop()
    outcome = run_of(recorded).manifest().outcome
    assert (outcome.state, outcome.message, outcome.steps) == (
        "failed", "rank 0 failed with ZeroDivisionError: of the loop", 1
    )  # fmt: skip


def test_what_fails_in_recording_is_logged_once_and_the_loop_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    done = 0
    with capture(tmp_path / "a", window=None, telemetry_period=0) as recorded:
        recorded.step()
        monkeypatch.setattr(JsonlWriter, "write", full_disk)
        for _ in range(3):
            recorded.step()
            done += 1
    assert done == 3
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "capture ends here, training goes on" in record.getMessage()


def test_a_folder_that_cannot_be_made_costs_the_recording_not_the_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with capture(tmp_path / "file" / "a") as recorded:
        recorded.step(loss=1.0)
    assert recorded.run is None
    assert len(caplog.records) == 1


@pytest.mark.parametrize("wrong", [{"window": "5:2"}, {"recipe": "fp3"}, {"telemetry_period": 0.1}])
def test_what_cannot_be_is_refused_before_the_loop(tmp_path: Path, wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        capture(tmp_path / "a", **wrong)  # type: ignore[arg-type]


def test_among_several_ranks_it_must_be_entered_after_the_process_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with capture(tmp_path / "a") as recorded:
        recorded.step()
    assert list(tmp_path.iterdir()) == []
    assert "enter capture after torch.distributed.init_process_group" in caplog.text


def test_numbers_of_numpy_and_torch_are_numbers(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    settings = {"lr": np.float64(0.5), "n": torch.tensor(3), "place": Path("a"), "plain": [1, "x"]}
    with capture(tmp_path / "a", window=None, telemetry_period=0, settings=settings) as recorded:
        recorded.step(
            loss=torch.tensor(2.0, requires_grad=True),
            tokens=torch.tensor(5),
            positions=np.int64(8),
            lr=np.float64(0.25),
            grad_norm=torch.tensor([1.5]),
        )
    [[step]] = run_of(recorded).steps().values()
    assert (step.loss, step.tokens, step.positions, step.lr, step.grad_norm) == (2.0, 5, 8, 0.25, 1.5)
    assert run_of(recorded).manifest().config == {"lr": 0.5, "n": 3, "place": "a", "plain": [1, "x"]}
    assert not [warning for warning in recwarn if "requires_grad" in str(warning.message)]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (SystemExit(0), "completed"),
        (SystemExit(), "completed"),
        (GeneratorExit(), "completed"),
        (SystemExit(3), "failed"),
    ],
)
def test_a_loop_that_is_left_in_good_order_has_not_failed(tmp_path: Path, error: BaseException, state: str) -> None:
    recorded = capture(tmp_path / "a", window=None, telemetry_period=0)
    with pytest.raises(type(error)), recorded:
        raise error
    assert run_of(recorded).manifest().outcome.state == state


def test_a_child_that_is_forked_within_writes_nothing(tmp_path: Path) -> None:
    code = """if True:
        import os, sys
        from stepscope.profiling.capture import capture
        with capture(sys.argv[1], window=None, telemetry_period=0) as recorded:
            recorded.step(loss=1.0)
            if os.fork() == 0:
                recorded.step(loss=99.0)
                sys.exit(7)
            os.wait()
            recorded.step(loss=2.0)
    """
    subprocess.run([sys.executable, "-c", code, tmp_path / "a"], env=ENVIRONMENT, check=True, timeout=120)
    run = RunDir(tmp_path / "a")
    assert [step.loss for step in run.steps()[0]] == [1.0, 2.0]
    assert run.manifest().outcome.state == "completed"


@pytest.mark.parametrize("out", [".", "", "..", "b/.."])
def test_a_place_without_a_name_of_its_own_is_recorded_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str
) -> None:
    here = tmp_path / "over" / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    with capture(out, window=None, telemetry_period=0) as recorded:
        recorded.step()
    assert run_of(recorded).path == (tmp_path / "over-2" if out == ".." else tmp_path / "over" / "here-2")


TWO_RANKS = """
import sys
import torch.distributed as dist
from stepscope.profiling.capture import capture

dist.init_process_group("gloo")
with capture(sys.argv[1], window="2:2", telemetry_period=0.2) as cap:
    for number in range(4):
        dist.barrier()
        cap.step(loss=float(number))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_record_into_one_folder(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text(TWO_RANKS)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, script, tmp_path / "runs" / "a"], env=ENVIRONMENT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    [path] = (tmp_path / "runs").iterdir()
    run = RunDir(path)
    assert {rank: len(steps) for rank, steps in run.steps().items()} == {0: 4, 1: 4}
    assert (run.manifest().world.size, run.manifest().world.backend) == (2, "gloo")
    traces = [json.loads(gzip.decompress(path.read_bytes())) for path in run.traces()]
    told = [trace["distributedInfo"] for trace in traces]
    assert [(info["rank"], info["world_size"]) for info in told] == [(0, 2), (1, 2)]
    assert run.manifest().outcome.state == "completed"


@pytest.mark.slow
def test_of_many_ranks_the_first_of_each_machine_are_profiled(tmp_path: Path) -> None:
    script = tmp_path / "loop.py"
    script.write_text("from stepscope.profiling import schedule; schedule.MOST_PROFILED = 1\n" + TWO_RANKS)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*launch, script, tmp_path / "runs" / "a"], env=ENVIRONMENT, check=True, timeout=120)
    run = RunDir(tmp_path / "runs" / "a")
    assert [path.name for path in run.traces()] == ["rank0.2.pt.trace.json.gz"]
    assert list(run.steps()) == [0, 1]


def test_a_program_is_recorded_with_its_own_output_and_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["capture", "--out", str(tmp_path), "--run-name", "a", "--telemetry-period", "0.17", "--"]
    program = [sys.executable, "-c", "import sys; print(sys.argv[1:]); sys.exit(3)", "--lr", "5", "--out", "x"]
    assert main([*words, *program]) == 3
    printed = capfd.readouterr()
    assert printed.out == "['--lr', '5', '--out', 'x']\n"
    assert printed.err.startswith("stepscope: ran ")
    assert "exit code 3" in printed.err
    run = RunDir(tmp_path / "a")
    manifest = run.manifest()
    assert (manifest.outcome.state, manifest.outcome.exit_code) == ("failed", 3)
    assert manifest.argv[-4:] == ["--lr", "5", "--out", "x"]
    assert len(run.telemetry()[0]) >= 3


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["capture"], "name the program to run after --"),
        (["capture", "--", "no-such-program"], "there is no such program on the PATH"),
        (["capture", "--telemetry-period", "0", "--", "true"], "--telemetry-period"),
        (["capture", "--telemetry-period", "nan", "--", "true"], "--telemetry-period"),
        (["capture", "--telemetry-period", "inf", "--", "true"], "--telemetry-period"),
        (["capture", "--telemetry-period", "1e-9", "--", "true"], "no more than six times a second"),
        (["capture", "--run-name", "..", "--", "true"], "--run-name"),
        (["capture", "--run-name", "", "--", "true"], "--run-name"),
    ],
)
def test_misuse_costs_one_line(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert says in line


def test_the_last_line_says_whose_cpus_and_leaves_out_what_was_not_measured(tmp_path: Path) -> None:
    from stepscope.profiling.capture_command import _manifest, _summary
    from stepscope.record.telemetry import HostSample

    run = RunDir(tmp_path)
    manifest = _manifest(run, ["true"], [])
    manifest.ended_ns = manifest.started_ns + 2 * 10**9
    assert _summary(run, manifest, 0) == f"stepscope: ran 2.00 s, exit code 0; recorded in {tmp_path}\n"
    with JsonlWriter(run.telemetry_path(0)) as writer:
        writer.write(HostSample(t_ns=1, cpu_pct=50.0))
    assert "exit code 0; the machine's CPUs 50.0 %; recorded" in _summary(run, manifest, 0)


@pytest.mark.parametrize("text", ["echo no first line\n", "#!/no/such/shell\n"])
def test_a_program_that_does_not_start_is_one_line_and_no_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    program = tmp_path / "program"
    program.write_text(text)
    program.chmod(0o755)
    assert main(["capture", "--out", str(tmp_path / "runs"), "--", str(program)]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"{program}: does not start" in line
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_program_that_removes_what_is_recorded_keeps_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capture", "--out", str(tmp_path / "runs"), "--", "sh", "-c", f"rm -r {tmp_path}/runs; exit 5"]) == 5
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("stepscope: exit code 5; what was recorded is not whole: ")


def test_a_program_may_have_words_that_are_no_text(tmp_path: Path) -> None:
    assert main(["capture", "--out", str(tmp_path), "--run-name", "a", "--", "true", "\udcff"]) == 0
    assert RunDir(tmp_path / "a").manifest().argv[-1] == "?"


def test_the_recorder_of_programs_loads_no_torch() -> None:
    code = "import sys, json, stepscope.profiling.capture_command; print(json.dumps('torch' in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) is False
