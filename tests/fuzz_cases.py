"""Damaged files, one after the other through the command line, in processes of their own.

A script of cases calls `take_cases` when run as

    python tests/SCRIPT.py FOLDER FIRST LAST

Case N is the same in every run. A line goes out before each case, so that whoever reads them knows which one ended the
process: a hang does so after HANG_S, memory beyond MOST_BYTES is a failure. Every case must end with exit code 0 or 1,
and 1 with one line on stderr.
"""

import io
import re
import resource
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

HANG_S = 30
MOST_BYTES = 1 << 30
WORKERS = 2
SECRET = "secret-value"
"""Stands in places of an input that are never to be shown."""

Outcome = Callable[[int], tuple[str | None, int]]
"""Of a case what is wrong with how it was taken (None where nothing is), and the exit code."""


class Said(NamedTuple):
    """What a script's cases came to."""

    answered: int
    refused: int


def run_cases(script: Path, folder: Path, cases: int) -> Said:
    """Cases 0 to before `cases` of a script, shared out; AssertionError with what the first bad one said."""
    edges = [cases * part // WORKERS for part in range(WORKERS + 1)]
    workers = [
        subprocess.Popen([sys.executable, script, folder, str(first), str(last)], stdout=subprocess.PIPE, text=True)
        for first, last in pairwise(edges)
    ]
    texts = [worker.communicate(timeout=1200)[0] for worker in workers]
    for worker, text in zip(workers, texts, strict=True):
        if worker.returncode:
            raise AssertionError(f"ended by {worker.returncode} in or after case {text.splitlines()[-1:]}")
        if "FAILS" in text:
            raise AssertionError(text[text.index("FAILS") :][:3000])
    counts = [re.search(r"done: (\d+) answered, (\d+) refused", text) for text in texts]
    answered, refused = (sum(int(found[part]) for found in counts if found) for part in (1, 2))
    return Said(answered, refused)


def outcome(command: Callable[[list[str]], int], words: list[str]) -> tuple[str | None, int]:
    """What is wrong with how a command takes these words (None where nothing is), and the exit code."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = command(words)
    except BaseException:  # noqa: BLE001 - this is what the test is for
        return traceback.format_exc(), -1
    return _complaint(code, out.getvalue(), err.getvalue()), code


def _complaint(code: int, out: str, err: str) -> str | None:
    said = err.splitlines()
    if code not in (0, 1):
        return f"exit code {code}: {said}"
    if code == 1 and len(said) != 1:
        return f"{len(said)} lines: {said}"
    if SECRET in out + err:
        return "the environment was shown"
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return f"{most:,} bytes of memory" if most > MOST_BYTES else None


def take_cases(taken: Callable[[Path, int], Outcome]) -> None:
    """Take the cases that the command line names, and print what fails; `taken` has the folder and the first case."""
    folder, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    outcome_of = taken(folder, first)
    codes: Counter[int] = Counter()
    for case in range(first, last):
        sys.stdout.write(f"{case}\n")
        sys.stdout.flush()
        signal.setitimer(signal.ITIMER_REAL, HANG_S)
        wrong, code = outcome_of(case)
        if wrong:
            sys.stdout.write(f"FAILS {case}: {wrong}\n")
        codes[code] += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdout.write(f"done: {codes[0]} answered, {codes[1]} refused\n")
