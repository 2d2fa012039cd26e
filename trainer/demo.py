"""`stepscope demo`: train three recipes on this machine, one after the other, and compare them."""

import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from ..record.errors import UserError
from ..record.run import new_run
from .words import next_lines

RECIPES = ("bf16", "tensorwise", "mxtw")


def demo(*, out: Path = Path("traces"), steps: int = 24, nproc: int | None = None) -> int:
    """Train bf16, tensorwise and mxtw on this machine and compare them; about a minute and a half on two CPU cores.

    Example: `stepscope demo --steps 12`

    Parameters
    ----------
    out
        Folder that receives the demo's folder, which holds one run per recipe.
    steps
        Optimizer steps of each run.
    nproc
        Worker processes of each run. [default: one per GPU; 2 without]
    """
    folder = new_run(out, f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}").path
    runs = [folder / recipe for recipe in RECIPES]
    for number, recipe in enumerate(RECIPES, start=1):
        sys.stderr.write(f"\n[{number}/{len(RECIPES)}] profile-train --recipe {recipe} --steps {steps}\n")
        _train(recipe, steps=steps, nproc=nproc, folder=folder)
    sys.stderr.write(f"\n$ stepscope compare {' '.join(map(str, runs))}\n\n")
    sys.stderr.flush()
    compare = "import sys; from stepscope.dashboards.cli import main; sys.exit(main())"
    code = _wait_for([sys.executable, "-c", compare, "compare", *map(str, runs)])
    sys.stderr.write("\n" + next_lines(_next_commands(folder)))
    return code


def _train(recipe: str, *, steps: int, nproc: int | None, folder: Path) -> None:
    flags = ["--recipe", recipe, "--steps", str(steps), "--out", str(folder), "--run-name", recipe, "--no-hints"]
    flags += ["--nproc", str(nproc)] if nproc else []
    code = _wait_for([sys.executable, "-m", "stepscope.trainer", *flags], stdout=subprocess.DEVNULL)
    if code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        raise KeyboardInterrupt
    if code:
        raise UserError(f"the run of {recipe} failed; what it left is in {folder}")


def _wait_for(command: list[str], stdout: int | None = None) -> int:
    """Run a command to its end. It decides what Ctrl-C means; SIGTERM is passed on to it."""
    with subprocess.Popen(command, stdout=stdout) as child:
        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: child.terminate()),
        }
        try:
            return child.wait()
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)


def _next_commands(folder: Path) -> list[str]:
    return [
        f"tensorboard --logdir {folder}",
        f"stepscope trace {folder / RECIPES[-1]}",
        f"stepscope report {folder} -o report.html",
        "profile-train --recipe rowwise",
    ]
