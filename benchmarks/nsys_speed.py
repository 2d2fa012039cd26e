"""`analyze-nsys` on a large export against what else answers the same question, side by side in one run.

    python benchmarks/nsys_speed.py [--kernels 3000000] [--ranges 200000] [--rounds 5] [--work FOLDER]

Every time is a whole process, start to exit, output thrown away; rounds go through all of them in turn, and the median
of each is what counts, by the clock and in CPU time. The others: sqlite3 with the median by window functions, and with
median and deviation as Python aggregates; `nsys-ai summary` 0.3.0; DuckDB 1.5.5 with its SQLite scanner. The last two
get environments of their own in the folder, installed with pip on first use. Nothing is fetched while times are taken:
HOME names no folder, so that nsys-ai finds no extension of DuckDB, does not wait for one, and reads with sqlite3 alone.
"""

import argparse
import csv
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from nsys_generate import Asked
from processes import environment, load, measured, ours, print_spent, run

HERE = Path(__file__).parent
PEERS = {"nsys-ai": ["nsys-ai==0.3.0"], "duckdb": ["duckdb==1.5.5", "duckdb-extension-sqlite-scanner==1.5.5"]}
SUMMARY = "analyze-nsys --report cuda_gpu_kern_sum"
REPORT = ["--report", "cuda_gpu_kern_sum", "--format", "csv"]


def main() -> None:
    """Generate, install, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=3_000_000)
    parser.add_argument("--ranges", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "stepscope-nsys-speed")
    told = parser.parse_args()
    told.work.mkdir(parents=True, exist_ok=True)
    sizes = [Asked(told.kernels, told.ranges, 1), Asked(4 * told.kernels, told.ranges, 1)]
    small, large = (_export(told.work, size) for size in sizes)
    commands = _commands(small, {name: environment(told.work, name, PEERS[name]) for name in PEERS})
    _same_answer(commands)
    _heading(sizes[0], small, told.rounds)
    print_spent(measured(commands, told.rounds), SUMMARY)
    print(f"load of the machine at the end {load()}")
    for path, size in ((small, sizes[0]), (large, sizes[1])):
        most = max(run(ours("analyze-nsys", str(path), *REPORT), told.work).peak_bytes for _ in range(2))
        print(f"peak memory of the kernel summary, {size.kernels:,} kernels: {most / 1e6:.0f} MB")


def _commands(export: Path, pythons: dict[str, Path]) -> dict[str, list[str]]:
    peers = str(HERE / "nsys_peers.py")
    nsys_ai = str(pythons["nsys-ai"].with_name("nsys-ai"))
    return {
        SUMMARY: ours("analyze-nsys", str(export), *REPORT),
        "sqlite3, window functions": [sys.executable, peers, "window", str(export)],
        "sqlite3, Python aggregates": [sys.executable, peers, "aggregates", str(export)],
        "DuckDB 1.5.5, its SQLite scanner": [str(pythons["duckdb"]), peers, "duckdb", str(export)],
        "nsys-ai 0.3.0 summary, offline": [nsys_ai, "summary", str(export)],
        "analyze-nsys, default view": ours("analyze-nsys", str(export)),
        "analyze-nsys --help": ours("analyze-nsys", "--help"),
    }


def _export(work: Path, size: Asked) -> Path:
    path = work / f"{size.kernels}-{size.ranges}-{size.seed}.sqlite"
    if not path.exists():
        unfinished = path.with_suffix(".part")
        unfinished.unlink(missing_ok=True)
        # in a process of its own: what this one held once would count as the least peak of each it starts
        generate = str(HERE / "nsys_generate.py")
        asked = ["--kernels", str(size.kernels), "--ranges", str(size.ranges), "--seed", str(size.seed)]
        subprocess.run([sys.executable, generate, str(unfinished), *asked], check=True, stdout=subprocess.DEVNULL)
        unfinished.rename(path)
    return path


def _same_answer(commands: dict[str, list[str]]) -> None:
    """Count and total of every kernel are the same for all that print them; a benchmark of another answer is none."""
    answers = {}
    for name, command in commands.items():
        if "sqlite3" in name or "DuckDB" in name:
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
            answers[name] = {tuple(line.split("\t")[:3]) for line in lines}
        elif "kern_sum" in name:
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rows = csv.DictReader(text.splitlines())
            answers[name] = {(row["Total Time (ns)"], row["Instances"], row["Med (ns)"]) for row in rows}
    first, *others = answers.values()
    if any(other != first for other in others):
        sys.exit("the answers differ")


def _heading(size: Asked, export: Path, rounds: int) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}")
    versions = ", ".join(f"{name} {version(name)}" for name in ("duckdb", "adbc-driver-sqlite", "pyarrow"))
    print(f"Python {platform.python_version()}, {versions}, SQLite {sqlite3.sqlite_version}")
    print(f"{size.kernels:,} kernels and launches, {size.ranges:,} ranges: {export.stat().st_size / 1e6:.0f} MB")
    print(f"medians of {rounds}, whole processes; load of the machine at the start {load()}")
    print("the export lies in the page cache\n")


if __name__ == "__main__":
    main()
