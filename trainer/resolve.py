"""From the settings asked for to the settings that run: defaults filled in, contradictions refused with the reason."""

import math
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ..profiling.schedule import MOST_PROFILED, recording_ranks
from ..record.errors import ConfigError
from ..record.manifest import homeless
from ..record.recipes import Cast, Recipe, recipe
from ..record.run import check_name
from ..record.telemetry import LONGEST_PERIOD, check_period
from .config import Config
from .hardware import Hardware
from .ranks import is_worker
from .recording import with_window
from .shapes import SHAPES

SHIPPED_DATA = Path(__file__).with_name("turkish_qa.jsonl")
SHIPPED = "shipped"
"""What manifests say of `--data` where it is the shipped set, wherever that is installed."""
DEFAULT_STEPS = 20

WRAPS = ("whole", "layer")

_AT_LEAST = {
    "steps": 1,
    "seq_len": 2,
    "micro_batch": 1,
    "accumulation": 1,
    "warmup_steps": 0,
    "nproc": 1,
    "eval_every": 0,
    "eval_samples": 0,
    "checkpoint_every": 0,
    "checkpoint_keep": 1,
    "repeats": 1,
    "profile_wait": 0,
    "profile_warmup": 0,
    "profile_active": 1,
    "profile_repeat": 1,
    "numerics": 0,
    "memory_detail": 0,
    "telemetry_period": 0,
    "log_every": 1,
    "weight_decay": 0,
    "seed": 0,
}
_AT_MOST = {"seed": 2**40, "telemetry_period": LONGEST_PERIOD}
_MOST = 10**9
"""Of every other number: what is more is a slip, and overflows somewhere."""
_ANY_SIZE = ("lr", "eps", "clip", "weight_decay")

_MORE_THAN_0 = ("epochs", "lr", "eps", "clip", "profile_limit")


def resolved(config: Config, hardware: Hardware, environment: Mapping[str, str]) -> Config:
    """The settings with every default filled in. ConfigError names the flag that cannot be, and says why.

    With --epochs the steps, and what depends on them, stay open until `with_steps` is told of the data.
    """
    _check_numbers(config)
    _check_warmup(config)
    if config.steps is not None and config.epochs is not None:
        raise ConfigError("--steps and --epochs both set the length of the run; give one of them")
    gpus = hardware.gpus > 0
    captures = config.captures
    model = config.model or ("llama-1b" if gpus else "tiny")
    config = replace(
        config,
        recipe=resolved_recipe(config).name,
        model=model,
        data=config.data or SHIPPED_DATA,
        seq_len=config.seq_len or (2048 if gpus else 256),
        lr=config.lr or (1e-3 if model in SHAPES else 2e-5),
        nproc=_processes(config, hardware, environment),
        capture=",".join(captures) or "none",
        profile="torch" in captures,
    )
    if config.module_ranges and config.compile:
        raise ConfigError("--module-ranges: hooks break the graphs of --compile and change what is measured; drop one")
    if config.numerics and config.compile:
        raise ConfigError(
            "--numerics looks at a layer's operands as Python runs it, and --compile leaves nothing there to look at; "
            "train once without --compile for the statistics"
        )
    if config.memory_detail and config.compile and not gpus:
        raise ConfigError(
            "--memory-detail counts tensors on a CPU as operators make them, and --compile leaves none to see; drop one"
        )
    if config.wrap not in WRAPS:
        raise ConfigError(f"--wrap: {' or '.join(WRAPS)}, not {config.wrap}")
    check_recipe(resolved_recipe(config), tokens=(config.seq_len or 0) * config.micro_batch)
    _check_places(config)
    if config.profile:
        recording_ranks(config.profile_ranks, world=config.nproc or 1, local_world=1)
    return config if config.epochs is not None else _scheduled(config, config.steps or DEFAULT_STEPS)


