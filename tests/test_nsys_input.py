"""From what somebody names to the exports to read: reports, folders, Parquet, and what does not belong together."""

import os
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_export import Made, as_parquet
from nsys_fuzz import write_export

from stepscope.analyzers.nsys.answers import answers
from stepscope.analyzers.nsys.export import Export
from stepscope.analyzers.nsys.locate import locate
from stepscope.analyzers.nsys.reports import REPORTS, Row
from stepscope.record.errors import TraceError


def an_export(path: Path, *, made_from: str | None = None, at: str | None = None) -> Path:
    write_export(path, rows=6)
    facts = {"EXPORT_PARAM_INPUT_FILE": made_from, "EXPORT_TIME_UTC": at}
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        rows = [(name, value) for name, value in facts.items() if value]
        database.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", rows)
    return path


def a_report(folder: Path, name: str = "run.nsys-rep") -> Path:
    path = folder / name
    path.write_bytes(b"a report")
    return path


@pytest.fixture
def no_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH without nsys, and a folder for exports."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("PATH", str(scratch))
    return scratch


def test_an_export_as_parquet_answers_as_the_sqlite_one_does(tmp_path: Path) -> None:
    sqlite = tmp_path / "run.sqlite"
    write_export(sqlite)
    folder = as_parquet(sqlite, tmp_path / "run_pqtdir")
    with Export(sqlite) as one, Export(folder) as other:
        for report in REPORTS:
            assert report.rows(other) == report.rows(one), report.name
        assert other.format == one.format
        assert other.carries_environment
    assert answers([sqlite]).ranks[0].devices
    assert answered(folder) == answered(sqlite)


def answered(export: Path) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """What an export says, without its name."""
    report = answers([export])
    [rank] = report.ranks
    found = {name: getattr(rank, name) for name in rank.__struct_fields__ if name != "source"}
    return found, [(finding.code, finding.evidence) for finding in report.findings]


def test_copies_of_more_than_2_gib_are_whole_in_parquet_too(tmp_path: Path) -> None:
    sqlite = tmp_path / "run.sqlite"
    write_export(sqlite, rows=1)
    with closing(sqlite3.connect(sqlite, isolation_level=None)) as database:
        database.execute("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET bytes = 3 << 30")
    [rank] = answers([as_parquet(sqlite, tmp_path / "run_pqtdir")]).ranks
    assert (rank.transfers or [])[0].bytes == 3 << 30


@pytest.mark.parametrize("name", ["a100_2.7b_nvtx", "pre2021_rtx6000", "wsl_rtx3080_tiny"])
def test_real_exports_answer_the_same_as_parquet(fixtures: Path, tmp_path: Path, name: str) -> None:
    sqlite = fixtures / "nsys" / f"{name}.sqlite"
    with Export(sqlite) as one, Export(_parquet_of(sqlite, tmp_path / "x_pqtdir")) as other:
        for report in REPORTS:
            assert report.rows(other) == _nearly(report.rows(one)), report.name
    assert answered(tmp_path / "x_pqtdir") == answered(sqlite)


def _nearly(rows: list[Row] | None) -> list[tuple[object, ...]] | None:
    """Rows whose floats may differ in the last digits: sums of squares are added in no fixed order."""
    return rows and [
        tuple(pytest.approx(value, rel=1e-12) if isinstance(value, float) else value for value in row) for row in rows
    ]


_READ = ("CUPTI", "CUDA", "StringIds", "ENUM", "META_DATA_EXPORT", "NVTX", "OSRT_API", "TARGET_INFO", "ThreadNames")


