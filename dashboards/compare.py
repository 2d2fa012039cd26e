"""`stepscope compare`: recipe against recipe, in one table."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from ..record.errors import UserError
from ..record.units import NOT_MEASURED, show_bytes, show_count, show_loss, show_ns, show_pct
from .tables import Cell, Column, Format, Table, csv_text, json_text, print_table, print_text, terminal

if TYPE_CHECKING:
    from ..analyzers.medians import Estimate
    from ..analyzers.results import Comparison, RecipeResult

_GPU_USE = ("tensor_active_pct", "sm_active_pct", "dram_bandwidth_pct", "power_w", "energy_j")
_STUDY = ("wandb_utilization_pct", "wandb_memory_allocated_pct", "wandb_points")


def compare(
    runs: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    baseline: str = "bf16",
    wandb_compatible: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    format: Format = "table",
) -> None:
    """Compare runs, recipe against recipe: speed, memory, utilisation, loss, and what else differs between them.

    Example: `stepscope compare traces/sample`

    Parameters
    ----------
    runs
        Run folders, or folders of runs.
    baseline
        The recipe that the others are held against.
    wandb_compatible
        Show GPU utilization and memory allocated as the FP8 study has them too: points every 15 s, as W&B reads them.
    format
        table; csv: one row a recipe, raw values; json: everything, as stepscope.compare/1.
    """
    from ..analyzers.cautions import LEFT_OUT
    from ..analyzers.compare import compare as compared
    from ..analyzers.runs import read_runs
    from ..record.recipes import recipe

    comparison = compared(*read_runs(runs), baseline=recipe(baseline).name)
    if not comparison.recipes:
        why = " ".join(finding.text for finding in comparison.findings if finding.code in LEFT_OUT)
        raise UserError(f"{', '.join(map(str, runs))}: no run can be compared. {why}")
    if format == "json":
        sys.stdout.write(json_text(comparison))
    elif format == "csv":
        sys.stdout.write(csv_text(raw_table(comparison)))
    else:
        console = terminal()
        study = [study_table(comparison)] if wandb_compatible else []
        for table in [*tables(comparison), *study]:
            print_table(table, console)
        for finding in comparison.findings:
            print_text(f"{finding.severity}: {finding.text}", console)


def speed_table(comparison: "Comparison") -> Table:
    """Step time, tokens per second, and speed against the baseline."""
    return Table(
        title=f"Speed, against {comparison.baseline}",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="runs", heading="runs"),
            Column(name="timed_steps", heading="steps"),
            Column(name="step_time_ns", heading="step time"),
            Column(name="tokens_per_s", heading="tokens/s", show=show_count),
            Column(name="speed_vs_baseline_pct", heading=f"speed vs {comparison.baseline}"),
            Column(name="time_saved_pct", heading="time saved"),
            Column(name="caveats", heading="mind", right=False),
        ],
        rows=[
            (
                row.name,
                row.runs,
                row.timed_steps,
                with_interval(row.step_time_ns, show_ns),
                row.tokens_per_s.median if row.tokens_per_s else None,
                _relative(row, row.speed_vs_baseline_pct, comparison.baseline),
                _relative(row, row.time_saved_pct, comparison.baseline),
                caveats(row),
            )
            for row in comparison.recipes
        ],
        note="Medians of timed steps, [95 % interval]. speed = T_baseline / T − 1; time saved = 1 − T / T_baseline.",
    )


def throughput_table(comparison: "Comparison") -> Table:
    """Slow steps, waiting, FLOP/s, and training time against the wall clock."""
    device = "GPU" if any(row.memory_kind == "cuda allocator" for row in comparison.recipes) else "rank"
    return Table(
        title="Throughput",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="step_time_p95_ns", heading="p95 step", show=show_ns),
            Column(name="data_wait_pct", heading="data wait", show=show_pct),
            Column(name="flops_per_s", heading=f"TFLOP/s a {device}", show=lambda value: f"{value / 1e12:.3g}"),
            Column(name="mfu_pct", heading="MFU"),
            Column(name="training_ns", heading="in steps", show=show_ns),
            Column(name="wall_clock_ns", heading="wall clock", show=show_ns),
            Column(name="tokens_per_s_wall_clock", heading="tokens/s of it", show=show_count),
            Column(name="padded_pct", heading="padding", show=show_pct),
        ],
        rows=[
            (
                row.name,
                row.throughput.step_time_p95_ns,
                row.throughput.data_wait_pct,
                row.throughput.flops_per_s.median if row.throughput.flops_per_s else None,
                with_interval(row.throughput.mfu_pct, show_pct),
                row.throughput.training_ns,
                row.throughput.wall_clock_ns,
                row.throughput.tokens_per_s_wall_clock,
                row.throughput.padded_pct,
            )
            for row in comparison.recipes
        ],
        note="p95, waiting and FLOP/s: of timed steps. FLOP/s: the model's, on all positions, causal attention not "
        "halved, nothing recomputed. MFU: each GEMM against the peak of its dtype. Wall clock: first step to last, "
        f"with evaluation, checkpoints and profiled steps.{_means(comparison)}",
    )


def cost_table(comparison: "Comparison") -> Table:
    """Memory, utilisation and loss."""
    return Table(
        title="Memory, utilisation and loss",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="peak_memory_bytes", heading="peak memory", show=show_bytes),
            Column(name="peak_memory_pct", heading="of all", show=show_pct),
            Column(name="utilization_pct", heading=f"{_used(comparison)} use", show=show_pct),
            Column(name="loss_first", heading="first loss", show=show_loss),
            Column(name="loss_last", heading="last loss", show=show_loss),
            Column(name="eval_loss", heading="eval loss", show=show_loss),
            Column(name="eval_accuracy", heading="eval accuracy", show=lambda value: show_pct(value * 100)),
        ],
        rows=[
            (
                row.name,
                row.peak_memory_bytes,
                row.peak_memory_pct,
                row.utilization_pct,
                row.loss_first,
                row.loss_last,
                row.eval_loss,
                row.eval_accuracy,
            )
            for row in comparison.recipes
        ],
        note=_cost_note(comparison),
    )


def gpu_table(comparison: "Comparison") -> Table:
    """Tensor cores, SMs, power and energy."""
    return Table(
        title="GPUs in training",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="tensor_active_pct", heading="tensor cores", show=show_pct),
            Column(name="sm_active_pct", heading="SMs", show=show_pct),
            Column(name="dram_bandwidth_pct", heading="memory traffic", show=show_pct),
            Column(name="power_w", heading="power a GPU", show=lambda value: f"{value:,.0f} W"),
            Column(name="energy_j", heading="energy a run", show=lambda value: f"{value / 1000:,.1f} kJ"),
        ],
        rows=[(row.name, *(getattr(row.gpu_use, name) for name in _GPU_USE)) for row in comparison.recipes],
        note="Means over training: share of time tensor cores worked in any precision, share of SMs busy, traffic of "
        "the most that memory can; energy of all GPUs.",
    )


def study_table(comparison: "Comparison") -> Table:
    """The two columns of the FP8 study, from our readings as Weights & Biases would have taken them."""
    whys = sorted({row.study_columns.missing for row in comparison.recipes if row.study_columns.missing})
    lacking = f" Not measured: {'; '.join(whys)}." if whys else ""
    return Table(
        title="As W&B has it",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="wandb_utilization_pct", heading="GPU Utilization (avg %)", show=show_pct),
            Column(name="wandb_memory_allocated_pct", heading="Memory Allocated (avg %)", show=show_pct),
            Column(name="wandb_points", heading="points"),
        ],
        rows=[(row.name, *_study(row)) for row in comparison.recipes],
        note="Single readings every 15 s from start to end, reserved memory left out; means over points, GPUs, runs. "
        f"For comparison with the study alone: they miss what lies between them.{lacking}",
    )


def raw_table(comparison: "Comparison") -> Table:
    """One row a recipe with every value; intervals in two columns."""
    intervals = ("step_time_ns", "tokens_per_s", "speed_vs_baseline_pct", "time_saved_pct")
    plain = (
        *("peak_memory_bytes", "memory_kind", "memory_total_bytes", "peak_memory_pct", "utilization_pct"),
        *("utilization_kind", "loss_first", "loss_last", "eval_loss", "eval_accuracy", "emulated", "conforms"),
    )
    rates = ("flops_per_s", "mfu_pct")
    figures = (
        *("step_time_p95_ns", "data_wait_pct", "training_ns", "wall_clock_ns"),
        *("tokens_per_s_wall_clock", "padded_pct"),
    )
    names = ["recipe", "wrap", "model", "runs", "timed_steps"]
    for name in (*intervals, *rates):
        names += [name, f"{name}_low", f"{name}_high"]
    names += [*figures, *plain, *_GPU_USE, *_STUDY, "confounders"]
    return Table(
        title="compare",
        columns=[Column(name=name, heading=name) for name in names],
        rows=[
            [
                row.recipe,
                row.wrap,
                row.model,
                row.runs,
                row.timed_steps,
                *(value for name in intervals for value in _three(getattr(row, name))),
                *(value for name in rates for value in _three(getattr(row.throughput, name))),
                *(getattr(row.throughput, name) for name in figures),
                *(getattr(row, name) for name in plain),
                *(getattr(row.gpu_use, name) for name in _GPU_USE),
                *_study(row),
                "; ".join(row.confounders),
            ]
            for row in comparison.recipes
        ],
    )


def wrapping_table(comparison: "Comparison") -> Table:
    """What wrapping alone does, recipe by recipe."""
    from ..analyzers.groups import group_name

    return Table(
        title="Wrapping alone",
        columns=[
            Column(name="recipe", heading="recipe", right=False),
            Column(name="wrap", heading="wrap", right=False),
            Column(name="against", heading="against", right=False),
            Column(name="speed_pct", heading="speed"),
        ],
        rows=[
            (
                group_name(row.recipe, row.model, None),
                row.wrap,
                row.against,
                with_interval(row.speed_pct, lambda value: show_pct(value, signed=True)),
            )
            for row in comparison.wrapping
        ],
        note="speed = T_against / T − 1. The recipes above are each held against the baseline in the same wrapping.",
    )


def tables(comparison: "Comparison") -> list[Table]:
    """What the terminal and the page show; nothing where no run counts."""
    if not comparison.recipes:
        return []
    wrapping = [wrapping_table(comparison)] if comparison.wrapping else []
    told = any(getattr(row.gpu_use, name) is not None for row in comparison.recipes for name in _GPU_USE)
    gpus = [gpu_table(comparison)] if told else []
    return [speed_table(comparison), *wrapping, throughput_table(comparison), cost_table(comparison), *gpus]


def with_interval(estimate: "Estimate | None", show: Any) -> str:
    """`32.5 [28.4, 40.9] ms`; each with its unit where the units differ."""
    if estimate is None:
        return NOT_MEASURED
    middle = str(show(estimate.median))
    if estimate.ci95 is None:
        return middle
    texts = [middle, *(str(show(end)) for end in estimate.ci95)]
    numbers, units = zip(*(text.partition(" ")[::2] for text in texts), strict=True)
    if len(set(units)) > 1:
        return f"{texts[0]} [{texts[1]}, {texts[2]}]"
    return f"{numbers[0]} [{numbers[1]}, {numbers[2]}] {units[0]}".rstrip()


def caveats(row: "RecipeResult") -> str:
    """What stands against quoting the row's numbers, in a word each; the findings say more."""
    words = {"emulated": row.emulated, "confounded": row.confounders, "not its recipe": row.conforms == "no"}
    return ", ".join(word for word, holds in words.items() if holds)


