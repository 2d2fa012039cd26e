"""Statistics by name: exact, whatever the order of rows and however a table is cut."""

import sqlite3
import statistics
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.analyzers.nsys.export import Export
from stepscope.analyzers.nsys.summaries import Summary, summarise

NAMES = {1: "a", 2: "b", 3: "a"}


def table(path: Path, rows: list[tuple[int | None, int]]) -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("CREATE TABLE StringIds (id INTEGER, value TEXT); CREATE TABLE T (name INT, value INT);")
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", NAMES.items())
        database.executemany("INSERT INTO T VALUES (?, ?)", rows)
    return path


def of(path: Path) -> list[Summary]:
    with Export(path) as export:
        return summarise(export, "T", name_id="name", value="value")


def expected(rows: list[tuple[int | None, int]]) -> list[Summary]:
    values: dict[str, list[int]] = {}
    for name, value in rows:
        values.setdefault(NAMES.get(name or 0, "?"), []).append(value)
    found = [
        Summary(
            name=name,
            count=len(of_name),
            total=sum(of_name),
            mean=statistics.fmean(of_name),
            median=statistics.median(of_name),
            least=min(of_name),
            most=max(of_name),
            deviation=pytest.approx(statistics.stdev(of_name) if len(of_name) > 1 else 0.0),
        )
        for name, of_name in values.items()
    ]
    return sorted(found, key=lambda row: (-row.total, row.name))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, None]), st.integers(0, 10**6)), min_size=1, max_size=40))
def test_every_number_is_that_of_the_standard_library(tmp_path: Path, rows: list[tuple[int | None, int]]) -> None:
    assert of(table(tmp_path / "x.sqlite", rows)) == expected(rows)
    assert of(table(tmp_path / "x.sqlite", rows[::-1])) == expected(rows)


def test_a_table_read_in_stretches_has_the_same_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[tuple[int | None, int]] = [(1 + n % 4, n * n % 1009) for n in range(500)]
    path = table(tmp_path / "x.sqlite", rows)
    whole = of(path)
    monkeypatch.setattr("stepscope.analyzers.nsys.export._WORTH_SPLITTING", 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(7))
    with Export(path) as export:
        assert len(export.stretches("T")) == 7
    assert of(path) == whole == expected(rows)


def test_sums_beyond_64_bits_are_exact(tmp_path: Path) -> None:
    most = 2**63 - 1
    [row] = of(table(tmp_path / "x.sqlite", [(1, most), (1, most), (3, most)]))
    assert (row.total, row.median, row.deviation) == (3 * most, float(most), 0)
