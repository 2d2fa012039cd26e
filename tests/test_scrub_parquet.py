"""Scrubbed copies of Parquet exports: the same goes as from an SQLite export, and the same stays."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from nsys_export import as_parquet
from test_scrub import HOST, PLANTED, SAMPLE, TOKEN, USER, plant, small_export

from stepscope.analyzers.nsys.answers import answers
from stepscope.analyzers.scrub.files import scrub
from stepscope.dashboards.cli import main
from stepscope.record.errors import TraceError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An export with token, user and host in every place that has text."""
    path = small_export(tmp_path / "x.sqlite")
    plant(path)
    return as_parquet(path, tmp_path / "x_pqtdir")


def cells(folder: Path) -> Iterator[bytes]:
    for path in folder.glob("*.parquet"):
        for column in pq.read_table(path).columns:
            for cell in column.to_pylist():
                yield cell if isinstance(cell, bytes) else str(cell).encode()


def planted_in(folder: Path) -> list[str]:
    whole = b"\n".join(cells(folder)) + b"\n".join(path.read_bytes() for path in folder.iterdir())
    return [name for name in PLANTED if name.encode() in whole]


def test_what_was_planted_in_a_parquet_export_is_in_no_cell_of_the_copy(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert planted_in(folder) == list(PLANTED)
    result = scrub(folder, folder.with_name("y_pqtdir"), force=False)
    assert planted_in(result.output) == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert {path.name for path in result.output.iterdir()} == set(before)
    assert pq.read_table(result.output / "PROCESSES.parquet")["name"].to_pylist() == ["python"]
    strings = pq.read_table(result.output / "StringIds.parquet").to_pylist()
    assert [row["value"] for row in strings if row["id"] < 4] == ["gemm", "", "root"]
    assert pq.read_table(result.output / "added.parquet")["number"].to_pylist() == [7]


def test_the_same_is_taken_out_of_both_kinds_of_export(folder: Path) -> None:
    of_parquet = scrub(folder, folder.with_name("y_pqtdir"), force=False)
    of_sqlite = scrub(folder.with_name("x.sqlite"), folder.with_name("y.sqlite"), force=False)
    assert of_parquet.removed == of_sqlite.removed
    with closing(sqlite3.connect(of_sqlite.output)) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = database.execute(f'SELECT * FROM "{table}"').fetchall()
            found = pq.read_table(of_parquet.output / f"{table}.parquet").to_pylist()
            assert [tuple(row.values()) for row in found] == rows, table


def test_the_copy_answers_as_the_original_and_a_second_scrub_finds_nothing(folder: Path) -> None:
    once = scrub(folder, folder.with_name("once_pqtdir"), force=False)
    old, new = answers([folder]), answers([once.output])
    assert old.ranks[0].devices == new.ranks[0].devices
    assert "carries-environment" in [finding.code for finding in old.findings]
    assert "carries-environment" not in [finding.code for finding in new.findings]
    again = scrub(once.output, folder.with_name("twice_pqtdir"), force=False)
    assert not again.removed
    for path in once.output.iterdir():
        assert pq.read_table(path).equals(pq.read_table(again.output / path.name))


def test_text_that_is_no_utf_8_and_dictionaries_keep_their_other_bytes_and_types(folder: Path) -> None:
    words = pa.array([f"by {USER}".encode() + b"\xff", b"other"], pa.binary())
    odd = words.cast(options=pa.compute.CastOptions(pa.string(), allow_invalid_utf8=True))
    coded = pa.array([f"at {HOST}", None, "kept"]).dictionary_encode()
    pq.write_table(pa.table({"words": odd}), folder / "odd.parquet")
    pq.write_table(pa.table({"words": coded}), folder / "coded.parquet")
    copy = scrub(folder, folder.with_name("y_pqtdir"), force=False).output
    assert pq.read_table(copy / "odd.parquet")["words"].cast(pa.binary()).to_pylist() == [b"by <user>\xff", b"other"]
    assert pq.read_table(copy / "coded.parquet")["words"].to_pylist() == ["at <host>", None, "kept"]
    assert pq.read_schema(copy / "coded.parquet").field("words").type == coded.type


def test_what_pandas_and_others_left_in_a_files_metadata_does_not_come_along(folder: Path) -> None:
    path = folder / "noted.parquet"
    pq.write_table(pa.table({"n": [1]}).replace_schema_metadata({"made by": TOKEN}), path)
    assert TOKEN.encode() in path.read_bytes()
    copy = scrub(folder, folder.with_name("y_pqtdir"), force=False).output
    assert planted_in(copy) == []


def test_a_list_of_texts_and_a_cut_file_are_refused_and_nothing_is_left(folder: Path) -> None:
    listed = folder / "listed.parquet"
    pq.write_table(pa.table({"words": [[TOKEN]]}), listed)
    with pytest.raises(TraceError, match=r"listed\.parquet: cannot be scrubbed: its column words is a list"):
        scrub(folder, folder.with_name("y_pqtdir"), force=False)
    listed.write_bytes(listed.read_bytes()[:-9])
    with pytest.raises(TraceError, match=r"listed\.parquet: is no whole Parquet file"):
        scrub(folder, folder.with_name("y_pqtdir"), force=False)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["x.sqlite", "x_pqtdir"]


def test_the_command_names_the_copy_so_that_it_is_an_export_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "notes.txt").write_text("mine")
    assert main(["scrub", str(folder)]) == 0
    shown = capsys.readouterr()
    copy = folder.with_name("x.scrubbed_pqtdir")
    assert shown.out == f"{copy}\n"
    assert "left out: notes.txt: no table of the export" in shown.err
    assert planted_in(copy) == []
    assert main(["scrub", str(folder)]) == 1
    assert "add --force" in capsys.readouterr().err
    assert main(["scrub", str(folder), "--force"]) == 0


def test_an_export_in_a_runs_folder_is_copied_as_one(folder: Path) -> None:
    run = folder.parent / "run"
    run.mkdir()
    (run / "run.json").write_bytes((SAMPLE / "run.json").read_bytes())
    folder.rename(run / "run_pqtdir")
    result = scrub(run, folder.parent / "copy", force=False)
    assert result.left_out == []
    assert planted_in(result.output / "run_pqtdir") == []
    assert answers([result.output / "run_pqtdir"]).ranks[0].devices
