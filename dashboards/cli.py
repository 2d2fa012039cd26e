"""The command line `stepscope`: the table of its commands (`profile-train` and `analyze-nsys` stand alone).

Every command lives in a module of its own, loaded only when it is called, so that `--help` stays fast and the
analysis commands never load torch. Commands that need the trainer or the profilers are named by text for that reason.
"""

from cyclopts import App

from .. import __version__
from ..record.program import run, single

COMMANDS = {
    "trace": (
        "stepscope.dashboards.kineto_trace:trace",
        "Say where the time went in torch.profiler (Kineto) traces.",
        "stepscope trace traces/sample/mxtw",
    ),
    "compare": (
        "stepscope.dashboards.compare:compare",
        "Compare runs, recipe against recipe.",
        "stepscope compare traces/sample",
    ),
    "report": (
        "stepscope.dashboards.report:report",
        "Write one self-contained HTML page about a folder of runs.",
        "stepscope report traces/ -o report.html",
    ),
    "recipes": (
        "stepscope.dashboards.recipes:recipes",
        "List the precision recipes, operand by operand.",
        "stepscope recipes mxtw",
    ),
    "demo": (
        "stepscope.trainer.demo:demo",
        "Train three recipes on this machine and compare them.",
        "stepscope demo --steps 12",
    ),
}
"""Command → where it lives, what it answers, and an example."""

app = App(name="stepscope", version=__version__, help="What each low-precision recipe costs, gains and risks.")
for _name, (_place, _help, _example) in COMMANDS.items():
    app.command(_place, name=_name, help=_help, help_epilogue=f"Example: {_example}")


def main(arguments: list[str] | None = None) -> int:
    """Entry point of `stepscope`."""
    return run(app, arguments)


def analyze_nsys_main(arguments: list[str] | None = None) -> int:
    """Entry point of `analyze-nsys`."""
    from .analyze_nsys import analyze_nsys

    return run(single(analyze_nsys, "analyze-nsys"), arguments)
