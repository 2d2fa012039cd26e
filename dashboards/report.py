"""`stepscope report`: one self-contained HTML page about a folder of runs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from .. import __version__
from ..record.errors import UserError
from ..record.units import show_bytes, show_count
from .tables import Column, Table

if TYPE_CHECKING:
    from ..analyzers.results import Comparison
    from ..analyzers.runs import Run


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page: a table, a figure, or both, and how to read it."""

    title: str
    how: str
    table: Table | None = None
    figure: Any = None


def report(
    runs: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    output: Annotated[Path, Parameter(alias="-o")] = Path("report.html"),
    baseline: str = "bf16",
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> None:
    """Write one self-contained HTML page about runs: comparison, loss, step time, memory, utilisation, where time goes.

    Example: `stepscope report traces/ -o report.html`

    Parameters
    ----------
    runs
        Run folders, or folders of runs.
    output
        The page to write; its folder is made.
    baseline
        The recipe that the others are held against.
    force
        Overwrite the page if it exists.
    """
    from ..analyzers.compare import compare
    from ..analyzers.runs import read_runs
    from ..record.atomic import write_atomically
    from ..record.recipes import recipe

    if output.exists() and not force:
        raise UserError(f"{output}: exists; add --force to overwrite it, or name another with -o")
    found, unreadable = read_runs(runs)
    comparison = compare(found, unreadable, recipe(baseline).name)
    html = page(found, comparison).encode()
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, html)
    except OSError as error:
        raise UserError(f"{output}: cannot be written: {error.strerror}") from None
    sys.stdout.write(f"{output}\n")


def page(runs: list["Run"], comparison: "Comparison") -> str:
    """The whole page as text."""
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    from .palette import colour_of

    shown = [run for run in runs if run.steps]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True
    )
    return environment.get_template("report.html.j2").render(
        version=__version__,
        title=f"{' against '.join(_recipe_names(comparison))}" if comparison.recipes else "Runs",
        lead=_lead(shown or runs),
        findings=comparison.findings,
        sections=[_drawn(section) for section in sections(shown, comparison)],
        count=len(shown),
        colour_of=colour_of,
        plotly_js=Markup(get_plotlyjs()),  # the library's own text, not an input's
    )


def sections(runs: list["Run"], comparison: "Comparison") -> list[Section]:
    """The parts of the page, in order; a figure without data is left out."""
    from ..analyzers.run_phases import phases
    from ..analyzers.where_time import traced
    from . import figures
    from .compare import cost_table, tables

    shown = tables(comparison)
    groups = {row.name: [run for run in runs if run.name in row.run_names] for row in comparison.recipes}
    by_recipe = {name: phases(group) for name, group in groups.items()}
    looked_at = [traced(group[0], name) for name, group in groups.items() if group]
    traces = [trace for trace in looked_at if trace]
    series, what = _use_over_time(runs)
    found = [
        *(Section(title=table.title, table=table, how=table.note or "") for table in shown),
        Section(
            title="Loss",
            figure=figures.loss(runs),
            how="Mean over the unmasked tokens of all ranks, before each update; diamonds are held-out examples. "
            "Curves that lie on each other are what one hopes for; look for spikes and for gaps that grow.",
        ),
        Section(
            title="Step time",
            figure=figures.step_time(runs),
            how="Of the slowest rank. Hollow marks (first, profiled, compiling, evaluating, checkpointing steps, steps "
            "with FP8 statistics or an account of memory) count in nothing.",
        ),
        Section(
            title="Phases of a step",
            figure=figures.phases(by_recipe) if any(by_recipe.values()) else None,
            how="Medians of the timed steps, slowest rank. On a GPU: time between events on its stream.",
        ),
    ]
    if traces:
        found.append(_where_time_went(traces, figures))
    if any(row.peak_memory_bytes is not None for row in comparison.recipes):
        found.append(
            Section(title="Peak memory", figure=figures.memory(comparison), how=cost_table(comparison).note or "")
        )
    if series:
        found.append(
            Section(
                title=f"{what} use over time",
                figure=figures.utilization(runs, series, what),
                how="As sampled beside training. Use says that something ran, not that it ran well.",
            )
        )
    found.append(
        Section(title="The runs", table=_runs_table(runs), how="Everything else stands in each run's run.json.")
    )
    return found


def _where_time_went(traces: list[Any], figures: Any) -> Section:
    on_device = traces[0].what == "kernels"
    return Section(
        title="Kernels by kind" if on_device else "CPU operators",
        figure=figures.parts_of_traces(traces),
        how=(
            "Device time per recorded step, from rank 0's trace; durations are summed: what overlaps counts each."
            if on_device
            else "Self time per recorded step, from rank 0's trace: without a GPU there are no kernels to show. This "
            "tells where the CPU's time goes, not what a GPU would do."
        ),
    )


def _drawn(section: Section) -> Section:
    from markupsafe import Markup

    if section.figure is None:
        return section
    html = section.figure.to_html(
        full_html=False, include_plotlyjs=False, config={"displayModeBar": False, "responsive": True}
    )
    return Section(title=section.title, how=section.how, table=section.table, figure=Markup(html))


def _use_over_time(runs: list["Run"]) -> tuple[dict[str, list[tuple[float, float]]], str]:
    from ..analyzers.compare import use_over_time

    on_gpu = any(run.on_gpu for run in runs)
    found = {run.name: use_over_time(run, on_gpu=on_gpu) for run in runs}
    return ({name: points for name, points in found.items() if points}, "GPU" if on_gpu else "CPU")


def _recipe_names(comparison: "Comparison") -> list[str]:
    others = [row.recipe for row in comparison.recipes if row.recipe != comparison.baseline]
    has_baseline = len(others) < len(comparison.recipes)
    return [", ".join(others) or comparison.baseline, *([comparison.baseline] if has_baseline and others else [])]


def _lead(runs: list["Run"]) -> str:
    models = sorted({str(run.manifest.model.get("name")) for run in runs})
    devices = sorted({device.name for run in runs for device in run.manifest.devices})
    worlds = sorted({run.manifest.world.size for run in runs})
    ranks = " or ".join(map(str, worlds))
    return f"{', '.join(models)} on {ranks} × {', '.join(devices)}."


def _runs_table(runs: list["Run"]) -> Table:
    return Table(
        title="The runs",
        columns=[
            Column(name="run", heading="run", right=False),
            Column(name="recipe", heading="recipe", right=False),
            Column(name="state", heading="ended", right=False),
            Column(name="steps", heading="steps", show=show_count),
            Column(name="parameters", heading="parameters", show=show_count),
            Column(name="memory", heading="memory a device", show=show_bytes),
            Column(name="torch", heading="torch", right=False),
            Column(name="torchao", heading="torchao", right=False),
        ],
        rows=[
            (
                run.name,
                run.recipe,
                run.manifest.outcome.state,
                len(run.steps),
                run.manifest.model.get("parameters"),
                run.manifest.devices[0].memory_bytes,
                run.manifest.versions.get("torch"),
                run.manifest.versions.get("torchao"),
            )
            for run in runs
        ],
    )
