"""Fixtures that several tests share."""

from pathlib import Path

import msgspec
import pytest


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
def fixtures() -> Path:
    """The folder of real traces and exports, which is not part of a clone."""
    folder = Path(__file__).parent.parent.parent / "shared" / "fixtures"
    if not folder.is_dir():
        pytest.skip("the real traces are not beside this checkout")
    return folder
