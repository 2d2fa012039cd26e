"""Damaged exports: an answer or one line, whatever the damage."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from nsys_fuzz import damaged, outcome, write_export

CASES = 2400
WORKERS = 2


@pytest.mark.slow
def test_no_damage_to_an_export_gives_a_traceback_a_hang_or_memory_beyond_bounds(tmp_path: Path) -> None:
    write_export(tmp_path / "whole.sqlite")
    script = Path(__file__).with_name("nsys_fuzz.py")
    edges = [CASES * part // WORKERS for part in range(WORKERS + 1)]
    workers = [
        subprocess.Popen([sys.executable, script, tmp_path, str(first), str(last)], stdout=subprocess.PIPE, text=True)
        for first, last in pairwise(edges)
    ]
    said = [worker.communicate(timeout=900)[0] for worker in workers]
    for worker, text in zip(workers, said, strict=True):
        assert worker.returncode == 0, f"ended by {worker.returncode} in or after case {text.splitlines()[-1:]}"
        assert "FAILS" not in text, text[text.index("FAILS") :][:3000]
    counts = [re.search(r"done: (\d+) answered, (\d+) refused", text) for text in said]
    answered, refused = (sum(int(found[part]) for found in counts if found) for part in (1, 2))
    assert answered + refused == CASES
    assert min(answered, refused) > CASES // 10  # damage that never hurts, or always does, would test little


def test_a_table_with_more_rows_than_its_row_numbers_allow_is_refused_in_one_line(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.sqlite", tmp_path / "damaged.sqlite"
    write_export(whole)
    path.write_bytes(damaged(whole.read_bytes(), 1343))  # two pages of kernels are one and the same
    assert outcome(path, 1343) == (None, 1)
