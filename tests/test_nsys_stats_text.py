"""Text of `nsys stats`, read back."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepscope.analyzers.nsys.stats_text import read_stats
from stepscope.dashboards.cli import analyze_nsys_main
from stepscope.record.errors import TraceError


def read(tmp_path: Path, text: str, name: str = "out.txt") -> list:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_stats(path)


def test_the_official_text_gives_its_tables_and_what_was_skipped(fixtures: Path) -> None:
    tables = read_stats(fixtures / "nsys" / "a100_2.7b_clean.stats.txt")
    assert len(tables) == 20
    by_name = {table.report: table for table in tables}
    kernels = by_name["cuda_gpu_kern_sum"]
    assert kernels.rows[0] == (
        88.2, 7424626021, 2250, 3299833.8, 1447966.0, 1446718, 7118834, 2124857.7, "ampere_sgemm_128x64_tn",
    )  # fmt: skip
    assert len(kernels.rows) == 23
    assert by_name["nvtx_sum"].skipped == "does not contain NV Tools Extension (NVTX) data"
    assert by_name["cuda_gpu_mem_size_sum"].rows == []


def test_the_official_csv_keeps_every_row_and_empty_cells_are_none(fixtures: Path) -> None:
    path = fixtures / "nsys" / "nvtx_pushpop_trace.official.csv"
    [table] = read_stats(path)
    assert table.report == "nvtx_pushpop_trace"
    assert len(table.rows) == len(path.read_text().splitlines()) - 1
    first = dict(zip(table.headings, table.rows[0], strict=True))
    assert (first["Duration (ns)"], first["ParentId"], first["RangeStack"]) == (1005098329, None, ":1")


def test_an_empty_output_is_one_line(fixtures: Path) -> None:
    with pytest.raises(TraceError, match="is empty: nsys stats printed nothing"):
        read_stats(fixtures / "nsys" / "a100_2.7b_nvtx.stats.txt")


CSV = """Generating SQLite file run.sqlite from run.nsys-rep\r
[1/2] [====50%     ] run.sqlite\r[2/2] [====100%====] run.sqlite\r
Processing [run.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]... \r
\r
Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\r
90.0,900,2,450.0,450.0,400,500,70.7,"void f<a, b>(int)"\r
10.0,100,1,100.0,100.0,100,100,0.0,g\r
\r
Processing [run.sqlite] with [/opt/nsys/reports/nvtx_sum.py]... \r
SKIPPED: /home/somebody/run.sqlite does not contain NV Tools Extension (NVTX) data.\r
"""


def test_csv_after_a_preamble_with_carriage_returns_and_a_quoted_comma(tmp_path: Path) -> None:
    kernels, ranges = read(tmp_path, CSV)
    assert (kernels.report, len(kernels.rows)) == ("cuda_gpu_kern_sum", 2)
    assert kernels.rows[0] == (90.0, 900, 2, 450.0, 450.0, 400, 500, 70.7, "void f<a, b>(int)")
    assert (ranges.report, ranges.rows) == ("nvtx_sum", [])
    assert ranges.skipped == "does not contain NV Tools Extension (NVTX) data"  # and not whose folder it was


@pytest.mark.parametrize(
    ("percent", "total", "mean"),
    [("48.2", "1346714824", "14429.5"), ("48,2", "1.346.714.824", "14.429,5"), ("48.2", "1,346,714,824", "14,429.5"),
     ("48,2", "1 346 714 824", "14 429,5")],
)  # fmt: skip
def test_numbers_mean_the_same_in_every_language(tmp_path: Path, percent: str, total: str, mean: str) -> None:
    [table] = read(
        tmp_path,
        " ** CUDA API Summary (cuda_api_sum):\n\n"
        " Time (%)  Total Time (ns)  Num Calls  Avg (ns)       Name      \n"
        " --------  ---------------  ---------  --------  ---------------\n"
        f" {percent:>8}  {total:>15}  {'93':>9}  {mean:>8}  cudaLaunchKernel\n",
    )
    assert table.rows == [(48.2, 1346714824, 93, 14429.5, "cudaLaunchKernel")]
    assert table.report == "cuda_api_sum"


@pytest.mark.parametrize(("cell", "megabytes"), [("1,234", 1.234), ("1.234", 1.234), ("13.627,435", 13627.435)])
def test_sizes_have_three_decimals_so_that_the_last_mark_is_the_decimal_one(
    tmp_path: Path, cell: str, megabytes: float
) -> None:
    [table] = read(
        tmp_path,
        " Total (MB)  Count           Operation          \n"
        " ----------  -----  ----------------------------\n"
        f" {cell:>10}  {'294':>5}  [CUDA memcpy Host-to-Device]\n",
    )
    assert table.rows == [(megabytes, 294, "[CUDA memcpy Host-to-Device]")]
    assert table.report == "cuda_gpu_mem_size_sum"


def test_kib_of_2021_become_mb_and_old_names_and_headings_todays(tmp_path: Path) -> None:
    [table] = read(
        tmp_path,
        "Running [/opt/nsys/reports/gpumemsizesum.py run.sqlite]... \n\n"
        "   Total (KiB)  Operations  Average (KiB)      Operation     \n"
        "   -----------  ----------  -------------  ------------------\n"
        "    15,625.000           1     15,625.000  [CUDA memcpy HtoD]\n",
    )
    assert table.report == "cuda_gpu_mem_size_sum"
    assert table.headings == ("Total (MB)", "Count", "Avg (MB)", "Operation")
    assert table.rows == [(16, 1, 16, "[CUDA memcpy HtoD]")]  # 15,625 × 1,024 bytes


def test_statistics_of_2020_without_units_are_nanoseconds(tmp_path: Path) -> None:
    [table] = read(
        tmp_path,
        "CUDA Kernel Statistics (nanoseconds)\n\n"
        "Time(%)      Total Time   Instances         Average         Minimum         Maximum  Name\n"
        "-------  --------------  ----------  --------------  --------------  --------------  ----\n"
        "  100.0           16000           2          8000.0            7000            9000  add\n",
    )
    assert table.headings == ("Time (%)", "Total Time (ns)", "Instances", "Avg (ns)", "Min (ns)", "Max (ns)", "Name")
    assert (table.report, table.rows) == ("cuda_gpu_kern_sum", [(100.0, 16000, 2, 8000.0, 7000, 9000, "add")])


def test_microseconds_come_back_as_nanoseconds(tmp_path: Path) -> None:
    [table] = read(tmp_path, "Time (%),Total Time (us),Num Calls,Avg (us),Name\n100.0,12.345,2,6.1725,cuInit\n")
    assert table.rows == [(100.0, 12345, 2, 6172.5, "cuInit")]


def test_a_files_name_tells_the_report_where_its_text_does_not(tmp_path: Path) -> None:
    text = "Time (%),Total Time (ns),Num Calls,Name\n100.0,5,1,poll\n"
    assert read(tmp_path, text, "run_osrt_sum.csv")[0].report == "osrt_sum"
    assert read(tmp_path, text, "run.csv")[0].report is None


TABLE = (
    "Processing [run.sqlite] with [/opt/nsys/reports/cuda_gpu_kern_sum.py]...\n\n"
    " Time (%)  Total Time (ns)  Instances  Avg (ns)   Name  \n"
    " --------  ---------------  ---------  --------  -------\n"
    "     60,0        6.000.000          2   3000000  f<int>\n"
    "     40,0        4.000.000          1   4000000  g\n\n"
    "SKIPPED: run.sqlite does not contain NVTX data.\n"
)
PIECES = (
    "\n",
    ",",
    ".",
    "-",
    " ",
    "1e9999999",
    "9" * 40,
    '"',
    "\t",
    "**",
    "(ns)",
    "SKIPPED:",
    "\r",
    "\x1e",
    "٣",
    "Name",
    "'",
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.sampled_from([TABLE, CSV]),
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 8), st.sampled_from(PIECES)), min_size=1, max_size=6),
)
def test_spoilt_text_is_read_or_refused_in_a_line_and_a_number_stays_one_that_can_be_shown(
    tmp_path: Path, text: str, changes: list[tuple[int, int, str]]
) -> None:
    for at, gone, put in changes:
        text = text[:at] + put + text[at + gone :]
    path = tmp_path / "run.csv"
    path.write_text(text, encoding="utf-8")
    answered = analyze_nsys_main([str(path)])
    assert answered in (0, 1)  # and no traceback
    if answered == 0:
        assert analyze_nsys_main([str(path), "--report", "cuda_gpu_kern_sum"]) == 0
        for table in read_stats(path):
            assert all(len(row) == len(table.headings) for row in table.rows)
            assert all(abs(cell) < 10**31 for row in table.rows for cell in row if isinstance(cell, int | float))


def test_a_table_whose_rows_are_all_too_short_has_none(tmp_path: Path) -> None:
    [table] = read(tmp_path, "Time (%),Total Time (ns),Instances,Name\n1.0,5\n")
    assert table.rows == []


@pytest.mark.parametrize("text", ["hello\n", "a,b,c\n1,2,3\n", "Processing [x.sqlite] with [/r/nvtx_sum.py]... \n"])
def test_text_without_a_table_is_one_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(TraceError, match="holds no table as nsys stats prints them"):
        read(tmp_path, text)