def with_steps(config: Config, *, rows: int, rows_per_step: int) -> Config:
    """Resolved settings with --epochs turned into steps, the last of them filled up from the next pass.

    `rows` are those of training, `rows_per_step` those of one step over all ranks. ConfigError where so many steps
    contradict another setting.
    """
    if config.epochs is None:
        return config
    steps = math.ceil(round(config.epochs * rows / rows_per_step, 6))
    return _scheduled(replace(config, epochs=None), max(1, steps))


def _scheduled(config: Config, steps: int) -> Config:
    """Settle what depends on the number of steps: the warm-up and the profiler's window."""
    if config.warmup_steps is not None and config.warmup_steps > steps:
        if config.resume:
            raise ConfigError(
                f"--steps: {config.resume} has {config.warmup_steps} steps of warm-up, more than the {steps} it is to "
                "have in all; give more, or start a new run"
            )
        raise ConfigError(f"--warmup-steps: {config.warmup_steps} is more than the {steps} steps of the run")
    if config.memory_detail > steps:
        raise ConfigError(f"--memory-detail: step {config.memory_detail} lies beyond the run's {steps} steps")
    ratio = 0.1 if config.warmup_ratio is None else config.warmup_ratio
    warmup = round(ratio * steps) if config.warmup_steps is None else config.warmup_steps
    return with_window(replace(config, steps=steps, warmup_steps=warmup, warmup_ratio=None), steps)


def shown_settings(config: Config) -> dict[str, Any]:
    """Resolved settings as they run, as plain JSON values: what the recipe and the ranks decide is put in."""
    row = resolved_recipe(config)
    shown = config.everything()
    if row.is_float8 and not row.is_microscaled:
        shown |= {"fp8_all_gather": row.all_gather == "float8", "pad_inner_dim": row.pad_inner_dim}
    if config.profile and config.profile_ranks is None:
        shown["profile_ranks"] = "all" if (config.nproc or 1) <= MOST_PROFILED else "first"
    return shown


def plain_settings(config: Config) -> dict[str, Any]:
    """The settings for a manifest: the home directory written as `~`, the shipped data set as what it is."""
    shown: dict[str, Any] = homeless(config.settings())
    return shown | {"data": SHIPPED} if config.data == SHIPPED_DATA else shown


def resolved_recipe(config: Config) -> Recipe:
    """The recipe's row with the flags that override it put in."""
    try:
        row = recipe(config.recipe)
    except ConfigError as error:
        raise ConfigError(f"--recipe: {error}") from None
    for flag, value in (("fp8-all-gather", config.fp8_all_gather), ("pad-inner-dim", config.pad_inner_dim)):
        if value and (not row.is_float8 or row.is_microscaled):
            what = "scales blocks, which takes no such setting" if row.is_float8 else "computes nothing in FP8"
            raise ConfigError(f"--{flag}: recipe {row.name} {what}; choose another --recipe or drop it")
    if config.fp8_all_gather is not None:
        gather = "float8" if config.fp8_all_gather else "bf16"
        row = msgspec.structs.replace(row, all_gather=gather, precompute_scales=config.fp8_all_gather)
    if config.pad_inner_dim is not None:
        row = msgspec.structs.replace(row, pad_inner_dim=config.pad_inner_dim)
    return row


def check_recipe(row: Recipe, *, tokens: int) -> None:
    """ConfigError where the recipe contradicts itself, or its GEMMs cannot take a micro-batch of `tokens` positions."""
    if not row.is_float8:
        return
    _check_operands(row)
    if row.all_gather == "float8" and row.weight.granularity != "tensorwise":
        raise ConfigError(
            f"--fp8-all-gather: recipe {row.name} scales weights per row, and a float8 all-gather has one scale per "
            "tensor; drop the flag or choose tensorwise or mxtw"
        )
    if row.all_gather == "float8" and row.power_of_2_scales:
        raise ConfigError(
            "--fp8-all-gather: it does not round scales to powers of two, as this recipe asks; drop the flag"
        )
    multiple = 32 if row.is_microscaled else 16
    if row.grad_output_for_grad_weight.granularity and tokens % multiple and not row.pad_inner_dim:
        padding = "" if row.is_microscaled else ", or add --pad-inner-dim"
        raise ConfigError(
            f"--seq-len × --micro-batch is {tokens} positions, the inner dimension of grad_weight's GEMM, and recipe "
            f"{row.name} needs a multiple of {multiple}: change either{padding}"
        )


