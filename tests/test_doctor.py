"""The doctor: each outcome from facts put in place, and one whole run on this machine."""

import csv
import io
import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from stepscope.dashboards.cli import main
from stepscope.profiling.doctor import CHECKS, Check, Result, diagnose, in_words
from stepscope.profiling.machine import Gpu, Machine, Nsys, Nvml

VERSIONS = {"torchao": "0.18.0", "transformers": "5.24.0", "tensorboard": "2.21.0", "torch-tb-profiler": "0.4.3",
            "kaleido": "1.1.0"}  # fmt: skip
WITHOUT_PLUGIN = {name: version for name, version in VERSIONS.items() if name != "torch-tb-profiler"}
H200 = Gpu("NVIDIA H200", 141 << 30, (9, 0), ("power", "utilization"), {})
NO_ENERGY = H200._replace(lacking={"energy": "Not Supported"})


class Fake(Machine):
    """A machine where all is well, but for what a test says."""

    def __init__(self, **other: object) -> None:
        super().__init__()
        self.python = (3, 12, 1)
        self.environment: Mapping[str, str] = {}
        self.facts: dict[str, object] = {
            "torch": ("2.13.0+cu128", "12.8"), "nvml": Nvml("570.1", gpus=(H200,)), "nsys": Nsys("2025.1"),
            "is_root": False, "processes": {"bash"}, "free_bytes": 1 << 40, "has_nvidia_device": True,
            "may_write": True,
        }  # fmt: skip
        self.files = {
            "/proc/sys/kernel/perf_event_paranoid": "2\n",
            "/proc/driver/nvidia/params": "RmProfilingAdminOnly: 0",
        }
        self.versions = dict(VERSIONS)
        self.programs = {"g++", "chromium"}
        for name, value in other.items():
            if hasattr(self, name) and name not in self.facts:
                setattr(self, name, value)
            else:
                self.facts[name] = value
        for name in self.facts:
            setattr(self, name, lambda *_, name=name: self.facts[name])

    def text(self, path: str) -> str | None:
        return self.files.get(path)

    def distribution(self, name: str) -> str | None:
        return self.versions.get(name)

    def which(self, name: str) -> str | None:
        return name if name in self.programs else None


def found(name: str, machine: Machine) -> Check:
    diagnosis = diagnose(machine)
    return next(check for check in diagnosis.checks if check.name == name)


def test_a_machine_where_all_is_well_has_nothing_to_mend() -> None:
    diagnosis = diagnose(Fake())
    assert {check.state for check in diagnosis.checks} == {"ok"}
    assert diagnosis.can_train_and_capture
    assert "FP8 native, mxfp8 emulated" in found("GPUs", Fake()).detail


