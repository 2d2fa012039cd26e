"""How recipes learned and what they cost, as tables of `stepscope compare`."""

from typing import TYPE_CHECKING, Any

from ..record.units import show_count, show_loss, show_pct
from .tables import NO, Cell, Column, Table, first_of, or_no

if TYPE_CHECKING:
    from ..analyzers.results import Comparison

WATCHED = 8
"""Layers to watch that are listed; JSON has all."""
SPIKES = 10


def loss_table(comparison: "Comparison") -> Table:
    """The studies' loss table: a row a recipe and kind of loss."""
    from ..analyzers.loss_table import DDOF, STATISTICS

    rows = [
        (row.name, one.of, one.points, *(getattr(one, name) for name in STATISTICS), one.perplexity, _pct(one.accuracy))
        for row in comparison.recipes
        for one in row.learning.statistics
        if one.run is None
    ]
    return Table(
        title="Losses",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="of", heading="of", right=False),
            Column(name="points", heading="points", show=show_count),
            *(Column(name=name, heading=heading, show=show_loss) for name, heading in STATISTICS.items()),
            Column(name="perplexity", heading="perplexity", show=or_no(lambda value: f"{value:.3f}")),
            Column(name="accuracy_pct", heading="accuracy", show=or_no(show_pct)),
        ],
        rows=[[_dash(cell, row[1], at) for at, cell in enumerate(row)] for row in rows],
        note=f"Means over a recipe's whole runs of each run's figure. std: of the points, ddof {DDOF}. Perplexity and "
        "accuracy: of the last evaluation.",
    )


def gap_table(comparison: "Comparison") -> Table:
    """The loss against the baseline's, on each axis that is measured."""
    from ..analyzers.loss_gap import LOOSE_PCT, STRICT_PCT
    from ..analyzers.verdict import shown_gap

    return Table(
        title=f"Loss against {comparison.baseline}",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="at_equal", heading="at equal", right=False),
            Column(name="points", heading="points", show=show_count),
            Column(name="gap_pct", heading="gap"),
            Column(name="baseline_band_pct", heading=f"among {comparison.baseline}", show=_pct2),
            Column(name="within_strict", heading=f"within {STRICT_PCT:g} %", right=False),
            Column(name="within_loose", heading=f"within {LOOSE_PCT:g} %", right=False),
            Column(name="caveats", heading="mind", right=False),
        ],
        rows=[
            (
                row.name,
                gap.at_equal,
                gap.points,
                shown_gap(gap),
                gap.baseline_band_pct,
                gap.within_strict or NO,
                gap.within_loose or NO,
                "confounded" if row.confounders else "",
            )
            for row in comparison.recipes
            for gap in row.learning.gaps
            if gap.gap_pct is not None
        ],
        note=f"Mean loss of the last tenth / that of {comparison.baseline} − 1, [95 % interval]. among "
        f"{comparison.baseline}: the largest gap between two of its own runs. Within: all of the interval, or none."
        f"{_largest(comparison)}{_no_gap(comparison)}",
    )


def spike_table(comparison: "Comparison") -> Table:
    """Spikes of loss and gradient norm, counted."""
    return Table(
        title="Spikes",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="signal", heading="of", right=False),
            Column(name="spikes", heading="spikes"),
            Column(name="recovered", heading="recovered"),
            Column(name="in_baseline", heading=f"with {comparison.baseline}"),
            Column(name="score_pct", heading="spike score", show=lambda value: f"{value:.2f} %"),
            Column(name="steps", heading="at steps", right=False, fold=True),
        ],
        rows=[
            (
                row.name,
                count.signal.replace("_", " "),
                count.spikes,
                count.recovered,
                NO if row.recipe == comparison.baseline else count.in_baseline,
                count.score_pct,
                _steps(sorted({spike.step for spike in row.learning.spikes if spike.signal == count.signal})),
            )
            for row in comparison.recipes
            for count in row.learning.spike_counts
            if count.spikes is not None
        ],
        note="7 sigma above the mean of the preceding 1,000 values, or robust z over 8 of the preceding 100."
        " Spike score: share of values by the first. All runs of a recipe together.",
    )


def operand_table(comparison: "Comparison") -> Table:
    """What FP8 casts did to each operand, first sample to last."""
    return Table(
        title="FP8 operands",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="operand", heading="operand", right=False),
            Column(name="samples", heading="samples", show=show_count),
            Column(name="layers", heading="layers", show=show_count),
            Column(name="sqnr_first_db", heading="SQNR first", show=_db),
            Column(name="sqnr_last_db", heading="last", show=_db),
            Column(name="sqnr_least_db", heading="worst", show=_db),
            Column(name="saturated_most", heading="saturated", show=_share),
            Column(name="underflowed_most", heading="underflowed", show=_share),
            Column(name="to_watch", heading="to watch"),
        ],
        rows=[
            (
                row.name,
                one.operand,
                one.samples,
                one.layers,
                one.sqnr_first_db,
                one.sqnr_last_db,
                one.sqnr_least_db,
                one.saturated_most,
                one.underflowed_most,
                one.to_watch,
            )
            for row in comparison.recipes
            for one in row.learning.operands
        ],
        note="SQNR first and last: the median layer's; worst: of any layer and sample, as are the shares.",
    )


