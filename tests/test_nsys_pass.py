"""A pass under Nsight Systems, by a stand-in (`fake_nsys.py`): what it leaves, and how each failure stays harmless."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from torch._C._profiler import ActiveProfilerType
from torch.profiler import ProfilerActivity, profile

from stepscope.dashboards.cli import analyze_nsys_main
from stepscope.profiling import nsys_window, ranges
from stepscope.profiling.nsys import (
    STATS,
    Captured,
    Nsys,
    Ran,
    csv_part,
    files_of,
    find_nsys,
    finish,
    profile_command,
    run_under,
)
from stepscope.profiling.nsys_window import NsysWindow
from stepscope.record.errors import ConfigError
from stepscope.record.manifest import Capture, Outcome
from stepscope.record.run import RunDir
from stepscope.trainer.command import main
from stepscope.trainer.config import Config
from stepscope.trainer.hardware import Hardware
from stepscope.trainer.nsys_pass import _judged, pass_settings
from stepscope.trainer.resolve import resolved

CPU = Hardware(gpus=0, capability=None, cores=2)
SAMPLE = next(Path(__file__).parent.parent.glob("traces/sample/*/run.json")).parent
SMALL = ["--model", "pico", "--seq-len", "64", "--eval-samples", "4", "--telemetry-period", "0"]
NAMES = [".nsys-rep", ".sqlite", *(f"_{name}.csv" for name in STATS if name != "nvtx_sum")]


def captured(folder: Path, program: str = "", *, limit_s: float = 60, answer_s: float = 60) -> tuple[Captured, Path]:
    """A small program under the nsys on PATH, and what came of it."""
    nsys, stem = find_nsys(os.environ), folder / "a 100%.rank0"
    command = [*profile_command(nsys, stem, window=True), sys.executable, "-c", program]
    ran = run_under(command, limit_s=limit_s, log=folder / "log.txt")
    return finish(nsys, stem, ran, export_s=answer_s, stats_s=answer_s), stem


def test_the_command_line_records_the_window_and_neither_ends_the_program_nor_keeps_its_environment() -> None:
    nsys = Nsys(path="/opt/nsys", version="2025.6.1", help="--discard-environment=")
    words = profile_command(nsys, Path("runs/50%/x.rank0"), window=True, graph_nodes=True, memory=True)
    assert " ".join(words) == (
        "/opt/nsys profile -t cuda,nvtx -s none --cpuctxsw=none -c cudaProfilerApi --capture-range-end=stop "
        "--flush-on-cudaprofilerstop=true --kill=none --discard-environment=true --cuda-graph-trace=node "
        "--cuda-memory-usage=true -f true -o runs/50%%/x.rank0"
    )
    plain = profile_command(replace(nsys, help=""), Path("x"), window=False)
    assert " ".join(plain) == "/opt/nsys profile -t cuda,nvtx -s none --cpuctxsw=none --kill=none -f true -o x"


def test_a_capture_leaves_report_export_and_summaries(tmp_path: Path, on_path: pytest.MonkeyPatch) -> None:
    found, stem = captured(tmp_path, "print('trained')")
    assert found.problem is None
    assert [found.report, found.sqlite, *found.stats] == [stem.with_name(stem.name + name) for name in NAMES]
    assert {path for path in files_of(stem) if path.exists()} == {found.report, found.sqlite, *found.stats}
    lines = found.stats[0].read_text().splitlines()
    assert lines[0].startswith("Time (%),Total Time (ns)")
    assert lines[1:] == ["100.0,5000,2,2500.0,2500.0,2000,3000,707.1,gemm"]


def test_reports_of_before_2023_are_asked_for_by_their_old_names(tmp_path: Path, on_path: pytest.MonkeyPatch) -> None:
    on_path.setenv("FAKE_NSYS", "old_names")
    found, stem = captured(tmp_path)
    assert (found.problem, len(found.stats)) == (None, 4)
    assert found.stats[0].name == f"{stem.name}_cuda_gpu_kern_sum.csv"


def test_an_nsys_that_cannot_discard_the_environment_is_not_asked_to(
    tmp_path: Path, on_path: pytest.MonkeyPatch
) -> None:
    on_path.setenv("FAKE_NSYS", "old_environment")
    assert not find_nsys(os.environ).discards_environment
    assert captured(tmp_path)[0].problem is None


def test_a_table_is_found_among_what_nsys_says_besides() -> None:
    said = 'Processing [x.sqlite] with [r.py]... \n"Time(%)",Total\n1,"a\n'
    assert csv_part(said + "\nNOTICE: done\n") == '"Time(%)",Total\n1,"a\n'
    assert csv_part("SKIPPED: x.sqlite does not contain CUDA kernel data.\n") is None


@pytest.mark.parametrize(
    ("scenario", "line", "kept"),
    [
        ("no_report", "nsys ended well and wrote no report: No reports were generated", 0),
        ("killed", "nsys was ended by SIGKILL; it wrote no report", 0),
        ("refuses_an_option", "nsys 2025.6.1.190 refused its command line (unrecognised option '--cpuctxsw=none')", 0),
        ("no_permission", "nsys has no permission to record (Operation not permitted); have an administrator", 0),
        ("no_cupti_permission", "nsys has no permission to record (INSUFFICIENT_PRIVILEGES); have an admin", 6),
        ("fails_at_the_end", "nsys ended with exit code 3: ", 6),
        ("export_fails", "nsys export ended with exit code 1: Importer error status: Import failed", 1),
        ("stats_fails", "nsys stats -r cuda_gpu_kern_sum ended with exit code 1: ERROR: the SQLite file", 2),
    ],
)
def test_a_failure_of_nsys_is_one_line_and_what_is_whole_is_kept(
    scenario: str, line: str, kept: int, tmp_path: Path, on_path: pytest.MonkeyPatch
) -> None:
    on_path.setenv("FAKE_NSYS", scenario)
    found, stem = captured(tmp_path)
    assert found.problem is not None
    assert found.problem.startswith(line)
    assert "\n" not in found.problem
    assert sum(path.exists() for path in files_of(stem)) == kept


@pytest.mark.parametrize(
    ("scenario", "limits", "line"),
    [
        ("hangs", (1, 60), "nsys was still running after 1 s and was ended; it wrote no report"),
        ("export_hangs", (60, 1), "nsys export was still running after 1 s and was ended; the report is kept"),
    ],
)
def test_nothing_waits_for_ever(
    scenario: str, limits: tuple[float, float], line: str, tmp_path: Path, on_path: pytest.MonkeyPatch
) -> None:
    on_path.setenv("FAKE_NSYS", scenario)
    found, _ = captured(tmp_path, limit_s=limits[0], answer_s=limits[1])
    assert found.problem is not None
    assert found.problem.startswith(line)
    assert found.sqlite is None


def test_an_nsys_that_is_absent_or_too_old_or_mute_is_refused_with_the_way_to_get_one(
    tmp_path: Path, on_path: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="there is no nsys here; install Nsight Systems"):
        find_nsys({"PATH": str(tmp_path)})
    with pytest.raises(ConfigError, match=r"STEPSCOPE_NSYS names .*gone, which is no program; install"):
        find_nsys({"PATH": os.environ["PATH"], "STEPSCOPE_NSYS": str(tmp_path / "gone")})
    with pytest.raises(ConfigError, match="nsys --version ended with exit code 1"):
        find_nsys({"STEPSCOPE_NSYS": "/bin/false", "PATH": os.environ["PATH"]})
    on_path.setenv("FAKE_NSYS", "too_old")
    with pytest.raises(ConfigError, match=r"this nsys is of version 2021\.3\.2\.4, and 2022\.1 or newer is needed"):
        find_nsys(os.environ)


def test_a_run_that_needs_an_absent_nsys_does_not_begin(
    tmp_path: Path, qa_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STEPSCOPE_NSYS", "no-such-nsys")
    out = tmp_path / "out"
    for recipes in ("bf16", "bf16,mxtw"):
        asked = ["--recipe", recipes, "--capture", "nsys", "--data", str(qa_file), "--out", str(out), *SMALL]
        assert main(asked) == 2
        line = capsys.readouterr().err
        assert line.startswith("profile-train: --capture nsys: STEPSCOPE_NSYS names no-such-nsys")
        assert (line.count("\n"), out.exists()) == (1, False)


def test_under_another_launcher_nsys_is_refused(
    qa_file: Path, on_path: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        on_path.setenv(name, "1")
    assert main(["--capture", "nsys", "--data", str(qa_file), *SMALL]) == 2
    assert "this is a worker of another one already; leave nsys out" in capsys.readouterr().err


def test_a_pass_whose_own_training_failed_says_so(tmp_path: Path) -> None:
    run, ran = RunDir(tmp_path), Ran(code=1, text="the last line", limit_s=60)
    whole = Captured(problem="nsys ended with exit code 1: x; its report may lack something")
    assert _judged(whole, run, ran) == whole
    assert _judged(Captured(), run, ran).problem == "training under nsys did not finish: the last line"
    manifest = RunDir(SAMPLE).manifest()
    manifest.outcome = Outcome(state="failed", message="rank 1 ran out of GPU memory", exit_code=1)
    run.write_manifest(manifest)
    assert _judged(whole, run, ran).problem == "training under nsys failed: rank 1 ran out of GPU memory"


def test_a_flag_for_one_way_to_say_it_wins_over_a_resumed_runs_other_way(
    qa_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.toml"

    def asked(text: str, *flags: str) -> tuple[object, object]:
        file.write_text(text)
        assert main(["--data", str(qa_file), "--config", str(file), *flags, "--dry-run"]) == 0
        shown = json.loads(capsys.readouterr().out)
        return shown["capture"], shown["profile"]

    assert asked('capture = "torch,nsys"') == ("torch,nsys", True)
    assert asked('capture = ["torch", "nsys"]', "--no-profile") == ("none", False)
    assert asked("profile = false", "--capture", "torch") == ("torch", True)


def test_capture_says_which_profilers_run(qa_file: Path) -> None:
    def settled(**asked: object) -> tuple[object, object, object]:
        config = resolved(replace(Config(data=qa_file), **asked), CPU, {})  # type: ignore[arg-type]
        assert resolved(config, CPU, {}) == config, "as a resumed run has them"
        return config.capture, config.profile, config.profile_wait

    assert settled() == ("torch", True, 5)
    assert settled(capture="torch, nsys") == ("torch,nsys", True, 5)
    assert settled(capture="nsys") == ("nsys", False, 5)
    assert settled(capture="none") == settled(profile=False) == ("none", False, None)
    for wrong in ("ncu", "torch,torch", "none,nsys", ""):
        with pytest.raises(ConfigError, match="--capture: torch, nsys, torch,nsys or none"):
            settled(capture=wrong)
    with pytest.raises(ConfigError, match="--no-profile leaves torch out"):
        settled(capture="torch,nsys", profile=False)


def test_the_pass_trains_the_same_and_writes_nothing_beside(qa_file: Path, tmp_path: Path) -> None:
    asked = Config(data=qa_file, capture="nsys", steps=40, checkpoint_every=5, save_model=True, recipe="mxtw")
    config = pass_settings(resolved(asked, CPU, {}), tmp_path)
    assert (config.steps, config.warmup_steps, config.recipe, config.eval_samples) == (40, 4, "mxtw", 32)
    assert (config.checkpoint_every, config.save_model, config.telemetry_period) == (0, False, 0)
    assert resolved(config, CPU, {}).captures == []


def test_the_window_opens_before_its_first_step_and_closes_after_its_last(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[object] = []
    monkeypatch.setattr(nsys_window.torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(nsys_window.torch.cuda.profiler, "start", lambda: happened.append("start"))
    monkeypatch.setattr(nsys_window.torch.cuda.profiler, "stop", lambda: happened.append("stop"))

    def train(span: tuple[int, int], steps: int) -> list[object]:
        happened.clear()
        with NsysWindow(span, cuda=True) as window:
            for number in range(1, steps + 1):
                happened.append((number, window.recording))
                window.step(number)
        return list(happened)

    assert train((2, 3), 4) == [(1, False), "start", (2, True), (3, True), "stop", (4, False)]
    assert train((1, 3), 2) == ["start", (1, True), (2, True), "stop"]


def test_operators_are_ranges_within_the_window_only(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Emitting:
        def __init__(self, *, enabled: bool) -> None:
            self.enabled = enabled

        def __enter__(self) -> None:
            happened.append("operators" if self.enabled else "")

        def __exit__(self, *_: object) -> None:
            happened.append("no operators" if self.enabled else "")

    monkeypatch.setattr(nsys_window.torch.autograd.profiler, "emit_nvtx", Emitting)
    monkeypatch.setattr(nsys_window.torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(nsys_window.torch.cuda.profiler, "start", lambda: happened.append("start"))
    monkeypatch.setattr(nsys_window.torch.cuda.profiler, "stop", lambda: happened.append("stop"))
    with NsysWindow((1, 1), cuda=True, operators=True) as window:
        window.step(1)
    assert happened == ["start", "operators", "no operators", "stop"]


def test_nsys_sees_the_phases_of_fsdp2_of_each_unit_and_torch_is_left_as_it_was() -> None:
    script = str(Path(__file__).with_name("fsdp_phases.py"))
    found = json.loads(subprocess.run([sys.executable, script], capture_output=True, check=True).stdout)
    assert found["before"] == found["after"] == []
    assert {"FSDP::pre_forward (0)", "FSDP::pre_backward (0)", "FSDP::post_backward_reduce (0)"} < set(found["during"])


def test_a_range_is_not_told_to_nvtx_twice_where_pytorch_tells_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> int:
        with profile(activities=[ProfilerActivity.CPU]) as profiler, ranges.region("ours"):
            pass
        return sum(event.name == "ours" for event in profiler.events())

    assert told() == 1
    monkeypatch.setattr(ranges, "_profiler_type", lambda: ActiveProfilerType.NVTX)
    assert told() == 0


def trained(out: Path, data: Path, programs: Path, *flags: str, scenario: str = "") -> tuple[RunDir, int, str]:
    """A whole run with the stand-in on PATH: its folder, exit code and stderr."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "FAKE_NSYS": scenario}
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    command = [sys.executable, "-m", "stepscope.trainer", *SMALL, "--data", str(data), "--out", str(out), *flags]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    [path] = out.iterdir()
    assert done.stdout == f"{path}\n"
    return RunDir(path), done.returncode, done.stderr


