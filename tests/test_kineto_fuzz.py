"""Damaged traces: an answer or one line, whatever the damage."""

from pathlib import Path

import pytest
from fuzz_cases import run_cases
from kineto_fuzz import write_trace

CASES = 2400


@pytest.mark.slow
def test_no_damage_to_a_trace_gives_a_traceback_a_hang_or_memory_beyond_bounds(tmp_path: Path) -> None:
    write_trace(tmp_path / "whole.json")
    said = run_cases(Path(__file__).with_name("kineto_fuzz.py"), tmp_path, CASES)
    assert sum(said) == CASES
    assert min(said) > CASES // 20  # damage that never hurts, or always does, would test little