def watch_table(comparison: "Comparison") -> Table:
    """The layers to watch, the most urgent of each recipe first."""
    rows = [
        (row.name, one.layer, one.operand, one.run, "; ".join(one.watch))
        for row in comparison.recipes
        for one in row.learning.layers_to_watch[:WATCHED]
    ]
    return Table(
        title=f"Layers to watch{first_of(len(rows), sum(len(r.learning.layers_to_watch) for r in comparison.recipes))}",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="layer", heading="layer", right=False),
            Column(name="operand", heading="operand", right=False),
            Column(name="run", heading="run", right=False),
            Column(name="why", heading="why", right=False),
        ],
        rows=rows,
        note="The most urgent first: most reasons, then the lowest SQNR. What makes a reason: docs/numerics.md.",
    )


def price_table(comparison: "Comparison") -> Table:
    """Node-hours, GPU-hours and energy of a run."""
    return Table(
        title="Cost of a run",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="tokens", heading="tokens", show=show_count),
            Column(name="node_hours", heading="node-hours", show=_hours),
            Column(name="gpu_hours", heading="GPU-hours", show=_hours),
            Column(name="energy_per_token_j", heading="energy a token", show=lambda value: f"{1000 * value:,.3g} mJ"),
        ],
        rows=[
            (row.name, row.cost.tokens, row.cost.node_hours, row.cost.gpu_hours, row.cost.energy_per_token_j)
            for row in comparison.recipes
        ],
        note="Wall clock of training · nodes, · GPUs. Energy of all GPUs for an unmasked token. Means over whole runs."
        f"{_no_energy(comparison)}",
    )


def learning_tables(comparison: "Comparison") -> list[Table]:
    """Those that have something to show."""
    made = (loss_table, gap_table, spike_table, operand_table, watch_table)
    return [table for make in made if (table := make(comparison)).rows]


def gate_table(comparison: "Comparison") -> Table:
    """What `--fail-if` asked, and the answers."""
    return Table(
        title="Gates",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="gate", heading="fails if", right=False),
            Column(name="outcome", heading="outcome", right=False),
            Column(name="value", heading="found"),
            Column(name="why", heading="why", right=False),
        ],
        rows=[(gate.recipe or NO, gate.gate, gate.outcome, gate.figure, gate.why or "") for gate in comparison.gates],
        note="Fails where the condition holds of all of the 95 % interval, passes where it holds of none of it.",
    )


def _steps(steps: list[int]) -> str:
    return ", ".join(map(str, steps[:SPIKES])) + " …" * (len(steps) > SPIKES)


def _dash(cell: Cell, of: Any, at: int) -> Cell:
    """Training losses have neither perplexity nor accuracy: nothing is lacking there."""
    return NO if cell is None and of == "train" and at > 7 else cell


def _largest(comparison: "Comparison") -> str:
    texts = [
        f"{row.name} {found.gap_pct:+.2f} % over {found.over} steps up to {found.step}"
        for row in comparison.recipes
        if (found := row.learning.largest_gap)
    ]
    return f" Largest after the first tenth: {'; '.join(texts)}." if texts else ""


def _no_gap(comparison: "Comparison") -> str:
    whys: dict[tuple[str, str], list[str]] = {}
    for row in comparison.recipes:
        for gap in row.learning.gaps:
            if gap.missing:
                whys.setdefault((gap.at_equal, gap.missing), []).append(row.name)
    return "".join(
        f" Not measured at equal {axis} for {', '.join(names)}: {why}." for (axis, why), names in whys.items()
    )


def _no_energy(comparison: "Comparison") -> str:
    """Why energy is not measured, where it is not."""
    lacking = [row for row in comparison.recipes if row.cost.energy_per_token_j is None]
    if all(row.memory_kind != "cuda allocator" for row in comparison.recipes):
        return " No GPU: neither GPU-hours nor energy."
    whys = {row.gpu_use.missing.get("energy_j", "a step does not tell its tokens") for row in lacking}
    return f" Energy is not measured: {'; '.join(sorted(whys))}." if whys else ""


def _pct(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _pct2(value: float) -> str:
    return f"{value:.2f} %"


def _db(value: float) -> str:
    return f"{value:.1f} dB"


def _share(value: float) -> str:
    return f"{100 * value:.3g} %"


def _hours(value: float) -> str:
    return f"{value:,.3f}" if value >= 0.1 else f"{value:.3g}"
