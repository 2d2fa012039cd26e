"""Exports of Nsight Systems: official numbers, every version's tables, and files that are none."""

import os
import re
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stepscope.analyzers.nsys.answers import answers
from stepscope.analyzers.nsys.export import Export
from stepscope.analyzers.nsys.locate import locate
from stepscope.analyzers.nsys.reports import REPORTS, report
from stepscope.record.errors import ConfigError, TraceError

EXPORTS = [
    "a100_2.7b_clean", "a100_2.7b_nvtx", "a100x4_mpi_2024.5", "h100x2_1s", "h100x2_after", "no_cuda_tables_2026",
    "no_cuda_tables_report", "nvtx_only_2022", "pre2021_rtx6000", "wsl_rtx3080_tiny",
]  # fmt: skip


def official(text: str, name: str) -> list[list[str]] | None:
    """The rows of a report as `nsys stats` printed them in columns; None where it was skipped."""
    section = re.search(rf"reports/{name}\.py\]\.\.\. \n(.*?)(?=\nProcessing|\Z)", text, re.DOTALL)
    assert section, name
    if section[1].startswith("SKIPPED"):
        return None
    lines = section[1].splitlines()
    dashes = next(index for index, line in enumerate(lines) if set(line.strip()) == {"-", " "})
    spans = [match.span() for match in re.finditer("-+", lines[dashes])]
    last = len(spans) - 1
    return [
        [line[start : None if index == last else end].strip() for index, (start, end) in enumerate(spans)]
        for line in lines[dashes + 1 :]
        if line.strip()
    ]


def ours(path: Path, name: str) -> list[list[str]] | None:
    wanted = report(name)
    with Export(path) as export:
        rows = wanted.rows(export)
    return rows and [
        [str(value) if column.decimals is None else f"{value:.{column.decimals}f}"
         for value, column in zip(row, wanted.columns, strict=True)]
        for row in rows
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "cuda_gpu_kern_sum",
        "cuda_gpu_mem_time_sum",
        "cuda_gpu_mem_size_sum",
        "cuda_api_sum",
        "nvtx_sum",
        "osrt_sum",
        "um_sum",
    ],
)
def test_every_number_equals_what_nsys_stats_printed(fixtures: Path, name: str) -> None:
    text = (fixtures / "nsys" / "a100_2.7b_clean.stats.txt").read_text()
    wanted, found = official(text, name), ours(fixtures / "nsys" / "a100_2.7b_clean.sqlite", name)
    if wanted is None:
        assert found is None
        return
    assert found is not None
    assert len(found) == len(wanted) > 0
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine[:-1] == theirs[:-1]
        shown, cut, _ = theirs[-1].partition("…")
        assert mine[-1].startswith(shown) if cut else mine[-1] == shown


@pytest.mark.parametrize("name", EXPORTS)
def test_every_report_answers_every_version_or_says_what_it_lacks(fixtures: Path, name: str) -> None:
    with Export(fixtures / "nsys" / f"{name}.sqlite") as export:
        for known in REPORTS:
            rows, lacks = known.rows(export), known.lacks(export)
            assert (rows is None) == (lacks is not None), known.name
            assert {len(row) for row in rows or ()} <= {len(known.columns)}, known.name
            assert rows != [], known.name


@pytest.mark.parametrize("name", EXPORTS)
def test_every_version_is_answered_with_every_row_of_its_tables(fixtures: Path, name: str) -> None:
    path = fixtures / "nsys" / f"{name}.sqlite"
    [rank] = answers([path]).ranks
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}

        def count(table: str, where: str = "1") -> int:
            query = f"SELECT count(*) FROM {table} WHERE {where}"
            return int(database.execute(query).fetchone()[0]) if table in tables else 0

        assert sum(row.count for row in rank.kernels) == count("CUPTI_ACTIVITY_KIND_KERNEL")
        copied = sum(row.count for row in rank.transfers or [])
        assert copied == count("CUPTI_ACTIVITY_KIND_MEMCPY") + count("CUPTI_ACTIVITY_KIND_MEMSET")
        ended = 'eventType IN (59, 60) AND "end" IS NOT NULL'
        assert sum(row.count for row in rank.ranges) == count("NVTX_EVENTS", ended)