def _parquet_of(sqlite: Path, folder: Path) -> Path:
    """Only the tables that reports read, so that no odd type of another stands in the way."""
    folder.mkdir()
    import pyarrow as pa
    import pyarrow.parquet as pq

    with closing(sqlite3.connect(f"file:{sqlite}?mode=ro&immutable=1", uri=True)) as source:
        names = [row[0] for row in source.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in names:
            if table.startswith(_READ):
                cursor = source.execute(f'SELECT * FROM "{table}"')
                columns = [column[0] for column in cursor.description]
                values = [list(column) for column in zip(*cursor.fetchall(), strict=True)] or [[] for _ in columns]
                pq.write_table(pa.table(dict(zip(columns, values, strict=True))), folder / f"{table}.parquet")
    return folder


def test_a_cut_parquet_file_is_named(tmp_path: Path) -> None:
    sqlite = tmp_path / "run.sqlite"
    write_export(sqlite)
    folder = as_parquet(sqlite, tmp_path / "run_pqtdir")
    kernels = folder / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    kernels.write_bytes(kernels.read_bytes()[:-9])
    with pytest.raises(TraceError, match=r"KERNEL\.parquet: is no whole Parquet file") as caught, Export(folder):
        pass
    assert "\n" not in str(caught.value)


def test_a_folder_of_reports_is_as_many_ranks_by_the_number_in_their_names(tmp_path: Path, no_nsys: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in (0, 2, 10):
        an_export(folder / f"job.rank{rank}.sqlite")
    a_report(folder, "job.rank2.nsys-rep")
    (folder / "notes.csv").write_text("a,b\n")
    os.utime(folder / "job.rank2.nsys-rep", (1, 1))
    found = locate([folder], no_nsys)
    assert [(one.rank, one.export and one.export.name) for one in found] == [
        (0, "job.rank0.sqlite"), (2, "job.rank2.sqlite"), (10, "job.rank10.sqlite"),
    ]  # fmt: skip


def test_names_without_a_rank_of_their_own_count_in_order(tmp_path: Path, no_nsys: Path) -> None:
    paths = [an_export(tmp_path / f"{name}.sqlite") for name in ("node10", "node2")]
    assert [(one.rank, one.named.name) for one in locate(paths, no_nsys)] == [(0, "node2.sqlite"), (1, "node10.sqlite")]
    twice = [an_export(tmp_path / f"{name}.rank0.sqlite") for name in ("a", "b")]
    assert [one.rank for one in locate(twice, no_nsys)] == [0, 1]


def test_tables_of_nsys_stats_are_an_input_where_nothing_else_is(tmp_path: Path, no_nsys: Path) -> None:
    for name in ("run_cuda_gpu_kern_sum.csv", "run_nvtx_sum.csv"):
        (tmp_path / name).write_text("Time (%),Total Time (ns),Instances,Name\n")
    [one] = locate([tmp_path], no_nsys)
    assert (one.export, sorted(path.name for path in one.stats)) == (
        None, ["run_cuda_gpu_kern_sum.csv", "run_nvtx_sum.csv"],
    )  # fmt: skip
    named = [tmp_path / "run_nvtx_sum.csv", tmp_path / "run_cuda_gpu_kern_sum.csv"]
    assert [sorted(one.stats) for one in locate(named, no_nsys)] == [sorted(one.stats)]
    an_export(tmp_path / "run.sqlite")
    assert [one.stats for one in locate([tmp_path], no_nsys)] == [()]


@pytest.mark.parametrize(
    ("made_from", "says"),
    [("run.nsys-rep", None), ("RUN.nsys-rep", None), ("C:\\work\\run.nsys-rep", None), (None, None),
     ("other.nsys-rep", "was made from another report, other.nsys-rep")],
)  # fmt: skip
def test_an_export_made_from_another_report_is_not_read_in_its_place(
    tmp_path: Path, no_nsys: Path, made_from: str | None, says: str | None
) -> None:
    report = a_report(tmp_path)
    beside = an_export(tmp_path / "run.sqlite", made_from=made_from)
    if says is None:
        assert [one.export for one in locate([report], no_nsys)] == [beside]
        return
    with pytest.raises(TraceError, match=re.escape(says)) as caught:
        locate([report], no_nsys)
    assert "nsys export --type sqlite --force-overwrite true run.nsys-rep" in str(caught.value)
    assert "or name run.sqlite itself" in str(caught.value)


def test_a_half_written_export_beside_a_report_is_said_to_be_one(tmp_path: Path, no_nsys: Path) -> None:
    report = a_report(tmp_path)
    (tmp_path / "run.sqlite").write_bytes(bytes(4096))
    with pytest.raises(TraceError, match=r"the export beside it, run\.sqlite, is a half-written export"):
        locate([report], no_nsys)


def test_an_old_export_whose_time_was_rewritten_is_read_with_a_doubt(tmp_path: Path, no_nsys: Path) -> None:
    report = a_report(tmp_path)
    beside = an_export(tmp_path / "run.sqlite", made_from="run.nsys-rep", at="2024-01-02T03:04:05")
    [one] = locate([report], no_nsys)
    assert one.export == beside
    assert one.note is not None
    assert "2024-01-02T03:04:05 UTC, before run.nsys-rep was last written" in one.note


def test_an_export_of_parquet_beside_a_report_is_used_where_it_is_the_newest(tmp_path: Path, no_nsys: Path) -> None:
    report = a_report(tmp_path)
    sqlite = an_export(tmp_path / "run.sqlite")
    folder = as_parquet(sqlite, tmp_path / "run_pqtdir")
    os.utime(sqlite, (1, 1))
    assert [one.export for one in locate([report], no_nsys)] == [folder]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.sqlite", b"\x1f\x8b\x08rest", "seems to be a gzip archive: unpack it"),
        ("x.sqlite", b"version https://git-lfs.github.com/spec/v1\n", "seems to be a pointer of Git LFS"),
        ("x.sqlite", b"Time (%),Total Time (ns)\n", "seems to be a text file"),
        ("x.h5", b"\x89HDF\r\n", "is an export of the type HDF5"),
    ],
)
def test_what_is_no_export_is_named_for_what_it_seems(
    tmp_path: Path, no_nsys: Path, name: str, content: bytes, says: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceError, match=re.escape(says)) as caught:
        Export(locate([path], no_nsys)[0].export or path)
    assert "\n" not in str(caught.value)