@pytest.mark.parametrize(
    ("name", "facts", "state", "fix"),
    [
        ("Python", {"python": (3, 10, 4)}, "broken", "3.11"),
        ("torch", {"torch": None}, "broken", "stepscope[train]"),
        ("torch", {"torch": ("2.8.1", "12.8")}, "broken", "torch>=2.9"),
        ("torch", {"torch": ("2.13.0+cpu", None)}, "warning", "download.pytorch.org"),
        ("torchao", {"versions": VERSIONS | {"torchao": "0.19.1"}}, "broken", "torchao>=0.18,<0.19"),
        ("transformers", {"versions": {}}, "broken", "stepscope[train]"),
        ("NVIDIA driver", {"nvml": Nvml(error=12)}, "missing", "--gpus all"),
        ("NVIDIA driver", {"nvml": Nvml(error=9)}, "broken", "modprobe"),
        ("NVIDIA driver", {"nvml": Nvml(error=18)}, "broken", "reboot"),
        ("NVIDIA driver", {"nvml": Nvml(error=999, message="Unknown Error")}, "broken", "nvidia-smi"),
        ("NVIDIA driver", {"nvml": Nvml()}, "missing", "stepscope[train]"),
        ("GPUs", {"nvml": Nvml(error=12)}, "missing", None),
        ("NVML counters", {"nvml": Nvml("1", gpus=(NO_ENERGY,))}, "warning", ""),
        ("nsys", {"nsys": None}, "missing", "PATH"),
        ("nsys", {"nsys": Nsys(None, "TimeoutExpired")}, "warning", "PATH"),
        ("perf events", {"files": {"/proc/sys/kernel/perf_event_paranoid": "4"}}, "warning", "sysctl"),
        ("perf events", {"files": {}}, "warning", "--sample=none"),
        ("GPU counters", {"files": {"/proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n"}}, "warning",
         "NVreg_RestrictProfilingToAdminUsers=0"),
        ("GPU counters", {"files": {}}, "missing", None),
        ("other profilers", {"processes": {"nv-hostengine"}}, "warning", "dcgmi profile --pause"),
        ("other profilers", {"environment": {"NSYS_PROFILING_SESSION_ID": "1"}}, "warning", "separate passes"),
        ("disk", {"free_bytes": 5 << 20}, "warning", "--out"),
        ("disk", {"may_write": False}, "warning", "--out FOLDER where you may write"),
        ("C++ compiler", {"programs": set()}, "missing", "g++"),
        ("TensorBoard", {"versions": WITHOUT_PLUGIN}, "warning", "torch-tb-profiler"),
        ("TensorBoard", {"versions": {}}, "missing", "pip install tensorboard"),
        ("old pynvml", {"versions": VERSIONS | {"pynvml": "13.0.1"}}, "warning", "pip uninstall pynvml"),
        ("images", {"programs": set()}, "missing", "kaleido"),
    ],
)  # fmt: skip
def test_each_lack_is_named_with_the_fix_to_type(
    name: str, facts: dict[str, object], state: str, fix: str | None
) -> None:
    check = found(name, Fake(**facts))
    assert check.state == state
    assert check.fix is None if fix is None else fix in (check.fix or "")
    assert diagnose(Fake(**facts)).can_train_and_capture == (state != "broken" and facts.get("versions") != {})


def test_on_a_narrow_terminal_lines_break_between_words_below_their_column() -> None:
    diagnosis = diagnose(Fake(nvml=Nvml(None, error=12), has_nvidia_device=False, programs=set()))
    lines = in_words(diagnosis, 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert in_words(diagnosis).split() == [word for line in lines for word in line.split()]
    assert max(map(len, in_words(diagnosis).splitlines())) > 80


def test_a_check_that_fails_ends_nothing() -> None:
    def fails(_: Machine) -> Result:
        raise RuntimeError("a broken\ndriver")

    diagnosis = diagnose(Fake(), [("bad", "nothing", fails), CHECKS[0]])
    assert [check.state for check in diagnosis.checks] == ["warning", "ok"]
    assert diagnosis.checks[0].detail == "could not be checked: RuntimeError: a broken"
    assert "for: nothing" in in_words(diagnosis)


@pytest.mark.parametrize("by", ["PATH", "STEPSCOPE_NSYS"])
def test_the_doctor_asks_the_nsys_that_a_capture_would_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    nsys = tmp_path / "nsys"
    nsys.write_text(f"#!{sys.executable}\nprint('NVIDIA Nsight Systems version 2025.3.1.90-1')\n")
    nsys.chmod(nsys.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv(by, f"{tmp_path}{os.pathsep}{os.environ['PATH']}" if by == "PATH" else str(nsys))
    assert Machine().nsys() == Nsys("2025.3.1.90")
    nsys.write_text(f"#!{sys.executable}\nraise SystemExit(3)\n")
    assert "ended with exit code 3" in Machine().nsys().failure  # type: ignore[union-attr]
    nsys.write_text(f"#!{sys.executable}\nprint('NVIDIA Nsight Systems version 2021.3.2.4')\n")
    assert "2022.1 or newer is needed" in Machine().nsys().failure  # type: ignore[union-attr]


def test_a_place_that_is_a_file_takes_no_traces(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert Machine().may_write(str(tmp_path / "traces"))
    assert not Machine().may_write(str(tmp_path / "file"))


def test_the_doctor_answers_here_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "stepscope.doctor/1"
    assert [check["name"] for check in answer["checks"]] == [name for name, _, _ in CHECKS]
    assert main(["doctor", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["state"] for row in rows] == [check["state"] for check in answer["checks"]]
    assert main(["doctor"]) == 0
    assert "Training and capture work here." in capsys.readouterr().out
