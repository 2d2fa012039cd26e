"""`--wandb`: an offline run with the points of the step file, and nothing about the machine."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope.record.errors import ConfigError
from stepscope.record.run import RunDir
from stepscope.record.steps import Step
from stepscope.trainer import resolve
from stepscope.trainer.config import Config
from stepscope.trainer.hardware import Hardware
from stepscope.trainer.points import points
from stepscope.trainer.progress import Silent
from stepscope.trainer.watch import Watch

SAMPLE = RunDir(Path(__file__).parent.parent / "traces" / "sample" / "mxtw")

# wandb's own format: 7 bytes, then blocks of 32 KiB with records of LevelDB's log, each a protocol buffer.
_READ = """
import json, sys
from wandb.proto.wandb_internal_pb2 import Record
data, at, whole, found = open(sys.argv[1], "rb").read(), 7, b"", []
while at + 7 <= len(data):
    room = 32768 - at % 32768
    if room < 7:
        at += room
        continue
    length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
    whole += data[at + 7 : at + 7 + length]
    at += 7 + length
    if kind in (1, 4):
        record, whole = Record.FromString(whole), b""
        if record.WhichOneof("record_type") == "history":
            items = {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in record.history.item}
            found.append([record.history.step.num, items])
print(json.dumps(found))
"""


def history(path: Path) -> dict[int, dict[str, float]]:
    """Step → tag → value, wandb's own columns left out."""
    told = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=True).stdout
    return {
        step: {tag: value for tag, value in items.items() if not tag.startswith("_")}
        for step, items in json.loads(told)
    }


def test_a_step_makes_these_points() -> None:
    step = Step(
        step=3, rank=0, start_ns=0, duration_ns=2_000_000_000, forward_ns=500_000_000, loss=1.5, tokens=10, positions=64
    )
    assert points(step, tokens_of_all=40) == {
        "train/loss": 1.5,
        "speed/step_ms": 2000.0,
        "speed/forward_ms": 500.0,
        "speed/tokens_per_s": 20.0,
    }
    marked = Step(step=1, rank=0, start_ns=0, duration_ns=1_000_000, tokens=1, positions=1, marks=("first",))
    assert points(marked, tokens_of_all=2) == {"speed/step_ms": 1.0}


@pytest.mark.slow
def test_an_offline_run_has_the_points_of_the_step_file_and_no_name_of_the_machine(
    tmp_path: Path, qa_file: Path
) -> None:
    pytest.importorskip("wandb")
    flags = ["--model", "pico", "--seq-len", "64", "--eval-samples", "4", "--steps", "4", "--wandb", "--no-hints"]
    command = [sys.executable, "-m", "stepscope.trainer", *flags, "--data", str(qa_file), "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "wandb" not in done.stderr
    [folder] = tmp_path.iterdir()
    [written] = folder.glob("wandb/offline-run-*/run-*.wandb")
    ranks = RunDir(folder).steps()
    expected = {
        one.step: points(one, tokens_of_all=one.tokens + other.tokens)
        for one, other in zip(ranks[0], ranks[1], strict=True)
    }
    assert history(written) == expected
    assert "eval/loss" in expected[4]
    everything = b"".join(path.read_bytes() for path in (folder / "wandb").rglob("*") if path.is_file())
    for name in (socket.gethostname(), sys.executable, str(tmp_path)):
        assert name.encode() not in everything


_SLOW = """
import time
class Run:
    dir = "none"
    def log(self, *_, **__): pass
    def finish(self): pass
def init(**_):
    time.sleep(4)
    open({told!r}, "w").write(str(time.time_ns()))
    return Run()
def Settings(**_): pass
def teardown(): pass
"""


@pytest.mark.slow
def test_no_rank_waits_for_wandb_within_a_step(tmp_path: Path, qa_file: Path) -> None:
    told = tmp_path / "began"
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "wandb.py").write_text(_SLOW.format(told=str(told)))
    flags = ["--model", "pico", "--seq-len", "64", "--eval-samples", "0", "--steps", "2", "--wandb", "--no-profile"]
    command = [sys.executable, "-m", "stepscope.trainer", *flags, "--data", str(qa_file), "--out", str(tmp_path / "r")]
    paths = os.pathsep.join([str(tmp_path / "modules"), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, check=True, capture_output=True, timeout=180, env={**os.environ, "PYTHONPATH": paths})
    [folder] = (tmp_path / "r").iterdir()
    starts = [steps[0].start_ns for steps in RunDir(folder).steps().values()]
    assert len(starts) == 2
    assert min(starts) > int(told.read_text())


def test_a_failure_of_wandb_leaves_the_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        @staticmethod
        def init(**_: Any) -> None:
            raise OSError("no disk")

        @staticmethod
        def Settings(**_: Any) -> None:  # noqa: N802
            """As wandb's."""

    monkeypatch.setitem(sys.modules, "wandb", Broken)  # type: ignore[arg-type]
    run, steps = RunDir(tmp_path), SAMPLE.steps()[0]
    with Watch(run, 0, SAMPLE.manifest(), Silent(), wandb=True) as watch:
        for step in steps:
            watch.record(step, tokens_of_all=step.tokens)
    assert run.steps()[0] == steps
    assert "wandb ends here, training goes on: OSError: no disk" in caplog.text


def test_without_the_package_the_flag_names_the_way_to_it(qa_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "find_spec", lambda _: None)
    asked = replace(Config(data=qa_file), wandb=True)
    with pytest.raises(ConfigError, match=r"--wandb: .*pip install 'stepscope\[wandb\]'"):
        resolve.resolved(asked, Hardware(gpus=0, capability=None, cores=2), {})