@pytest.mark.slow
def test_a_run_with_both_profilers_has_both_and_its_steps_are_those_of_the_run_alone(
    tmp_path: Path, qa_file: Path, programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--capture", "torch,nsys", "--steps", "6", "--profile-active", "1", "--profile-wait", "1"]
    run, code, stderr = trained(tmp_path, qa_file, programs, *flags, "--checkpoint-every", "6")
    assert code == 0, stderr
    assert [[step.step for step in of_rank] for of_rank in run.steps().values()] == [[1, 2, 3, 4, 5, 6]] * 2
    marks = [step.marks for step in run.steps()[0]]
    assert marks == [("first",), ("profiled",), ("profiled",), (), (), ("eval", "checkpoint")]
    manifest = run.manifest()
    assert (manifest.outcome.state, manifest.outcome.steps) == ("completed", 6)
    [capture] = manifest.captures
    stem = f"{run.name}.rank0"
    stats = [f"{stem}{name}" for name in NAMES[2:]]
    assert capture == Capture(
        tool="nsys",
        version="2025.6.1.190",
        report=f"{stem}.nsys-rep",
        sqlite=f"{stem}.sqlite",
        stats=stats,
        steps=(1, 3),
    )
    assert all((run.path / name).is_file() for name in (f"{stem}.nsys-rep", f"{stem}.sqlite", *stats))
    assert [path.name for path in run.path.iterdir() if path.name.startswith((".", "log", "error"))] == []
    assert len(list(run.path.glob("events.out.tfevents.*"))) == 1
    assert "steps 1 to 3 once more under nsys 2025.6.1.190" in stderr
    for place in (run.path, run.path / f"{stem}.nsys-rep"):
        assert analyze_nsys_main([str(place)]) == 0
        assert "void gemm<float>(int)" in capsys.readouterr().out


@pytest.mark.slow
def test_a_pass_without_a_report_leaves_the_run_and_its_exit_code_as_they_are(
    tmp_path: Path, qa_file: Path, programs: Path
) -> None:
    flags = ["--capture", "nsys", "--steps", "3", "--profile-active", "1", "--profile-wait", "0"]
    run, code, stderr = trained(tmp_path, qa_file, programs, *flags, scenario="no_report")
    assert code == 0, stderr
    assert "profile-train: nsys: nsys ended well and wrote no report" in stderr.splitlines()[-1]
    [capture] = run.manifest().captures
    assert capture.problem == "nsys ended well and wrote no report: No reports were generated"
    assert (capture.report, capture.sqlite, capture.stats) == (None, None, [])
    assert [step.marks for step in run.steps()[0]] == [("first",), (), ("eval",)], "torch.profiler was off"
    assert "step 2/2" in (run.path / ".nsys-pass" / "log.txt").read_text(), "the log of the pass is kept"


@pytest.mark.slow
def test_ctrl_c_in_the_pass_ends_it_at_once_and_the_run_stays_complete(
    tmp_path: Path, qa_file: Path, programs: Path
) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "FAKE_NSYS": "hangs"}
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"
    flags = ["--data", str(qa_file), "--out", str(tmp_path), "--steps", "3", "--capture", "nsys"]
    process = subprocess.Popen(
        [sys.executable, "-m", "stepscope.trainer", *SMALL, *flags],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*/.nsys-pass/log.txt")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped by SIGINT before its report was whole" in stderr.splitlines()[-1]
    assert "Traceback" not in stderr
    [path] = tmp_path.iterdir()
    manifest = RunDir(path).manifest()
    assert (manifest.outcome.state, manifest.captures[0].tool) == ("completed", "nsys")
    assert manifest.captures[0].problem == "stopped by SIGINT before its report was whole"