def test_the_kernels_of_the_answers_are_those_of_the_summary(fixtures: Path) -> None:
    path = fixtures / "nsys" / "h100x2_after.sqlite"
    totals: dict[str, int] = {}
    for device in answers([path]).ranks[0].devices:
        for row in device.kernels:
            totals[row.name] = totals.get(row.name, 0) + row.total_ns
    with Export(path) as export:
        rows = report("cuda_gpu_kern_sum").rows(export)
    assert rows is not None
    assert totals == {row[-1]: row[1] for row in rows}


def test_nobodys_environment_is_read_or_named(fixtures: Path) -> None:
    found = answers([fixtures / "nsys" / "wsl_rtx3080_tiny.sqlite"])
    [finding] = [finding for finding in found.findings if finding.code == "carries-environment"]
    assert "--discard-environment=true" in finding.text
    assert "not-a-real-secret" not in repr(found)


def made(path: Path, *, kernels: str = "CUPTI_ACTIVITY_KIND_KERNEL", version: str = "3.16.1") -> Path:
    """A small export: three kernels on two devices, a copy, a call, a range that never ends."""
    with sqlite3.connect(path) as database:
        database.executescript(
            f"""
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000'), (3, 'gemm'),
                                         (4, 'cudaGraphLaunch_v10000');
            CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
            INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '{version}');
            CREATE TABLE {kernels} (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER,
                                    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER);
            INSERT INTO {kernels} VALUES (10, 20, 0, 7, 1, {5 << 24}, 1), (30, 50, 1, 7, 2, {5 << 24}, 3),
                                         (60, 50, 0, 7, 3, {5 << 24}, 1), (70, 71, 0, 7, 4, {5 << 24}, 9);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, "end" INTEGER, deviceId INTEGER, streamId INTEGER,
                                                     bytes INTEGER, copyKind INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (0, 5, 0, 7, 2500000, 1);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, globalTid INTEGER,
                                                      correlationId INTEGER, nameId INTEGER);
            INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 3, {(5 << 24) | 6}, 1, 2), (5, 6, {(5 << 24) | 6}, 2, 4);
            CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER);
            INSERT INTO NVTX_EVENTS VALUES (0, 90, 59, 'step', {(5 << 24) | 6}), (0, NULL, 59, 'open', {(5 << 24) | 6}),
                                           (5, 5, 34, 'mark', {(5 << 24) | 6}), (6, 9, 60, 'across', {(5 << 24) | 6});
            """
        )
    database.close()
    return path


