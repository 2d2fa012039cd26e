"""`stepscope watch`: running trainings, live in the terminal; plain lines in a pipe."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from ..record.errors import ConfigError

if TYPE_CHECKING:
    from ..analyzers.follow import Watcher
    from ..analyzers.live import Live
    from .watch_view import View

ON_TERMINAL_S, IN_PIPE_S = 1.0, 10.0
"""Seconds between looks where nobody says."""
LEAST_S, MOST_S = 0.1, 3600.0
ANOTHER_S = 30.0
"""How long another run of a folder is waited for when one has ended: a sweep starts the next."""


def watch(
    runs: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    every: Annotated[float | None, Parameter(show_default=False)] = None,
    once: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    format: Literal["table", "json"] = "table",
) -> int:
    """Show running trainings: progress, loss, speed, where a step goes, GPUs, what to look at. Ctrl-C ends the view.

    It reads the ends of the runs' files and disturbs nothing. Exit code 1: a run has failed.

    Example: `stepscope watch traces/`

    Parameters
    ----------
    runs
        Run folders, or folders of runs: those that are running or begin later; the newest where none is.
    every
        Seconds between looks; 1 on a terminal, 10 in a pipe.
    once
        Look once.
    format
        table; json: a line a look, as stepscope.watch/1.
    """
    from ..analyzers.follow import Watcher
    from .watch_view import view_for

    if every is not None and not LEAST_S <= every <= MOST_S:
        raise ConfigError(f"--every: must be from {LEAST_S} to {MOST_S:g} seconds, not {every:g}")
    watcher = Watcher(runs)
    live = sys.stdout.isatty() and not once
    with view_for(format, live=live, once=once) as view:
        try:
            now = _follow(watcher, view, every or (ON_TERMINAL_S if live else IN_PIPE_S), once=once)
        except KeyboardInterrupt:
            return 0  # the way out, and no failure
    return int(any(run.state == "failed" for run in now.runs))


def _follow(watcher: "Watcher", view: "View", period_s: float, *, once: bool) -> "Live":
    """Look until nothing runs any more; the last look."""
    now = watcher.look(time.time_ns())
    view.show(now)
    patience_s = ANOTHER_S if watcher.may_begin_others and now.running else 0.0
    ran_at = time.monotonic()
    while not once and (now.running or time.monotonic() - ran_at < patience_s):
        time.sleep(period_s)
        now = watcher.look(time.time_ns())
        view.show(now)
        ran_at = time.monotonic() if now.running else ran_at
    return now
