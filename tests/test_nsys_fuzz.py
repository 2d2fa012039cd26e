"""Damaged exports: an answer or one line, whatever the damage."""

from pathlib import Path

import pytest
from fuzz_cases import run_cases
from nsys_fuzz import damaged, outcome_of, write_export

CASES = 2400


@pytest.mark.slow
def test_no_damage_to_an_export_gives_a_traceback_a_hang_or_memory_beyond_bounds(tmp_path: Path) -> None:
    write_export(tmp_path / "whole.sqlite")
    said = run_cases(Path(__file__).with_name("nsys_fuzz.py"), tmp_path, CASES)
    assert sum(said) == CASES
    assert min(said) > CASES // 10  # damage that never hurts, or always does, would test little


def test_a_table_with_more_rows_than_its_row_numbers_allow_is_refused_in_one_line(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.sqlite", tmp_path / "damaged.sqlite"
    write_export(whole)
    path.write_bytes(damaged(whole.read_bytes(), 1343))  # two pages of kernels are one and the same
    assert outcome_of(path, 1343) == (None, 1)


@pytest.mark.parametrize("case", [200847, 201635])  # row numbers that run backwards; NULL in a column declared NOT NULL
def test_damage_that_breaks_what_the_schema_promises_gives_an_answer_or_one_line(tmp_path: Path, case: int) -> None:
    whole, path = tmp_path / "whole.sqlite", tmp_path / "damaged.sqlite"
    write_export(whole)
    path.write_bytes(damaged(whole.read_bytes(), case))
    wrong, _ = outcome_of(path, case)
    assert wrong is None
