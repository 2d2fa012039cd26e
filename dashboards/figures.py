"""The figures of the report, as plotly figures: data in, marks out, nothing computed but positions."""

from typing import Any

import plotly.graph_objects as go

from ..analyzers.results import Comparison
from ..analyzers.run_phases import Part
from ..analyzers.runs import Run
from ..analyzers.where_time import Traced
from .palette import colour_of

_MARGIN = {"l": 70, "r": 20, "t": 20, "b": 55}
_LEGEND = {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0}
MOST_PARTS = 9
"""Rows of a figure of many names; the rest is summed in one."""


def loss(runs: list[Run]) -> go.Figure:
    """Training loss by step, and held-out loss as marks."""
    figure = _figure("step", "loss (nats per token)")
    for run in runs:
        points = [(step.step, step.loss) for step in run.steps if step.loss is not None]
        held_out = [(step.step, step.eval_loss) for step in run.steps if step.eval_loss is not None]
        figure.add_trace(_line(run, points, "%{y:.4f}"))
        figure.add_trace(
            go.Scatter(
                x=[step for step, _ in held_out],
                y=[value for _, value in held_out],
                mode="markers",
                marker={"symbol": "diamond", "size": 9, "color": colour_of(run.recipe)},
                name=f"{run.name}, held out",
                showlegend=False,
                hovertemplate="%{y:.4f}",
            )
        )
    return figure


def step_time(runs: list[Run]) -> go.Figure:
    """Step time by step; steps that are not timed as hollow marks."""
    figure = _figure("step", "step time (ms)")
    for run in runs:
        timed = [(step.step, step.duration_ns / 1e6) for step in run.steps if step.timed]
        others = [(step.step, step.duration_ns / 1e6, ", ".join(step.marks)) for step in run.steps if not step.timed]
        figure.add_trace(_line(run, timed, "%{y:.1f} ms", mode="lines+markers"))
        figure.add_trace(
            go.Scatter(
                x=[step for step, _, _ in others],
                y=[value for _, value, _ in others],
                text=[marks for _, _, marks in others],
                mode="markers",
                marker={"symbol": "circle-open", "size": 8, "color": colour_of(run.recipe)},
                showlegend=False,
                hovertemplate="%{y:.1f} ms, not timed: %{text}",
                name=run.name,
            )
        )
    return figure


def memory(comparison: Comparison) -> go.Figure:
    """Peak memory of each recipe."""
    rows = [row for row in comparison.recipes if row.peak_memory_bytes is not None]
    figure = _figure("peak memory (GiB)", "")
    figure.add_trace(_bars({row.name: (row.peak_memory_bytes or 0) / 2**30 for row in rows}, "%{x:.3g} GiB"))
    figure.update_layout(height=90 + 42 * len(rows))
    return figure


def utilization(runs: list[Run], series: dict[str, list[tuple[float, float]]], what: str) -> go.Figure:
    """Use over time since each run's first step; `series` is run name → (seconds, %)."""
    figure = _figure("seconds since the first step", f"{what} use (%)")
    for run in runs:
        figure.add_trace(_line(run, series.get(run.name, []), "%{y:.0f} %"))
    figure.update_yaxes(range=[0, 105])
    return figure


def phases(by_recipe: dict[str, list[Part]]) -> go.Figure:
    """Median time of each phase, a group of bars a phase."""
    names = list(dict.fromkeys(part.name for parts in by_recipe.values() for part in parts))
    return _grouped(names, {recipe: _times(parts) for recipe, parts in by_recipe.items()})


def parts_of_traces(traces: list[Traced]) -> go.Figure:
    """Device time by kind (or self time by operator) per recorded step, the largest first."""
    totals: dict[str, float] = {}
    for trace in traces:
        for part in trace.parts:
            totals[part.name] = max(totals.get(part.name, 0), part.time_ns)
    names = sorted(totals, key=lambda name: -totals[name])[:MOST_PARTS]
    return _grouped(names, {trace.group: _times(trace.parts) for trace in traces})


def _times(parts: list[Part]) -> dict[str, float]:
    return {part.name: part.time_ns for part in parts}


def _grouped(names: list[str], by_recipe: dict[str, dict[str, float]]) -> go.Figure:
    figure = _figure("time per step (ms)", "")
    for recipe, times in by_recipe.items():
        bars = _bars({_short(name): times.get(name, 0.0) / 1e6 for name in names}, "%{x:.3g} ms", colour_of(recipe))
        figure.add_trace(bars.update(name=recipe, showlegend=True))
    figure.update_layout(barmode="group", height=130 + (26 + 14 * len(by_recipe)) * len(names))
    return figure


def _short(name: str) -> str:
    return name if len(name) <= 48 else name[:47] + "…"


def _bars(values: dict[str, float], hover: str, colour: str | None = None) -> go.Bar:
    return go.Bar(
        x=list(values.values()),
        y=list(values),
        orientation="h",
        marker={"color": colour or [colour_of(name) for name in values]},
        hovertemplate=hover,
        showlegend=False,
        name="",
    )


def _line(run: Run, points: list[tuple[Any, Any]], hover: str, mode: str = "lines") -> go.Scatter:
    return go.Scatter(
        x=[x for x, _ in points],
        y=[y for _, y in points],
        mode=mode,
        name=run.name,
        legendgroup=run.name,
        line={"color": colour_of(run.recipe), "width": 2},
        hovertemplate=hover,
    )


def _figure(x: str, y: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        template="plotly_white", height=380, margin=_MARGIN, legend=_LEGEND, hovermode="closest", font={"size": 13}
    )
    figure.update_xaxes(title=x, automargin=True)
    figure.update_yaxes(title=y, automargin=True)
    if not y:
        figure.update_yaxes(autorange="reversed")
    return figure
