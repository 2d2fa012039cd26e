"""Any program under Nsight Systems, by a stand-in (`fake_nsys.py`): it stays its own whatever nsys does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepscope.dashboards.cli import analyze_nsys_main, main
from stepscope.profiling import nsys_program
from stepscope.record.manifest import Capture
from stepscope.record.run import RunDir

CLI = [sys.executable, "-c", "import sys; from stepscope.dashboards.cli import main; sys.exit(main())"]
ONCE = "import sys; open(sys.argv[1], 'a').write('ran\\n'); print('out'); sys.exit(5)"


def words(out: Path, *flags: str) -> list[str]:
    return ["capture", "--capture", "nsys", "--out", str(out), "--run-name", "a", *flags, "--", sys.executable, "-c"]


def test_a_program_under_nsys_keeps_its_input_output_and_exit_code(
    tmp_path: Path, on_path: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "import sys; print(sys.stdin.read() + sys.argv[1]); print('to stderr', file=sys.stderr); sys.exit(3)"
    done = subprocess.run([*CLI, *words(tmp_path), program, "--lr"], input="given ", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "given --lr\n")
    first, ran, last = done.stderr.splitlines()
    assert first == "to stderr"
    assert ran.startswith("stepscope: ran ")
    assert last == f"stepscope: nsys: done; look at it with: analyze-nsys {tmp_path / 'a' / 'a.rank0.sqlite'}"
    run = RunDir(tmp_path / "a")
    manifest = run.manifest()
    assert (manifest.outcome.state, manifest.outcome.exit_code) == ("failed", 3)
    tables = ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum", "cuda_api_sum")
    stats = [f"a.rank0_{name}.csv" for name in tables]
    files = ["a.rank0.nsys-rep", "a.rank0.sqlite", *stats]
    assert manifest.captures == [
        Capture(tool="nsys", version="2025.6.1.190", report=files[0], sqlite=files[1], stats=stats, steps=None)
    ]
    assert sorted(path.name for path in run.path.iterdir()) == sorted([*files, "run.json", "telemetry.node0.jsonl"])
    assert len(run.telemetry()[0]) >= 3
    assert analyze_nsys_main([str(run.path)]) == 0
    assert "void gemm<float>(int)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("scenario", "says"),
    [
        ("no_permission", "nsys has no permission to record (Operation not permitted)"),
        ("refuses_an_option", "refused its command line (unrecognised option '--cpuctxsw=none')"),
        ("hangs", "nsys was still running after 2 s and was ended; it wrote no report"),
        ("no_report", "nsys ended well and wrote no report: No reports were generated"),
        ("killed", "nsys was ended by SIGKILL; it wrote no report"),
        ("fails_at_the_end", "nsys ended with exit code 3"),
        ("export_fails", "nsys export ended with exit code 1"),
        ("stats_fails", "nsys stats -r cuda_gpu_kern_sum ended with exit code 1"),
    ],
)
def test_whatever_nsys_does_the_program_runs_once_and_its_result_is_kept(
    tmp_path: Path, on_path: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], scenario: str, says: str
) -> None:
    on_path.setenv("FAKE_NSYS", scenario)
    on_path.setattr(nsys_program, "START_S", 2.0 if scenario == "hangs" else 60.0)
    assert main([*words(tmp_path), ONCE, str(tmp_path / "count")]) == 5
    assert (tmp_path / "count").read_text() == "ran\n"
    printed = capfd.readouterr()
    assert printed.out == "out\n"
    _, line = printed.err.splitlines()
    assert line.startswith("stepscope: nsys: ")
    assert says in line
    begun = scenario not in ("no_permission", "refuses_an_option", "hangs")
    assert ("the program ran without nsys" in line) != begun
    manifest = RunDir(tmp_path / "a").manifest()
    assert manifest.outcome.exit_code == 5
    [capture] = manifest.captures
    assert says in (capture.problem or "")
    kept = scenario in ("fails_at_the_end", "export_fails", "stats_fails")
    assert capture.report == ("a.rank0.nsys-rep" if kept else None)
    assert (tmp_path / "a" / ".nsys-pass" / "log.txt").is_file()


def test_a_window_that_the_program_never_opens_is_told_with_the_way_out(
    tmp_path: Path, on_path: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    on_path.setenv("FAKE_NSYS", "no_report")
    assert main([*words(tmp_path, "--nsys-window"), "pass"]) == 0
    assert "with --nsys-window the program itself has to call cudaProfilerStart" in capfd.readouterr().err


def test_an_nsys_that_keeps_the_environment_says_so_before_the_program_runs(
    tmp_path: Path, on_path: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    on_path.setenv("FAKE_NSYS", "old_environment")
    assert main([*words(tmp_path), "import sys; print('program', file=sys.stderr)"]) == 0
    first, second, *_ = capfd.readouterr().err.splitlines()
    assert "writes environment variables into its report" in first
    assert second == "program"


def test_an_absent_nsys_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("STEPSCOPE_NSYS", raising=False)
    assert main([*words(tmp_path / "out"), "pass"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("stepscope: --capture nsys: there is no nsys here; install Nsight Systems")
    assert line.endswith("or leave nsys out of --capture")
    assert not (tmp_path / "out").exists()


def started(out: Path, program: str) -> "subprocess.Popen[str]":
    """The command in a session of its own, once its program says that it runs."""
    process = subprocess.Popen(
        [*CLI, *words(out), program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "runs\n"
    return process


def test_sigterm_is_the_programs_to_answer_and_nsys_writes_its_report(
    tmp_path: Path, on_path: pytest.MonkeyPatch
) -> None:
    program = (
        "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        "print('runs', flush=True); time.sleep(60)"
    )
    process = started(tmp_path, program)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 7, stderr
    assert "nsys: done" in stderr
    assert RunDir(tmp_path / "a").manifest().outcome.exit_code == 7


def test_ctrl_c_while_the_report_is_exported_keeps_the_report_and_the_programs_result(
    tmp_path: Path, on_path: pytest.MonkeyPatch
) -> None:
    on_path.setenv("FAKE_NSYS", "export_hangs")
    process = started(tmp_path, "import sys; print('runs', flush=True); sys.exit(4)")
    deadline = time.monotonic() + 30
    while not (tmp_path / "a" / "a.rank0.nsys-rep").is_file():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)  # it is not told when the export begins; before that, Ctrl-C is the program's
    os.kill(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 4, stderr
    assert "stopped before nsys was done with its report" in stderr.splitlines()[-1]
    [capture] = RunDir(tmp_path / "a").manifest().captures
    assert (capture.report, capture.sqlite) == ("a.rank0.nsys-rep", None)


def test_a_program_that_does_not_start_costs_a_line(
    tmp_path: Path, on_path: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "no-program"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    for flags, code in (([], 2), (["--capture", "nsys"], 126)):  # under nsys it is known only when all is running
        assert main(["capture", "--out", str(tmp_path), *flags, "--", str(program)]) == code
        assert f"{program}: does not start (Exec format error" in capfd.readouterr().err.splitlines()[0]
