"""The command line `stepscope`: the table of its commands (`profile-train` and `analyze-nsys` stand alone).

Every command lives in a module of its own, loaded only when it is called, so that `--help` stays fast and the
analysis commands never load torch. Commands that need the trainer or the profilers are named by text for that reason.
"""

import sys

from cyclopts import App

from .. import __version__
from ..record.program import run, single

COMMANDS = {
    "trace": ("stepscope.dashboards.kineto_trace:trace", "Say where the time of torch.profiler traces went."),
    "capture": ("stepscope.profiling.capture_command:capture", "Record the machine while any program runs."),
    "watch": ("stepscope.dashboards.watch:watch", "Show running trainings live in the terminal."),
    "compare": ("stepscope.dashboards.compare:compare", "Compare runs, recipe against recipe."),
    "report": ("stepscope.dashboards.report:report", "Write one self-contained HTML page about runs."),
    "scrub": ("stepscope.dashboards.scrub:scrub", "Copy captures without environment, user and host names."),
    "recipes": ("stepscope.dashboards.recipes:recipes", "List the precision recipes, operand by operand."),
    "doctor": ("stepscope.profiling.doctor:doctor", "Say what this machine can capture, why not, and the way out."),
    "demo": ("stepscope.trainer.demo:demo", "Train three recipes on this machine and compare them."),
}
"""Command → where it lives, and its line in the list of commands."""


_ABOUT = """What each low-precision recipe costs, gains and risks.

Two commands stand alone: `profile-train` trains and records, `analyze-nsys` says what is in reports of Nsight Systems.
"""


def program(arguments: list[str]) -> App:
    """The command line. The command asked for shows its own docstring as help; the others are not even loaded."""
    app = App(name="stepscope", version=__version__, help=_ABOUT)
    for name, (place, line) in COMMANDS.items():
        app.command(place, name=name, help=None if arguments[:1] == [name] else line)
    return app


def main(arguments: list[str] | None = None) -> int:
    """Entry point of `stepscope`."""
    words = sys.argv[1:] if arguments is None else arguments
    return run(program(words), words)


def analyze_nsys_main(arguments: list[str] | None = None) -> int:
    """Entry point of `analyze-nsys`."""
    from .analyze_nsys import analyze_nsys

    return run(single(analyze_nsys, "analyze-nsys"), arguments)
