"""Official traces rebuilt to the last digit: what nsys stats printed of the same ranges and launches."""

import csv
import lzma
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from nsys_capture import (
    CALL,
    COPY,
    NVTX,
    PROCESS,
    answer,
    fill,
    printed,
)


def rebuilt(path: Path, ranges: list[dict[str, str]]) -> list[dict[str, str]]:
    """An export of the ranges of an official trace, each in the row that its id says; other rows are marks."""
    rows: list[tuple[Any, ...]] = [(0, None, 34, "mark", 0, None, 0)] * max(int(row["RangeId"]) for row in ranges)
    domains: dict[str, int] = {"": 0}
    for row in ranges:
        domain, colon, text = row["Name"].partition(":")
        domain, text = (domain, text) if colon else ("", domain)
        thread = int(row["PID"]) << 24 | int(row["TID"])
        number = domains.setdefault(domain, len(domains))
        times = int(row["Start (ns)"]), int(row["End (ns)"])
        rows[int(row["RangeId"]) - 1] = (*times, 59, text, thread, None, number)
    process = int(ranges[0]["PID"]) << 24
    rows += [(0, None, 75, domain, process, None, number) for domain, number in domains.items() if domain]
    with sqlite3.connect(path) as database:
        fill(database, "NVTX_EVENTS", NVTX, rows)
    database.close()
    return ranges


def official_ranges(fixtures: Path, name: str) -> list[dict[str, str]]:
    raw = (fixtures / "nsys" / name).read_bytes()
    text = (lzma.decompress(raw) if name.endswith(".xz") else raw).decode()
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("name", ["nvtx_pushpop_trace.official.csv", "fsdp4_proc0_nvtx_pushpop_trace.csv.xz"])
def test_the_push_pop_trace_of_the_same_ranges_is_the_official_one(
    fixtures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    wanted = rebuilt(tmp_path / "x.sqlite", official_ranges(fixtures, name))
    header, *found = printed(tmp_path / "x.sqlite", "nvtx_pushpop_trace", capsys)
    assert header == list(wanted[0])
    for mine, theirs in zip(found, wanted, strict=True):
        if ":" not in theirs["Name"]:  # nsys before 2024 put no colon before ranges of the default domain
            mine[5], mine[13] = mine[5].removeprefix(":"), mine[13].replace(":", "", 1)
        assert mine == list(theirs.values())


def test_the_projection_of_the_same_launches_is_the_official_one(fixtures: Path, tmp_path: Path) -> None:
    """Each range launches, right after it opens, what the official trace counts in it and in none of its children."""
    path = tmp_path / "x.sqlite"
    ranges = rebuilt(path, official_ranges(fixtures, "fsdp4_proc0_nvtx_pushpop_trace.csv.xz"))
    starts = {int(row["Start (ns)"]) for row in ranges}
    table = pq.read_table(fixtures / "nsys" / "fsdp4_proc0_nvtx_gpu_proj_trace.parquet")
    wanted = [list(row.values())[:14] for row in table.to_pylist()]
    in_children: dict[int, int] = {}
    for row in wanted:
        if row[12] is not None:
            in_children[int(row[12])] = in_children.get(int(row[12]), 0) + row[8]
    calls, kernels = [], []
    for correlation, row in enumerate(wanted):
        own = row[8] - in_children.get(int(row[11] or 0), 0)
        launch = int(row[3] or 0) + 1
        assert launch not in starts
        calls.append((launch, launch, row[6] << 24 | row[7], correlation, 0, 0))
        for place in range(own):
            end = row[1] + (row[2] if place == 0 else 0)
            kernels.append((row[1], end, row[6] << 24, correlation, 0))
    with sqlite3.connect(path) as database:
        fill(database, "CUPTI_ACTIVITY_KIND_RUNTIME", CALL, calls)
        fill(database, "CUPTI_ACTIVITY_KIND_KERNEL", "start end globalPid correlationId demangledName", kernels)
    database.close()
    assert [list(row) for row in answer(path, "nvtx_gpu_proj_trace")] == wanted


@pytest.mark.parametrize(("ns", "official"), [(661_398, 6337.593), (21_952, 191063.130), (542_802, 7725.908)])
def test_nsys_throughput_is_what_nsys_printed_for_four_mib(tmp_path: Path, ns: int, official: float) -> None:
    with sqlite3.connect(tmp_path / "x.sqlite") as database:
        fill(database, "StringIds", "id value", [])
        row = (0, ns, 0, 1, 7, 1, PROCESS, 4 * 2**20, 1, 1, 2, None)
        fill(database, "CUPTI_ACTIVITY_KIND_MEMCPY", COPY, [row])
    database.close()
    [found] = answer(tmp_path / "x.sqlite", "gputrace:nsys-throughput")
    assert round(float(found[13] or 0), 3) == official