def _check_operands(row: Recipe) -> None:
    gemms: tuple[tuple[str, Cast, Cast], ...] = (
        ("output", row.input, row.weight),
        ("grad_input", row.grad_output, row.weight_for_grad_input),
        ("grad_weight", row.grad_output_for_grad_weight, row.input_for_grad_weight),
    )
    for gemm, left, right in gemms:
        if (left.granularity is None) != (right.granularity is None):
            raise ConfigError(
                f"--recipe {row.name}: of the operands of {gemm}'s GEMM one is FP8 and one is not; cast both or neither"
            )
    twice = (
        ("input", row.input, row.input_for_grad_weight),
        ("weight", row.weight, row.weight_for_grad_input),
        ("grad_output", row.grad_output, row.grad_output_for_grad_weight),
    )
    for operand, first, second in twice:
        if first.granularity and second.granularity and first.dtype != second.dtype:
            raise ConfigError(
                f"--recipe {row.name}: {operand} is cast to {first.dtype} in one GEMM and {second.dtype} in the other; "
                "use one dtype"
            )


def _check_numbers(config: Config) -> None:
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and not (math.isfinite(value) and value >= least):
            raise ConfigError(f"{_flag(name)}: must be {least} or more, not {value}")
    for name in _MORE_THAN_0:
        value = getattr(config, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise ConfigError(f"{_flag(name)}: must be more than 0, not {value}")
    for name in (*_AT_LEAST, *_MORE_THAN_0):
        value, most = getattr(config, name), _AT_MOST.get(name, _MOST)
        if name not in _ANY_SIZE and value is not None and value > most:
            raise ConfigError(f"{_flag(name)}: must be {most:g} or less, not {value}")
    if config.telemetry_period:
        check_period(config.telemetry_period, "; or 0 for no telemetry")
    if not all(0 <= beta < 1 for beta in config.betas):
        raise ConfigError(f"--betas: each must be at least 0 and less than 1, not {config.betas[0]} {config.betas[1]}")


def _check_warmup(config: Config) -> None:
    if config.warmup_steps is not None and config.warmup_ratio is not None:
        raise ConfigError("--warmup-steps and --warmup-ratio both set the warm-up; give one of them")
    if config.warmup_ratio is not None and not 0 <= config.warmup_ratio <= 1:
        raise ConfigError(f"--warmup-ratio: a share of the steps, 0 to 1, not {config.warmup_ratio}")


def _processes(config: Config, hardware: Hardware, environment: Mapping[str, str]) -> int:
    if is_worker(environment):
        world = int(environment["WORLD_SIZE"])
        if config.nproc not in (None, world):
            raise ConfigError(f"--nproc: {config.nproc}, but the launcher started {world} processes; leave it out")
        return world
    processes = config.nproc or hardware.gpus or 2
    if hardware.gpus and processes > hardware.gpus:
        raise ConfigError(f"--nproc: {processes} processes need as many GPUs, and {hardware.gpus} are visible")
    return processes


def _check_places(config: Config) -> None:
    from .examples import data_source
    from .forms import reading

    data_source(config.data or SHIPPED_DATA, config.data_split)
    reading(config.data_columns)
    found = find_spec("wandb") if config.wandb else None
    if config.wandb and (found is None or found.origin is None):  # a mere folder of that name has no origin
        raise ConfigError("--wandb: needs the package wandb; install it with: pip install 'stepscope[wandb]'")
    if config.model and config.model.startswith(("/", ".")) and not Path(config.model).is_dir():
        raise ConfigError(f"--model: there is no folder {config.model}")
    if config.run_name is not None:
        check_name(config.run_name)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
