"""`stepscope trace` on large traces against what else reads them, side by side in one run.

    python benchmarks/kineto_speed.py [--megabytes 215] [--ranks 8] [--rounds 5] [--work FOLDER]

Every time is a whole process, start to exit, output thrown away; rounds go through all of them in turn, and the median
of each is what counts, by the clock and in CPU time. The others: a bare streaming decode of all events by msgspec, on
one CPU, and the kernel breakdown of HolisticTraceAnalysis (traceinsight 0.6.1), which gets an environment of its own in
the folder, installed with pip on first use. Then several ranks against one, and a trace ten times as large.
"""

import argparse
import csv
import os
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

from processes import environment, load, measured, ours, print_spent, run

HERE = Path(__file__).parent
HTA = ["traceinsight==0.6.1"]
HTA_NEEDS = ["pandas", "plotly", "networkx", "pydot", "pyyaml", "numpy", "ijson", "psutil"]
"""Without Jupyter, which the breakdown does not use."""
KERNELS = "stepscope trace --view kernels"
FLOOR = "msgspec, bare streaming decode"
CSV = ["--view", "kernels", "--format", "csv"]


def main() -> None:
    """Generate, install, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=215)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "stepscope-kineto-speed")
    told = parser.parse_args()
    told.work.mkdir(parents=True, exist_ok=True)
    trace = _trace(told.work, told.megabytes)
    commands = _commands(trace, environment(told.work, "hta", HTA_NEEDS, alone=HTA))
    _same_answer(trace, commands)
    _heading(trace, told.rounds)
    print_spent(measured(commands, told.rounds), FLOOR)
    print(f"load of the machine at the end {load()}\n")
    _ranks(told.work, told.ranks, told.rounds)
    for size in (told.megabytes, 10 * told.megabytes):
        command = ours("stepscope", "trace", str(_trace(told.work, size)), *CSV)
        most = max(run(command, told.work).peak_bytes for _ in range(2))
        print(f"peak memory of the kernels of {size:,} MB: {most / 1e6:.0f} MB in the largest process")


def _commands(trace: Path, hta: Path) -> dict[str, list[str]]:
    peers = str(HERE / "kineto_peers.py")
    return {
        FLOOR: [sys.executable, peers, "decode", str(trace)],
        KERNELS: ours("stepscope", "trace", str(trace), *CSV),
        "stepscope trace, one screen": ours("stepscope", "trace", str(trace)),
        "stepscope trace, all views as JSON": ours("stepscope", "trace", str(trace), "--format", "json"),
        "HolisticTraceAnalysis, kernel breakdown": [str(hta), peers, "breakdown", str(trace)],
        "stepscope trace --help": ours("stepscope", "trace", "--help"),
    }


def _trace(work: Path, megabytes: int, rank: int = 0, world: int = 1) -> Path:
    path = work / f"{megabytes}-{world}" / f"rank{rank}.pt.trace.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".part")
        # in a process of its own: what this one held once would count as the least peak of each it starts
        asked = ["--megabytes", str(megabytes), "--rank", str(rank), "--world", str(world)]
        generate = [sys.executable, str(HERE / "kineto_generate.py"), str(unfinished), *asked]
        subprocess.run(generate, check=True, stdout=subprocess.DEVNULL)
        unfinished.rename(path)
    return path


def _ranks(work: Path, ranks: int, rounds: int) -> None:
    """The same words on one rank and on all of them."""
    alone, several = _trace(work, 100), [_trace(work, 100, rank, ranks) for rank in range(ranks)]
    spent = measured(
        {
            "one": ours("stepscope", "trace", str(alone), "--format", "json"),
            "all": ours("stepscope", "trace", str(several[0].parent), "--format", "json"),
        },
        rounds,
    )
    sizes = {"one": alone.stat().st_size, "all": sum(path.stat().st_size for path in several)}
    for name, what in (("one", "one rank"), ("all", f"{ranks} ranks")):
        wall, peak = (median(getattr(one, part) for one in spent[name]) for part in ("wall_s", "peak_bytes"))
        size = sizes[name] / 1e6
        print(f"all views of {what}, {size:.0f} MB: {wall:.2f} s, {size / wall:.0f} MB/s, peak {peak / 1e6:.0f} MB")
    print()


def _same_answer(trace: Path, commands: dict[str, list[str]]) -> None:
    """The same kernels for both; totals apart by at most 3 µs a kernel, since HTA takes whole µs."""
    said = {name: _output(commands[name]) for name in (KERNELS, "HolisticTraceAnalysis, kernel breakdown")}
    rows = [line.split("\t") for line in said["HolisticTraceAnalysis, kernel breakdown"].splitlines() if "\t" in line]
    theirs = {name: float(total) for total, name in rows}
    mine = _totals(said[KERNELS])
    if set(theirs) != set(mine) or any(abs(ns / 1e3 - theirs[name]) > 3 * count for name, (ns, count) in mine.items()):
        sys.exit(f"the answers about {trace} differ")
    if not int(_output(commands[FLOOR])) > sum(count for _, count in mine.values()):
        sys.exit("the decode does not have all events")


def _totals(text: str) -> dict[str, tuple[int, int]]:
    found = {}
    for row in csv.DictReader(text.splitlines()):
        found[row["name"]] = (int(row["total_ns"]), int(row["count"]))
    return found


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _heading(trace: Path, rounds: int) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.machine()}, {os.cpu_count()} CPUs, {platform.system()}")
    versions = ", ".join(f"{name} {version(name)}" for name in ("msgspec", "pyarrow", "numpy"))
    print(f"Python {platform.python_version()}, {versions}")
    print(f"one rank, {trace.stat().st_size / 1e6:.0f} MB; in the page cache")
    print(f"medians of {rounds}, whole processes; load of the machine at the start {load()}\n")


if __name__ == "__main__":
    main()
