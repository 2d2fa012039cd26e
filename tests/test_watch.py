"""`stepscope watch`: what it says of runs that go on, that are over, that are silent; in a pipe and on a terminal."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from made_runs import Maker

from stepscope.analyzers.follow import Follower, Watcher
from stepscope.analyzers.live import LiveRun
from stepscope.dashboards.cli import main
from stepscope.dashboards.watch_view import Lines, bar, line, one_run, spark
from stepscope.record.jsonl import JsonlWriter
from stepscope.record.manifest import Outcome
from stepscope.record.run import RunDir
from stepscope.record.steps import Step
from stepscope.record.tail import Tail
from stepscope.record.telemetry import GpuSample, XidEvent

SAMPLE = Path(__file__).parent.parent / "traces" / "sample"
MS, S = 1_000_000, 1_000_000_000
NOW = 1_700_000_000 * S


@pytest.fixture
def maker(tmp_path: Path) -> Maker:
    return Maker(tmp_path)


def going(maker: Maker, name: str = "a", *, steps: int = 60, every_ms: int = 200, **more: Any) -> RunDir:
    """A run of two ranks that has ended `steps` of 100 steps: 150 ms each, one every 200 ms, the last just now."""
    folder = maker(name, config={"steps": 100}, outcome=Outcome(), **more)
    for rank in (0, 1):
        folder.steps_path(rank).unlink()
        write_steps(folder, rank, range(1, steps + 1), steps * every_ms, every_ms)
    return folder


def write_steps(folder: RunDir, rank: int, numbers: range, age_ms: int, every_ms: int = 200, **more: Any) -> None:
    with JsonlWriter(folder.steps_path(rank)) as writer:
        for number in numbers:
            start = NOW + (every_ms * (number - 1) - age_ms) * MS
            told = {"duration_ns": 150 * MS, "forward_ns": 45 * MS, "backward_ns": 90 * MS, "loss": 4 - number / 50}
            told |= {"grad_norm": 1.0, "tokens": 900, "memory_allocated_bytes": 2**30 + rank}
            writer.write(Step(step=number, rank=rank, start_ns=start, **(told | more)))


def seen(folder: RunDir, at_ns: int = NOW) -> LiveRun:
    return Follower(folder).now(at_ns)


def test_a_run_that_goes_on_is_told_with_its_pace_and_what_is_left(maker: Maker) -> None:
    run = seen(going(maker))
    assert (run.state, run.step, run.steps, run.done_pct) == ("running", 60, 100, 60.0)
    assert run.loss == pytest.approx(4 - 60 / 50)
    assert run.step_time_ns == 150 * MS
    assert run.tokens_per_s == pytest.approx(2 * 900 / 0.150)
    assert run.left_ns == pytest.approx(40 * 200 * MS)  # steps begin 200 ms apart: what lies between them counts
    assert run.since_last_step_ns == 50 * MS
    assert [(phase.name, phase.of_step_pct) for phase in run.phases] == [("forward", 30.0), ("backward", 60.0)]
    assert run.peak_memory_bytes == 2**30 + 1
    assert run.findings == []


def test_what_is_not_measured_says_why(maker: Maker) -> None:
    folder = maker("a", config={"steps": None}, outcome=Outcome())
    for rank in (0, 1):
        folder.steps_path(rank).unlink()
    run = seen(folder)
    assert (run.step, run.loss, run.left_ns, run.tokens_per_s, run.done_pct) == (None,) * 5
    assert run.missing == {
        "step": "no step has ended yet",
        "loss": "no step has told a loss",
        "step_time_ns": "no timed step yet",
        "tokens_per_s": "no timed step has told its tokens",
        "gpus": "no reading of a GPU yet",
        "left_ns": "run.json does not say how many steps are planned",
    }
    assert "not measured" in line(run)


def test_each_look_reads_what_was_added_and_the_end_of_the_run(maker: Maker) -> None:
    folder = going(maker)
    follower = Follower(folder)
    assert follower.now(NOW).step == 60
    for rank in (0, 1):
        write_steps(folder, rank, range(61, 64), 60 * 200)
    assert follower.now(NOW + S).step == 63
    manifest = folder.manifest()
    manifest.outcome = Outcome(state="failed", message="RuntimeError: out of memory", rank=1)
    folder.write_manifest(manifest)
    run = follower.now(NOW + S)
    assert (run.state, run.left_ns, run.missing["left_ns"]) == ("failed", None, "it is over")
    assert run.findings[0].text == "It failed on rank 1: RuntimeError: out of memory."


def test_a_run_without_a_new_step_for_long_is_told_as_silent(maker: Maker) -> None:
    folder = going(maker)
    assert seen(folder, NOW + 59 * S).findings == []
    [finding] = seen(folder, NOW + 600 * S).findings
    assert finding.code == "silent-run"
    assert finding.text.startswith("No step has ended for 10 min 00 s, and a step takes 200 ms: it evaluates")


def test_spikes_lost_losses_and_a_rank_that_is_slow_are_told(maker: Maker) -> None:
    folder = going(maker, steps=40)
    for rank in (0, 1):
        write_steps(folder, rank, range(41, 43), 0, loss=9.0, duration_ns=(150 + 30 * rank) * MS)
        write_steps(folder, rank, range(43, 80), 0, loss=None, duration_ns=(150 + 30 * rank) * MS)
    findings = {finding.code: finding for finding in seen(folder).findings}
    assert "37 of the last 79 steps have no loss" in findings["steps-without-loss"].text
    assert findings["steps-without-loss"].severity == "error"
    assert "Loss spike at step 41: 3.2" in findings["loss-spike"].text
    assert findings["loss-spike"].text.endswith("it is not back yet.")


def test_gpus_are_told_with_what_slows_them_down_and_their_errors(maker: Maker) -> None:
    reading = {"memory_total_bytes": 80 * 2**30, "power_mw": 640_000, "temperature_c": 88}
    telemetry = [
        GpuSample(t_ns=1, device=0, utilization_pct=3, memory_used_bytes=2**30, **reading),
        GpuSample(t_ns=2, device=0, utilization_pct=98, memory_used_bytes=60 * 2**30, throttle_reasons=0x40, **reading),
        GpuSample(t_ns=2, device=1, utilization_pct=97, memory_used_bytes=20 * 2**30, throttle_reasons=0x4, **reading),
        XidEvent(t_ns=3, device=1, xid=79),
    ]
    run = seen(going(maker, telemetry=telemetry))
    assert [(gpu.device, gpu.utilization_pct, gpu.memory_used_pct, gpu.power_w) for gpu in run.gpus] == [
        (0, 98, 75.0, 640.0), (1, 97, 25.0, 640.0),
    ]  # fmt: skip
    assert [finding.text for finding in run.findings] == [
        "GPU 1 of node 0 had a critical error: XID 79.",
        "GPU 0 of node 0 is slowed down by heat (hardware).",
    ]
    text = [str(row) for row in one_run(run, 80)]
    assert "GPU 0    █████████▊  98.0 %  memory ███████▌░░ 60.0 GiB of 80.0 GiB  640 W  88 °C" in text


def test_the_screen_fits_eighty_columns_but_for_long_names(maker: Maker) -> None:
    reading = {"memory_total_bytes": 141 * 2**30, "power_mw": 700_000, "temperature_c": 100}
    telemetry = [GpuSample(t_ns=1, device=7, utilization_pct=100, memory_used_bytes=111 * 2**30, **reading)]
    for text in map(str, one_run(seen(going(maker, telemetry=telemetry)), 80)):
        assert len(text) <= 80, text


def test_of_a_folder_those_that_run_are_watched_and_those_that_begin_later(maker: Maker, tmp_path: Path) -> None:
    maker("old")
    going(maker, "now")
    going(maker, "left behind")
    os.utime(tmp_path / "left behind" / "run.json", (1, 1))
    for rank in (0, 1):
        os.utime(RunDir(tmp_path / "left behind").steps_path(rank), (1, 1))
    watcher = Watcher([tmp_path])
    assert [run.run for run in watcher.look(time.time_ns()).runs] == ["now"]
    going(maker, "later")
    assert [run.run for run in watcher.look(time.time_ns()).runs] == ["now", "later"]
    assert watcher.may_begin_others
    assert not Watcher([tmp_path / "old"]).may_begin_others


def test_where_none_runs_the_newest_is_shown_and_the_command_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(SAMPLE), "--every", "0.1"]) == 0
    out = capsys.readouterr().out
    assert out.count("step 16 of 16  loss 4.0502") == 1
    assert "mxtw" in out
    assert "bf16" not in out


def test_a_failed_run_is_an_exit_code_and_no_run_is_a_line(
    maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maker("a", outcome=Outcome(state="failed", message="boom"))
    assert main(["watch", str(tmp_path / "a"), "--once"]) == 1
    (tmp_path / "empty").mkdir()
    assert main(["watch", str(tmp_path / "empty")]) == 1
    assert "no run here yet" in capsys.readouterr().err
    assert main(["watch", str(tmp_path / "a"), "--every", "0"]) == 2
    assert "--every: must be from 0.1 to 3600 seconds, not 0" in capsys.readouterr().err


def test_json_is_one_object_a_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(SAMPLE / "bf16"), "--format", "json"]) == 0
    [text] = capsys.readouterr().out.splitlines()
    answer = json.loads(text)
    assert answer["schema"] == "stepscope.watch/1"
    assert answer["runs"][0]["steps"] == 16
    assert answer["runs"][0]["left_ns"] is None


def test_a_pipe_gets_a_line_a_step_and_each_finding_once(maker: Maker, capsys: pytest.CaptureFixture[str]) -> None:
    folder = going(maker, steps=2, emulated=True, emulated_why="no GPU")
    watcher, view = Watcher([folder.path]), Lines()
    view.show(watcher.look(NOW))
    view.show(watcher.look(NOW))
    for rank in (0, 1):
        write_steps(folder, rank, range(3, 4), 400)
    view.show(watcher.look(NOW))
    lines = capsys.readouterr().out.splitlines()
    assert [text[10:] for text in lines if "step" in text and "emulated" not in text] == [
        "a  step 2 of 100  loss 3.9600  a step 150 ms  12,000 tokens/s  19.6 s left",
        "a  step 3 of 100  loss 3.9400  a step 150 ms  12,000 tokens/s  19.4 s left",
    ]
    assert sum("FP8 is emulated (no GPU)" in text for text in lines) == 1


def test_names_cannot_steer_the_terminal(maker: Maker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    going(maker, "\x1b[31mİstanbul 'é' 🚀 \\[bold]", model={"name": "\x1b]0;x\x07"}, recipe_name="mxtw")
    going(maker, "b")
    assert main(["watch", str(tmp_path), "--once"]) == 0
    assert main(["watch", str(next(tmp_path.glob("*🚀*"))), "--once"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "·[31mİstanbul 'é' 🚀 \\[bold]" in out


def test_on_a_terminal_the_screen_is_drawn_in_place(maker: Maker, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    folder = going(maker)
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", "import sys; from stepscope.dashboards.cli import main; sys.exit(main())"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "30"}
    with subprocess.Popen(
        [*command, "watch", str(folder.path), "--every", "0.1"], stdout=follower, stderr=follower, env=environment
    ) as watching:
        os.close(follower)
        read = b""
        while b"step 60 of 100" not in read:
            read += os.read(leader, 65536)
        manifest = folder.manifest()
        manifest.outcome = Outcome(state="completed")
        folder.write_manifest(manifest)
        while True:
            try:
                chunk = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            read += chunk
        assert watching.wait(timeout=30) == 0
    os.close(leader)
    assert b"completed" in read
    assert b"\x1b[1A" in read  # goes up and draws over itself
    assert b"\x1b[?1049h" not in read  # the other screen, which would leave nothing behind, is not used


def test_a_tail_reads_the_end_of_a_long_file_and_whole_lines_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    tail = Tail(path, dict[str, int], reach=33)
    assert tail.new() == []
    path.write_text("".join(f'{{"a":{number}}}\n' for number in range(100)) + '{"a":1')
    assert tail.new() == [{"a": 97}, {"a": 98}, {"a": 99}]  # the cut line has 6 bytes, each other 9: just three
    assert Tail(path, dict[str, int], reach=32).new() == [{"a": 98}, {"a": 99}]
    with path.open("a") as file:
        file.write('00}\nno record\n{"a":101}\n')
    assert tail.new() == [{"a": 100}, {"a": 101}]
    assert tail.unread == 1
    path.write_text('{"a":5}\n')
    assert tail.new() == [{"a": 5}]
    assert tail.new() == []


def test_bars_and_courses() -> None:
    assert bar(50.0, 4) == "██░░"
    assert bar(0.0, 4) == "░░░░"
    assert bar(None, 4) == "    "
    assert bar(250.0, 4) == "████"
    assert spark([3.0, 2.0, 1.0]) == "█▅▁"
    assert spark([2.0, 2.0]) == "▁▁"
    assert spark([]) == ""
