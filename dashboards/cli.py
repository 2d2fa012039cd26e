"""The command line `stepscope`: the table of its commands (`profile-train` and `analyze-nsys` stand alone).

Every command lives in a module of its own, loaded only when it is called, so that `--help` stays fast and the
analysis commands never load torch. Commands that need the trainer or the profilers are named by text for that reason.
"""

from cyclopts import App

from .. import __version__
from ..record.program import run, single

COMMANDS = {
    "trace": "stepscope.dashboards.kineto_trace:trace",
    "compare": "stepscope.dashboards.compare:compare",
    "report": "stepscope.dashboards.report:report",
    "recipes": "stepscope.dashboards.recipes:recipes",
    "demo": "stepscope.trainer.demo:demo",
}
"""Command → where it lives; its docstring is its help."""

app = App(name="stepscope", version=__version__, help="What each low-precision recipe costs, gains and risks.")
for _name, _place in COMMANDS.items():
    app.command(_place, name=_name)


def main(arguments: list[str] | None = None) -> int:
    """Entry point of `stepscope`."""
    return run(app, arguments)


def analyze_nsys_main(arguments: list[str] | None = None) -> int:
    """Entry point of `analyze-nsys`."""
    from .analyze_nsys import analyze_nsys

    return run(single(analyze_nsys, "analyze-nsys"), arguments)