def _relative(row: "RecipeResult", estimate: "Estimate | None", baseline: str) -> str:
    if row.recipe == baseline:
        return "–"
    return with_interval(estimate, _signed)


def _signed(value: float | None) -> str:
    return show_pct(value, signed=True)


def _used(comparison: "Comparison") -> str:
    kinds = {row.utilization_kind for row in comparison.recipes}
    return "GPU" if "gpu" in kinds else "CPU"


def _cost_note(comparison: "Comparison") -> str:
    on_gpu = any(row.memory_kind == "cuda allocator" for row in comparison.recipes)
    if on_gpu:
        return (
            "Memory: largest peak of any rank's CUDA allocator, and its share of the GPU. GPU use: share of time in "
            "which some kernel was resident (NVML); it is not efficiency."
        )
    return (
        "No GPU: memory is the resident memory of all ranks, and its share of the machine's; use is that of all the "
        "machine's CPUs."
    )


def _means(comparison: "Comparison") -> str:
    if all(row.runs == 1 for row in comparison.recipes):
        return ""
    return " In steps, wall clock, tokens/s of it and padding: the mean of a recipe's runs."


def _study(row: "RecipeResult") -> tuple[Cell, Cell, Cell]:
    found = row.study_columns
    return found.utilization_pct, found.memory_allocated_pct, found.points


def _three(estimate: "Estimate | None") -> tuple[Cell, Cell, Cell]:
    if estimate is None:
        return None, None, None
    low, high = estimate.ci95 or (None, None)
    return estimate.median, low, high