def test_databases_of_others_are_named_by_their_tables(tmp_path: Path) -> None:
    for name, says in (("dlprof_dldb.sqlite", "DLProf wrote it"), ("mlflow.db", "its tables: experiments, runs")):
        with closing(sqlite3.connect(tmp_path / name)) as database:
            database.executescript("CREATE TABLE runs (id TEXT); CREATE TABLE experiments (id TEXT);")
        with pytest.raises(TraceError, match=says):
            Export(tmp_path / name)


def test_a_view_that_runs_for_ever_is_no_table(tmp_path: Path) -> None:
    path = an_export(tmp_path / "x.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL")
        database.execute(
            """CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS
               WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x AS start, x AS "end" FROM n"""
        )
    with Export(path) as export:
        assert export.table("CUPTI_ACTIVITY_KIND_KERNEL") is None


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with a table of every kind."""
    path = tmp_path_factory.mktemp("whole") / "whole.sqlite"
    write_export(path, rows=4)
    return path


def without(whole: Path, path: Path, tables: Iterable[str]) -> Path:
    path.write_bytes(whole.read_bytes())
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for table in tables:
            database.execute(f'DROP TABLE "{table}"')
    return path


def tables_of(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))


@pytest.mark.slow
def test_any_table_may_be_missing(whole: Path, tmp_path: Path) -> None:
    for table in tables_of(whole):
        path = without(whole, tmp_path / f"{table}.sqlite", [table])
        for device in answers([path]).ranks[0].devices:
            parts = (device.compute_ns, device.comm_exposed_ns, device.memory_ns, device.idle_ns)
            assert sum(parts) == device.span_ns
        with Export(path) as export:
            for report in REPORTS:
                report.rows(export)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(st.data())
def test_any_tables_may_be_missing_and_each_report_answers_or_says_what_it_lacks(
    whole: Path, tmp_path: Path, data: st.DataObject
) -> None:
    gone = data.draw(st.sets(st.sampled_from(tables_of(whole))))
    path = without(whole, tmp_path / "x.sqlite", gone)
    if {"StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"} <= gone:
        with pytest.raises(TraceError, match="no export of Nsight Systems"):
            Export(path)
        return
    with Export(path) as export:
        for report in REPORTS:
            rows, lacks = report.rows(export), report.lacks(export)
            assert (rows is None) == (lacks is not None), report.name
    for device in answers([path]).ranks[0].devices:
        parts = (device.compute_ns, device.comm_exposed_ns, device.memory_ns, device.idle_ns)
        assert sum(parts) == device.span_ns


@pytest.mark.parametrize(
    ("tables", "names"),
    [
        # CUDA numbers GPUs against the order of nsys' ids, as an export of four A100 has it
        ({"TARGET_INFO_GPU (id, name, cuDevice)": [(0, "old", 1), (1, "new", 0)]}, {0: "new", 1: "old"}),
        ({"TARGET_INFO_GPU (deviceId, name)": [(0, "a"), (1, None)]}, {0: "a"}),
        ({"TARGET_INFO_GPU (id, name, cuDevice)": [(0, "no CUDA here", -1)]}, {}),
        # each process sees one GPU, as its device 0: the table by process tells which
        (
            {
                "TARGET_INFO_GPU (id, name, cuDevice)": [(0, "same", 1), (1, "same", 0), (2, "other", 2)],
                "TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid)": [(0, 0, 7), (1, 0, 8), (2, 1, 7)],
            },
            {0: "same", 1: "other"},
        ),
        (
            {
                "TARGET_INFO_GPU (id, name, cuDevice)": [(0, "one", 0), (1, "another", 1)],
                "TARGET_INFO_CUDA_DEVICE (gpuId, cudaId, pid)": [(0, 0, 7), (1, 0, 8)],
            },
            {},
        ),
    ],
    ids=["cuDevice", "before 2021", "not a CUDA device", "by process", "two names"],
)
def test_a_device_has_the_name_of_the_gpu_that_cuda_gives_its_number(
    tmp_path: Path, tables: dict[str, list[tuple[object, ...]]], names: dict[int, str]
) -> None:
    path = an_export(tmp_path / "x.sqlite")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        for table in ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_DEVICE"):
            database.execute(f"DROP TABLE IF EXISTS {table}")
        for table, rows in tables.items():
            database.execute(f"CREATE TABLE {table}")
            database.executemany(f"INSERT INTO {table.split()[0]} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    with Export(path) as export:
        assert export.device_names() == names


def test_a_gpu_that_processes_number_differently_has_one_name_where_its_number_is_nsys_own(tmp_path: Path) -> None:
    made = Made().kernel(0, 5, pid=7).kernel(3, 9, pid=8)
    for id, pid in ((4, 7), (5, 8)):
        made.add("TARGET_INFO_GPU", id=id, name=f"GPU of {pid}").add(
            "TARGET_INFO_CUDA_DEVICE", gpuId=id, cudaId=0, pid=pid
        )
    path = made.write(tmp_path / "x.sqlite")
    [rank] = answers([path]).ranks
    assert [(device.device, device.name) for device in rank.devices] == [(4, "GPU of 7"), (5, "GPU of 8")]
    with Export(path) as export:
        assert export.device_names() == {}
