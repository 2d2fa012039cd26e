"""What a training run is asked to do: every setting with its meaning, its default and its unit.

The attribute docstrings are the text of `profile-train --help`. `None` is a default that depends on the hardware or
on another setting; `resolve.resolved` fills it in and refuses settings that contradict each other.
"""

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from ..record.errors import ConfigError

_RECIPE = Group("Precision", sort_key=1)
_DATA = Group("Model and data", sort_key=2)
_OPTIMIZER = Group("Steps and optimizer (AdamW, cosine)", sort_key=3)
_SHARDING = Group("Sharding", sort_key=4)
_EVALUATION = Group("Evaluation", sort_key=5)
_CHECKPOINTS = Group("Checkpoints", sort_key=6)
_CAPTURE = Group("Capture", sort_key=7)
RUN_GROUP = Group("Run", sort_key=8)

NOT_SETTINGS = ("recipe", "repeats", "resume", "config", "preset", "out", "run_name", "log_every", "hints", "nproc")
"""Fields that name or place a run, or are recorded elsewhere in the manifest."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config:
    """The settings of one run."""

    recipe: Annotated[str, Parameter(group=_RECIPE)] = "bf16"
    """bf16, tensorwise, rowwise, rowwise_with_gw_hp, mxtw or mxfp8 (see stepscope recipes); several: bf16,mxtw."""
    fp8_all_gather: Annotated[bool | None, Parameter(group=_RECIPE, negative="--bf16-all-gather")] = None
    """Gather FP8 weights in float8 rather than bf16. [default: the recipe's]"""
    pad_inner_dim: Annotated[bool | None, Parameter(group=_RECIPE)] = None
    """Zero-pad the inner GEMM dimension to a multiple of 16. [default: the recipe's]"""

    fp8_filter: Annotated[str, Parameter(group=_RECIPE)] = "lm_head"
    """Linear layers to leave in bf16: names or patterns like *.k_proj, separated by commas; none: convert all."""
    master_dtype: Annotated[Literal["bf16", "fp32"], Parameter(group=_RECIPE)] = "bf16"
    """Dtype of the weights that the optimizer updates, and of its state; computation is in bf16 or FP8 either way."""
    reduce_dtype: Annotated[Literal["bf16", "fp32"], Parameter(group=_RECIPE)] = "bf16"
    """Dtype in which gradients are summed over ranks."""

    model: Annotated[str | None, Parameter(group=_DATA)] = None
    """Random weights: pico, tiny, llama-1b, -3b, -8b. Or a folder, or a hub id. [default: tiny; llama-1b on GPUs]"""
    data: Annotated[Path | None, Parameter(group=_DATA)] = None
    """File or folder of JSONL or Parquet, or owner/name on the hub. [default: the Turkish set shipped with this]"""
    data_split: Annotated[str | None, Parameter(group=_DATA)] = None
    """Split of a data set on the hub. [default: train]"""
    data_columns: Annotated[str | None, Parameter(group=_DATA)] = None
    """What the data calls its columns, as in question=soru,answer=cevap, where no known name fits."""
    seq_len: Annotated[int | None, Parameter(group=_DATA)] = None
    """Positions per row. [default: 256; 2048 on GPUs]"""
    pack: Annotated[bool, Parameter(group=_DATA, negative="", show_default=False)] = False
    """Several examples to a row, each attending to itself only, instead of one padded example to a row."""

    steps: Annotated[int | None, Parameter(group=_OPTIMIZER)] = None
    """Optimizer steps. [default: 20]"""
    epochs: Annotated[float | None, Parameter(group=_OPTIMIZER)] = None
    """Passes over the training rows, a part of one too; excludes --steps."""
    micro_batch: Annotated[int, Parameter(group=_OPTIMIZER)] = 2
    """Rows per rank and forward pass."""
    accumulation: Annotated[int, Parameter(group=_OPTIMIZER)] = 1
    """Forward and backward passes per optimizer step."""
    lr: Annotated[float | None, Parameter(group=_OPTIMIZER)] = None
    """Peak learning rate. [default: 2e-5; 1e-3 for random weights]"""
    warmup_steps: Annotated[int | None, Parameter(group=_OPTIMIZER)] = None
    """Steps of linear warm-up; excludes --warmup-ratio."""
    warmup_ratio: Annotated[float | None, Parameter(group=_OPTIMIZER)] = None
    """Warm-up as a share of the steps, 0 to 1. [default: 0.1]"""
    betas: Annotated[tuple[float, float], Parameter(group=_OPTIMIZER, negative="")] = (0.9, 0.95)
    """AdamW's averaging factors."""
    eps: Annotated[float, Parameter(group=_OPTIMIZER)] = 1e-8
    """AdamW's epsilon."""
    weight_decay: Annotated[float, Parameter(group=_OPTIMIZER)] = 0.01
    """Decoupled weight decay."""
    clip: Annotated[float, Parameter(group=_OPTIMIZER)] = 1.0
    """Gradient norm above which gradients are scaled down."""
    seed: Annotated[int, Parameter(group=_OPTIMIZER)] = 100
    """Seed of weights and data order."""

    nproc: Annotated[int | None, Parameter(group=_SHARDING)] = None
    """Worker processes to launch; not under torchrun. [default: one per GPU; 2 without]"""
    wrap: Annotated[str, Parameter(group=_SHARDING)] = "layer"
    """FSDP2 units: whole (one for the model), layer (embedding, each layer, head, and the root), or whole,layer."""
    reshard_after_forward: Annotated[bool, Parameter(group=_SHARDING, show_default=False)] = True
    """Free gathered weights after each forward pass and gather them again for backward (less memory, more traffic)."""
    activation_checkpointing: Annotated[bool, Parameter(group=_SHARDING, negative="", show_default=False)] = False
    """Recompute each layer's activations in the backward pass."""
    compile: Annotated[bool, Parameter(group=_SHARDING, negative="", show_default=False)] = False
    """torch.compile each layer."""

    eval_every: Annotated[int, Parameter(group=_EVALUATION)] = 0
    """Steps between evaluations; 0: once, after the last step."""
    eval_samples: Annotated[int, Parameter(group=_EVALUATION)] = 32
    """Examples held out of training for evaluation; 0: no evaluation."""

    checkpoint_every: Annotated[int, Parameter(group=_CHECKPOINTS)] = 0
    """Steps between checkpoints, written beside training; 0: none. With some, a stop by signal writes one too."""
    checkpoint_keep: Annotated[int, Parameter(group=_CHECKPOINTS)] = 2
    """Newest checkpoints to keep; the best by eval loss is kept besides."""

    resume: Annotated[Path | None, Parameter(group=_CHECKPOINTS)] = None
    """Folder of a run to go on with from its newest checkpoint, or of a sweep to finish, with its settings."""

    capture: Annotated[str | None, Parameter(group=_CAPTURE)] = None
    """torch, nsys (in a pass of its own after the run), torch,nsys or none. [default: torch]"""
    profile: Annotated[bool, Parameter(group=_CAPTURE, negative="--no-profile", show_default=False)] = True
    """Record a torch.profiler window on every rank; profiled steps are left out of throughput."""
    profile_at: Annotated[str | None, Parameter(group=_CAPTURE)] = None
    """Steps to record, like 10:15,100:105; in place of --profile-wait, -active and -repeat."""
    profile_wait: Annotated[int | None, Parameter(group=_CAPTURE)] = None
    """Steps before the window. [default: 5, fewer in a short run]"""
    profile_warmup: Annotated[int, Parameter(group=_CAPTURE)] = 1
    """Steps with the profiler on, not recorded."""
    profile_active: Annotated[int | None, Parameter(group=_CAPTURE)] = None
    """Steps recorded. [default: 3, fewer in a short run]"""
    profile_repeat: Annotated[int, Parameter(group=_CAPTURE)] = 1
    """Windows, one after the other."""
    profile_ranks: Annotated[str | None, Parameter(group=_CAPTURE)] = None
    """Ranks to record: all, first (one a machine), or numbers. [default: all of up to 8; first of more]"""
    profile_shapes: Annotated[bool, Parameter(group=_CAPTURE, show_default=False)] = True
    """Record the shapes of operators' inputs."""
    profile_memory: Annotated[bool, Parameter(group=_CAPTURE, show_default=False)] = True
    """Record allocations."""
    profile_stacks: Annotated[bool, Parameter(group=_CAPTURE, negative="", show_default=False)] = False
    """Record Python stacks; doubles a trace and its price."""
    profile_limit: Annotated[float, Parameter(group=_CAPTURE)] = 2.0
    """GiB of traces a rank; a window that would go beyond is cut before it begins."""
    module_ranges: Annotated[bool, Parameter(group=_CAPTURE, negative="", show_default=False)] = False
    """Name a range after each module in traces; it costs time in every step, and excludes --compile."""
    nsys_graph_nodes: Annotated[bool, Parameter(group=_CAPTURE, negative="", show_default=False)] = False
    """Let nsys record each kernel of a CUDA graph rather than the graph; costs more."""
    nsys_operators: Annotated[bool, Parameter(group=_CAPTURE, negative="", show_default=False)] = False
    """Let nsys see PyTorch's operators, with the numbers that link backward to forward; slows the host in that pass."""
    nsys_memory: Annotated[bool, Parameter(group=_CAPTURE, negative="", show_default=False)] = False
    """Let nsys record device memory taken and given back; costs more."""
    numerics: Annotated[int, Parameter(group=_CAPTURE)] = 0
    """Steps between FP8 statistics of every layer; such steps are left out of throughput. 0: none."""
    memory_detail: Annotated[int, Parameter(group=_CAPTURE)] = 0
    """Step whose memory is accounted for by what it is, and which is left out of throughput. 0: none."""
    telemetry_period: Annotated[float, Parameter(group=_CAPTURE)] = 1.0
    """Seconds between telemetry samples; 0: no telemetry."""
    wandb: Annotated[bool, Parameter(group=_CAPTURE, negative="", show_default=False)] = False
    """Write the scalars as a run of Weights & Biases too, offline, in the run's folder."""

    repeats: Annotated[int, Parameter(group=RUN_GROUP)] = 1
    """Runs of each recipe and wrapping. Several runs make a sweep: they take turns, each in a folder of its own."""
    config: Annotated[Path | None, Parameter(group=RUN_GROUP)] = None
    """TOML file of settings, named as these flags are; a flag wins."""
    preset: Annotated[str | None, Parameter(group=RUN_GROUP)] = None
    """Settings by name: study-1node, study-multinode-bs32, study-multinode-bs64; a flag or --config wins."""
    out: Annotated[Path, Parameter(group=RUN_GROUP)] = Path("traces")
    """Folder that receives the run's folder."""
    run_name: Annotated[str | None, Parameter(group=RUN_GROUP)] = None
    """Name of the run's folder; a number is added where it is taken. [default: recipe and UTC time]"""
    log_every: Annotated[int, Parameter(group=RUN_GROUP)] = 5
    """Steps between progress lines where stderr is no terminal."""
    hints: Annotated[bool, Parameter(group=RUN_GROUP, negative="--no-hints", show_default=False)] = True
    """Name the commands to type next when the run has ended."""
    save_model: Annotated[bool, Parameter(group=RUN_GROUP, negative="", show_default=False)] = False
    """Save the trained model as bf16 safetensors in the run's folder, for transformers to load."""

    @property
    def recipes(self) -> list[str]:
        """The recipes that `--recipe` names. ConfigError for a name that is empty or given twice."""
        return _listed("recipe", self.recipe)

    @property
    def wraps(self) -> list[str]:
        """The wrappings that `--wrap` names. ConfigError as for recipes."""
        return _listed("wrap", self.wrap)

    @property
    def captures(self) -> list[str]:
        """The profilers that `--capture` names. ConfigError for any other word."""
        if self.capture is None:
            return ["torch"] if self.profile else []
        words = [word.strip() for word in self.capture.split(",")]
        if words == ["none"]:
            return []
        if not set(words) <= {"torch", "nsys"} or len(set(words)) < len(words):
            raise ConfigError(f"--capture: torch, nsys, torch,nsys or none, not {self.capture!r}")
        if "torch" in words and not self.profile:
            raise ConfigError("--no-profile leaves torch out of --capture; drop one of them")
        return words

    def everything(self) -> dict[str, Any]:
        """All fields as plain JSON values."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def settings(self) -> dict[str, Any]:
        """The training settings as plain JSON values: what the manifest stores and what runs are compared by."""
        return {name: value for name, value in self.everything().items() if name not in NOT_SETTINGS}

    def flags(self) -> list[str]:
        """The command line that asks for these settings: one flag for each field that is not at its default."""
        words: list[str] = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            flag = "--" + field.name.replace("_", "-")
            if isinstance(value, bool):
                words.append(flag if value else _NEGATIVES.get(field.name, "--no-" + flag.removeprefix("--")))
            elif isinstance(value, tuple):
                words += [flag, *map(str, value)]
            else:  # a value that begins with - is a flag's own only where it is joined to it
                words += [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]
        return words


def is_sweep(config: Config) -> bool:
    """Whether the settings ask for more than one run."""
    return len(config.recipes) * len(config.wraps) * config.repeats > 1


def _listed(flag: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words) or len(set(words)) < len(words):
        raise ConfigError(f"--{flag}: names separated by commas, each once, not {text!r}; --repeats repeats them")
    return words


_NEGATIVES = {"fp8_all_gather": "--bf16-all-gather"}
"""Flags whose opposite is not named `--no-…`."""


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
