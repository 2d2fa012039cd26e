"""Columns of an export: whatever the stretches a table is read in, its numbers wide or narrow, its rows with gaps."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.analyzers.nsys.columns import read_columns
from stepscope.analyzers.nsys.export import Export

LONG = st.integers(-(2**63), 2**63 - 1)
ROW = st.tuples(LONG, st.one_of(st.none(), st.integers(0, 100), LONG))


def table(path: Path, rows: list[tuple[int, int | None]], first: int = 1, apart: int = 1) -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("CREATE TABLE StringIds (id INTEGER, value TEXT); CREATE TABLE T (start INT, id INT);")
        numbered = ((first + apart * at, *row) for at, row in enumerate(rows))
        database.executemany("INSERT INTO T (rowid, start, id) VALUES (?, ?, ?)", numbered)
    return path


def rows_of(path: Path) -> list[tuple[int, int]]:
    with Export(path) as export:
        found = read_columns(export, "T", {"start": "start", "id": "id"})
    assert found["start"].dtype == np.int64
    return list(zip(found["start"].tolist(), found["id"].tolist(), strict=True))


@pytest.fixture
def _in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.analyzers.nsys.export._WORTH_SPLITTING", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(3))


@pytest.mark.usefixtures("_in_stretches")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ROW, max_size=20), st.integers(-5, 5), st.sampled_from([1, 3, 10**6]))
def test_rows_come_whole_from_every_stretch(
    tmp_path: Path, rows: list[tuple[int, int | None]], first: int, apart: int
) -> None:
    path = table(tmp_path / "x.sqlite", rows, first, apart)
    assert sorted(rows_of(path)) == sorted((start, -1 if id is None else id) for start, id in rows)


def test_ids_take_half_the_memory_where_32_bits_hold_them(tmp_path: Path) -> None:
    for most, width in ((2**31 - 1, np.int32), (2**31, np.int64)):
        with Export(table(tmp_path / "x.sqlite", [(0, most), (1, None)])) as export:
            found = read_columns(export, "T", {"start": "start", "id": "id"})
        assert found["id"].dtype == width
        assert found["id"].tolist() == [most, -1]
