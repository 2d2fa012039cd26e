"""`stepscope compare`: recipe against recipe, in one table."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ..record.errors import ConfigError, UserError
from ..record.units import NOT_MEASURED, show_bytes, show_count, show_loss, show_ns, show_pct
from .compare_csv import GPU_USE, raw_table, study
from .learning_tables import gate_table, learning_tables, price_table
from .tables import Column, Table, csv_text, json_text, print_table, print_text, terminal

if TYPE_CHECKING:
    from ..analyzers.medians import Estimate
    from ..analyzers.results import Comparison, RecipeResult

Form = Literal["table", "csv", "json", "markdown"]


def compare(
    runs: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    baseline: str = "bf16",
    wandb_compatible: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    fail_if: Annotated[list[str] | None, Parameter(negative="", show_default=False)] = None,
    within_noise: Literal["inconclusive", "pass", "fail"] = "inconclusive",
    junit: Annotated[Path | None, Parameter(show_default=False)] = None,
    force: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    format: Form = "table",
) -> int:
    """Compare runs, recipe against recipe: speed, memory, utilisation, loss, and what else differs between them.

    Exit code 3: a gate failed; 4: one is inconclusive.

    Example: `stepscope compare traces/sample`

    Parameters
    ----------
    runs
        Run folders, or folders of runs.
    baseline
        The recipe that the others are held against.
    wandb_compatible
        Show GPU utilization and memory allocated as the FP8 study has them too: points every 15 s, as W&B reads them.
    fail_if
        A gate such as "step_time > +3%", for each recipe; may be repeated. Of: step_time, tokens_per_s, wall_clock,
        energy_per_token, peak_memory, loss_gap, eval_loss (changes in %), loss_spikes, diverged (numbers).
    within_noise
        What a gate is whose limit lies within the 95 % interval. What is not measured is always inconclusive.
    junit
        A file to write the gates to, for CI systems.
    force
        Overwrite that file if it exists.
    format
        table; csv: one row a recipe, raw values; json: all, as stepscope.compare/1; markdown: for a pull request.
    """
    from msgspec.structs import replace

    from ..analyzers.cautions import LEFT_OUT
    from ..analyzers.compare import compare as compared
    from ..analyzers.gates import exit_code, judge, parse_gate, reasons
    from ..analyzers.runs import read_runs
    from ..record.recipes import recipe
    from .compare_markdown import markdown
    from .junit import write_junit

    gates = [parse_gate(text) for text in fail_if or []]
    if junit and not gates:
        raise ConfigError("--junit: there is no gate to write; add a --fail-if")
    if junit and junit.exists() and not force:
        raise UserError(f"{junit}: exists; add --force to overwrite it, or name another with --junit")
    comparison = compared(*read_runs(runs), baseline=recipe(baseline).name)
    if not comparison.recipes:
        why = " ".join(finding.text for finding in comparison.findings if finding.code in LEFT_OUT)
        raise UserError(f"{', '.join(map(str, runs))}: no run can be compared. {why}")
    judged = judge(gates, comparison, within_noise)
    comparison = replace(comparison, gates=judged)
    if junit:
        write_junit(junit, judged)
    if format == "json":
        sys.stdout.write(json_text(comparison))
    elif format == "csv":
        sys.stdout.write(csv_text(raw_table(comparison)))
    elif format == "markdown":
        sys.stdout.write(markdown(comparison, [speed_table(comparison), cost_table(comparison)]))
    else:
        _print(comparison, wandb_compatible=wandb_compatible)
    for reason in reasons(judged):
        sys.stderr.write(f"stepscope: {reason}\n")
    return exit_code(judged)


def _print(comparison: "Comparison", *, wandb_compatible: bool) -> None:
    console = terminal()
    study = [study_table(comparison)] if wandb_compatible else []
    for table in [*tables(comparison), *study]:
        print_table(table, console)
    for verdict in comparison.verdicts:
        print_text(f"{verdict.recipe}: {verdict.text}", console)
        if verdict.distrust:
            print_text(f"  Distrust: {'; '.join(verdict.distrust)}.", console)
        if verdict.next:
            print_text(f"  Next: {'; '.join(verdict.next)}.", console)
        console.print()
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
        rows=[(row.name, *(getattr(row.gpu_use, name) for name in GPU_USE)) for row in comparison.recipes],
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
        rows=[(row.name, *study(row)) for row in comparison.recipes],
        note="Single readings every 15 s from start to end, reserved memory left out; means over points, GPUs, runs. "
        f"For comparison with the study alone: they miss what lies between them.{lacking}",
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
    told = any(getattr(row.gpu_use, name) is not None for row in comparison.recipes for name in GPU_USE)
    gpus = [gpu_table(comparison)] if told else []
    gates = [gate_table(comparison)] if comparison.gates else []
    cost = [cost_table(comparison), *gpus, price_table(comparison)]
    return [
        speed_table(comparison),
        *wrapping,
        throughput_table(comparison),
        *cost,
        *learning_tables(comparison),
        *gates,
    ]


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
    words = {
        "emulated": row.emulated,
        "confounded": row.confounders,
        "not its recipe": row.conforms == "no",
        "within noise": row.speed_resolved is False and not row.emulated,
    }
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