def test_equal_names_are_one_row_and_intervals_that_end_too_early_count_in_none(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite")
    with Export(path) as export:
        rows = report("gpukernsum").rows(export)
    assert rows is not None
    # 10 + 20 of 31 ns; sample deviation of 10 and 20 is √50
    assert [row[1:] for row in rows] == [
        (30, 2, 15.0, 15.0, 10, 20, pytest.approx(50**0.5), "gemm"),
        (1, 1, 1.0, 1.0, 1, 1, 0.0, "?"),
    ]
    assert "impossible-times" in [finding.code for finding in answers([path]).findings]


def test_call_names_lose_four_digit_versions_as_nsys_has_it(tmp_path: Path) -> None:
    assert [row[-1] for row in ours(made(tmp_path / "x.sqlite"), "cuda_api_sum") or []] == [
        "cudaLaunchKernel",
        "cudaGraphLaunch_v10000",
    ]


def test_a_mb_is_a_million_bytes_and_old_exports_name_copies_shortly(tmp_path: Path) -> None:
    assert ours(made(tmp_path / "x.sqlite"), "cuda_gpu_mem_size_sum") == [
        ["2.500", "1", "2.500", "2.500", "2.500", "2.500", "0.000", "[CUDA memcpy HtoD]"]
    ]


def test_a_table_of_a_later_version_counts(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite", kernels="CUPTI_ACTIVITY_KIND_KERNEL_V2")
    assert len(ours(path, "cuda_gpu_kern_sum") or []) == 2


def test_only_ended_ranges_are_ranges_and_marks_are_none(tmp_path: Path) -> None:
    [rank] = answers([made(tmp_path / "x.sqlite")]).ranks
    assert [(row.name, row.kind) for row in rank.ranges] == [("step", "pushpop"), ("across", "startend")]


def test_each_device_is_busy_by_itself(tmp_path: Path) -> None:
    devices = answers([made(tmp_path / "x.sqlite")]).ranks[0].devices
    assert [(device.device, device.span_ns, device.busy_ns) for device in devices] == [(0, 71, 16), (1, 20, 20)]


def test_a_report_that_there_is_not_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match="cuda_gpu_kern_sum, cuda_gpu_mem_time_sum"):
        report("kernels")


def spoilt(how: str, whole: bytes) -> bytes:
    return {
        "empty": b"",
        "blank header": bytes(100) + whole[100:],
        "cut": whole[: len(whole) // 2],
        "text": b"hello\n" * 50,
        "gzip": b"\x1f\x8b" + whole,
    }[how]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("empty", "is empty, as after an export that failed"),
        ("blank header", "is a half-written export: its header is blank"),
        ("cut", "is cut short"),
        ("text", "is no SQLite database"),
        ("gzip", "is no SQLite database"),
    ],
)
def test_a_file_that_is_no_whole_export_is_named_in_one_line(tmp_path: Path, how: str, says: str) -> None:
    path = tmp_path / "x.sqlite"
    whole = made(tmp_path / "whole.sqlite").read_bytes()
    path.write_bytes(spoilt(how, whole))
    with pytest.raises(TraceError, match=re.escape(says)) as caught:
        answers([path])
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_another_programs_database_and_a_future_schema_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE ops (name TEXT)")
    database.close()
    with pytest.raises(TraceError, match="no export of Nsight Systems"):
        answers([other])
    with pytest.raises(TraceError, match=re.escape("has schema 4.0.0, newer than this program knows")):
        answers([made(tmp_path / "new.sqlite", version="4.0.0")])


