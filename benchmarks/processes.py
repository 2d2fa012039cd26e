"""Whole processes side by side: each round goes through all of them in turn; the medians count."""

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil


class Spent(NamedTuple):
    """What one process took, those that it started included."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    """The largest resident memory of it or of any it started."""


def ours(program: str, *words: str) -> list[str]:
    """A command of this project, as installed beside the running Python."""
    return [str(Path(sys.executable).with_name(program)), *words]


def environment(work: Path, name: str, packages: list[str], alone: Sequence[str] = ()) -> Path:
    """The Python of a peer's own environment, made on first use; `alone` are packages without what they ask for."""
    folder = work / f"env-{name}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        if alone:
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", *alone], check=True)
        (folder / "ready").touch()
    return python


def measured(commands: dict[str, list[str]], rounds: int) -> dict[str, list[Spent]]:
    """What each command took in each round."""
    spent: dict[str, list[Spent]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for name, command in commands.items():
                spent[name].append(run(command, Path(folder)))
    return spent


def run(command: list[str], folder: Path) -> Spent:
    """One process from start to exit, output thrown away; HOME is a folder that is not there, in `folder`."""
    told = {**os.environ, "HOME": str(folder / "nobody")}
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=told)
    said = child.stderr.read() if child.stderr else b""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command} ended with {child.returncode}: {said.decode(errors='replace')[-500:]}")
    return Spent(time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def load() -> str:
    """The machine's load, as text."""
    return ", ".join(f"{value:.1f}" for value in psutil.getloadavg()) + " (1, 5, 15 min)"


def print_spent(spent: dict[str, list[Spent]], base: str) -> None:
    """A line for each command: medians, and what they are of `base`'s."""
    base_wall = median(one.wall_s for one in spent[base])
    base_cpu = median(one.cpu_s for one in spent[base])
    wide = max(map(len, spent))
    print(
        f"{'':{wide}}{'s by clock (least to most)':>28}{'CPU s':>8}{'peak MB':>9}{'clock ratio':>12}{'CPU ratio':>10}"
    )
    for name, each in spent.items():
        walls = [one.wall_s for one in each]
        wall, cpu = median(walls), median(one.cpu_s for one in each)
        clock = f"{wall:.2f} ({min(walls):.2f} to {max(walls):.2f})"
        peak = median(one.peak_bytes for one in each) / 1e6
        print(f"{name:{wide}}{clock:>28}{cpu:>8.2f}{peak:>9.0f}{wall / base_wall:>12.2f}{cpu / base_cpu:>10.2f}")
    print(f"(ratios are of: {base})\n")
