"""`stepscope demo`: train three recipes on this machine, one after the other, and compare them."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote

from ..profiling.children import wait_for
from .config import Config
from .hardware import probe
from .resolve import DEFAULT_STEPS
from .sweep import sweep
from .words import next_lines

RECIPES = ("bf16", "tensorwise", "mxtw")


def demo(*, out: Path = Path("traces"), steps: int = DEFAULT_STEPS, nproc: int | None = None) -> int:
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
    name = f"demo-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    config = Config(recipe=",".join(RECIPES), steps=steps, nproc=nproc, out=out, run_name=name, hints=False)
    folder = sweep(config, probe(), ["--recipe", config.recipe, "--steps", str(steps)])
    sys.stderr.write(f"\n$ stepscope compare {quote(str(folder))}\n\n")
    sys.stderr.flush()
    compare = "import sys; from stepscope.dashboards.cli import main; sys.exit(main())"
    code = wait_for([sys.executable, "-c", compare, "compare", str(folder)])
    sys.stderr.write("\n" + next_lines(_next_commands(folder)))
    return code


def _next_commands(folder: Path) -> list[str]:
    place = quote(str(folder))
    return [
        f"tensorboard --logdir {place}",
        f"stepscope trace {quote(str(folder / RECIPES[-1]))}",
        f"stepscope report {place} -o report.html",
        "profile-train --recipe rowwise",
    ]
