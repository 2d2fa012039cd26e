"""Fixtures that several tests share."""

import os
import shutil
import sys
from pathlib import Path

import msgspec
import pytest
from fake_driver import FakeDriver
from nsys_capture import write_capture


@pytest.fixture(scope="session")
def qa_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small question-and-answer set, 120 lines."""
    path = tmp_path_factory.mktemp("data") / "qa.jsonl"
    lines = (
        {"question": f"{n} ile {n + 3} toplanırsa kaç eder?", "answer": f"Sonuç {2 * n + 3} eder."} for n in range(120)
    )
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the stand-in for nsys as `nsys`."""
    folder = tmp_path_factory.mktemp("bin")
    fake = Path(__file__).with_name("fake_nsys.py")
    (folder / "nsys").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake}" "$@"\n')
    (folder / "nsys").chmod(0o755)
    return folder


@pytest.fixture
def on_path(programs: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The stand-in on PATH; FAKE_NSYS names the way in which it is to fail."""
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("STEPSCOPE_NSYS", raising=False)
    monkeypatch.delenv("FAKE_NSYS", raising=False)
    return monkeypatch


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of real traces and exports, which is not part of a clone."""
    folder = Path(__file__).parent.parent.parent / "shared" / "fixtures"
    if not folder.is_dir():
        pytest.skip("the real traces are not beside this checkout")
    return folder


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A small capture of nsys as an export."""
    return write_capture(tmp_path / "x.sqlite")


@pytest.fixture
def fake_driver(tmp_path: Path) -> FakeDriver:
    """Builds the fake NVML library into a folder of its own."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to build the fake NVML library with")
    return FakeDriver(tmp_path)
