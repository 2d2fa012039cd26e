"""A comparison as one row a recipe with raw values: what `stepscope compare --format csv` prints."""

from typing import TYPE_CHECKING

from .tables import Cell, Column, Table

if TYPE_CHECKING:
    from ..analyzers.medians import Estimate
    from ..analyzers.results import Comparison, RecipeResult

GPU_USE = ("tensor_active_pct", "sm_active_pct", "dram_bandwidth_pct", "power_w", "energy_j")
_INTERVALS = ("step_time_ns", "tokens_per_s", "speed_vs_baseline_pct", "time_saved_pct")
_RATES = ("flops_per_s", "mfu_pct")
_THROUGHPUT = (
    *("step_time_p95_ns", "data_wait_pct", "training_ns", "wall_clock_ns"),
    *("tokens_per_s_wall_clock", "padded_pct"),
)
_PLAIN = (
    *("peak_memory_bytes", "memory_kind", "memory_total_bytes", "peak_memory_pct", "utilization_pct"),
    *("utilization_kind", "loss_first", "loss_last", "eval_loss", "eval_accuracy", "emulated", "conforms"),
)
_COST = ("node_hours", "gpu_hours", "tokens", "energy_per_token_j")
_STATISTICS = ("max", "min", "average", "final", "std", "perplexity")


def raw_table(comparison: "Comparison") -> Table:
    """One row a recipe with every value; intervals in columns `_low` and `_high`."""
    rows = [_fields(row) for row in comparison.recipes]
    names = list(rows[0]) if rows else []
    return Table(
        title="compare",
        columns=[Column(name=name, heading=name) for name in names],
        rows=[list(row.values()) for row in rows],
    )


def study(row: "RecipeResult") -> tuple[Cell, Cell, Cell]:
    """The FP8 study's utilisation and memory, and the points they are of."""
    found = row.study_columns
    return found.utilization_pct, found.memory_allocated_pct, found.points


def _fields(row: "RecipeResult") -> dict[str, Cell]:
    found: dict[str, Cell] = {name: getattr(row, name) for name in ("recipe", "wrap", "model", "runs", "timed_steps")}
    for name in _INTERVALS:
        found |= _three(name, getattr(row, name))
    for name in _RATES:
        found |= _three(name, getattr(row.throughput, name))
    found |= {name: getattr(row.throughput, name) for name in _THROUGHPUT}
    found |= {name: getattr(row, name) for name in _PLAIN}
    found |= {name: getattr(row.gpu_use, name) for name in GPU_USE}
    names = ("wandb_utilization_pct", "wandb_memory_allocated_pct", "wandb_points")
    found |= dict(zip(names, study(row), strict=True))
    found["confounders"] = "; ".join(row.confounders)
    return found | {name: getattr(row.cost, name) for name in _COST} | _learning(row)


def _learning(row: "RecipeResult") -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    gap = row.learning.gap
    low, high = (gap.ci95 if gap else None) or (None, None)
    found |= {"loss_gap_pct": gap.gap_pct if gap else None, "loss_gap_pct_low": low, "loss_gap_pct_high": high}
    for of in ("train", "held-out"):
        own = next((one for one in row.learning.statistics if one.of == of and one.run is None), None)
        prefix = of.replace("held-out", "held_out")
        found |= {f"{prefix}_loss_{name}": getattr(own, name, None) for name in _STATISTICS}
    found["held_out_perplexity"] = found.pop("held_out_loss_perplexity")
    del found["train_loss_perplexity"]
    found |= {f"{count.signal}_spikes": count.spikes for count in row.learning.spike_counts}
    return found | {"diverged_runs": len(row.learning.diverged)}


def _three(name: str, estimate: "Estimate | None") -> dict[str, Cell]:
    low, high = (estimate.ci95 if estimate else None) or (None, None)
    return {name: estimate.median if estimate else None, f"{name}_low": low, f"{name}_high": high}