def test_a_page_damaged_in_the_middle_is_one_line(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite")
    whole = bytearray(path.read_bytes())
    whole[4096 * 2 :] = b"\xff" * (len(whole) - 4096 * 2)
    path.write_bytes(whole)
    with pytest.raises(TraceError, match="is a damaged database"):
        answers([path])


def test_reading_leaves_nothing_beside_the_export(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite")
    path.chmod(stat.S_IRUSR)
    answers([path])
    assert list(tmp_path.iterdir()) == [path]


FAKE_NSYS = """#!/bin/sh
# A stand-in for NVIDIA's nsys: `nsys export --type sqlite --force-overwrite true --output OUT IN`.
[ "$1" = export ] || { echo "unknown command: $1" >&2; exit 1; }
for last; do :; done
while [ $# -gt 0 ]; do [ "$1" = --output ] && out=$2; shift; done
case "$FAKE_NSYS" in
  fails) echo "Generating ..."; echo "Failed to open report: unsupported version" >&2; exit 1;;
  writes-nothing) exit 0;;
  *) cp "$last.export" "$out"; echo "Processing events..." ;;
esac
"""


@pytest.fixture
def fake_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with a stand-in for nsys in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "nsys").write_text(FAKE_NSYS)
    (folder / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def a_report(folder: Path) -> Path:
    path = folder / "run.nsys-rep"
    path.write_bytes(b"a report")
    return path


def test_an_export_beside_the_report_is_used(tmp_path: Path) -> None:
    path = a_report(tmp_path)
    beside = made(tmp_path / "run.sqlite")
    assert [one.export for one in locate([path], tmp_path / "scratch")] == [beside]


def test_without_nsys_the_line_to_run_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = a_report(tmp_path)
    with pytest.raises(TraceError, match=r"nsys export --type sqlite --force-overwrite true run\.nsys-rep"):
        locate([path], tmp_path)
    beside = made(tmp_path / "run.sqlite")
    os.utime(beside, (1, 1))
    with pytest.raises(TraceError, match=r"run\.sqlite, is older than the report"):
        locate([path], tmp_path)


def test_nsys_makes_the_export_elsewhere_and_the_input_folder_stays_as_it_was(tmp_path: Path, fake_nsys: Path) -> None:
    path = a_report(tmp_path)
    made(tmp_path / "run.nsys-rep.export")
    before = sorted(tmp_path.iterdir())
    scratch = fake_nsys / "scratch"
    scratch.mkdir()
    [found] = [one.export for one in locate([path], scratch)]
    assert found is not None
    assert found == scratch / "run.sqlite"
    assert sorted(tmp_path.iterdir()) == before
    assert sum(row.count for row in answers([found]).ranks[0].kernels) == 3


@pytest.mark.parametrize(
    ("how", "says"),
    [("fails", "nsys export failed: Failed to open report"), ("writes-nothing", "exit code 0, and not a word")],
)
def test_an_nsys_that_fails_is_one_line(
    tmp_path: Path, fake_nsys: Path, monkeypatch: pytest.MonkeyPatch, how: str, says: str
) -> None:
    monkeypatch.setenv("FAKE_NSYS", how)
    with pytest.raises(TraceError) as caught:
        locate([a_report(tmp_path)], fake_nsys)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def run(*arguments: Any) -> tuple[int, str, str]:
    program = Path(sys.executable).with_name("analyze-nsys")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_the_command_prints_tables_csv_and_json(tmp_path: Path) -> None:
    path = made(tmp_path / "x.sqlite")
    code, out, _ = run(path, "--report", "cuda_gpu_kern_sum")
    assert code == 0
    assert "CUDA GPU Kernel Summary (cuda_gpu_kern_sum)" in out
    code, out, _ = run(path)
    assert code == 0
    assert "Devices: the span in four parts" in out
    code, out, _ = run("--report", "cuda_gpu_mem_size_sum", path, "--format", "csv")
    assert out == (
        "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
        "2.500,1,2.500,2.500,2.500,2.500,0.000,[CUDA memcpy HtoD]\n"
    )
    code, out, _ = run(path, "--format", "json")
    assert '"schema": "stepscope.timeline/1"' in out


def test_files_are_written_one_a_report_and_never_over_others_unasked(tmp_path: Path) -> None:
    path, folder = made(tmp_path / "x.sqlite"), tmp_path / "out"
    assert run(path, "--output", folder)[0] == 0
    with Export(path) as export:
        answered = [known.name for known in REPORTS if known.lacks(export) is None]
    assert {"cuda_gpu_kern_sum", "cuda_gpu_trace", "nvtx_gpu_proj_sum"} <= set(answered)
    assert sorted(file.name for file in folder.iterdir()) == sorted(f"x_{name}.csv" for name in answered)
    code, _, err = run(path, "--output", folder)
    assert code == 1
    assert "add --force to overwrite" in err
    assert run(path, "--output", folder, "--force")[0] == 0


def test_a_report_that_the_file_cannot_answer_is_not_measured(fixtures: Path) -> None:
    path = fixtures / "nsys" / "nvtx_only_2022.sqlite"
    code, out, _ = run(path, "--report", "cuda_gpu_kern_sum")
    assert code == 0
    told = "CUDA GPU Kernel Summary: not measured; nvtx_only_2022.sqlite does not contain CUDA kernel data"
    assert told in " ".join(out.split())
    code, out, err = run(path, "--report", "cuda_api_sum", "--format", "csv")
    assert (code, out) == (1, "")
    assert "does not contain CUDA trace data" in err
