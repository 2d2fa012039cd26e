"""From settings to a job that can train: tokenizer, data, model, precision, sharding, optimizer, in that order."""

from typing import Any, NamedTuple

import torch

from .batches import HeldOutRows, Layout, TrainingRows, load_dataset
from .config import Config
from .hardware import Hardware
from .loop import Job
from .models import DTYPES, build_model, checkpoint_activations, model_facts
from .place import Place
from .precision import Precision, apply_recipe, kept_patterns, precompute_scales
from .resolve import SHIPPED_DATA, resolved_recipe, with_steps
from .sharding import compile_layers, shard
from .tokens import tokenizer_for


class Built(NamedTuple):
    """A job, its settings without anything left open, and what the manifest says about it."""

    job: Job
    tokenizer: Any
    model_facts: dict[str, Any]
    data_facts: dict[str, Any]
    precision: Precision


def build(config: Config, here: Place, hardware: Hardware) -> Built:
    """Build everything for this rank. UserError where model or data are not as they must be."""
    name, seq_len = config.model or "tiny", config.seq_len or 256
    recipe = resolved_recipe(config)
    tokenizer = tokenizer_for(name)
    data = load_dataset(
        config.data or SHIPPED_DATA,
        tokenizer,
        seq_len=seq_len,
        held_out=config.eval_samples,
        pack=config.pack,
        split=config.data_split,
        columns=config.data_columns,
    )
    layout = Layout(
        rank=here.rank,
        world=here.world,
        micro_batch=config.micro_batch,
        accumulation=config.accumulation,
        seq_len=seq_len,
        pad=tokenizer.pad_token_id,
        pack=config.pack,
        device=here.device,
    )
    config = with_steps(config, rows=len(data.training), rows_per_step=layout.rows_per_step)
    data.facts["epochs"] = round((config.steps or 0) * layout.rows_per_step / len(data.training), 4)
    model: Any = build_model(name, seed=config.seed, device=here.device, dtype=DTYPES[config.master_dtype])
    facts = model_facts(model, name)
    precision = apply_recipe(model, recipe, hardware, keep=kept_patterns(config.fp8_filter))
    if config.activation_checkpointing:
        checkpoint_activations(model)
    if config.compile:
        compile_layers(model)
    shard(
        model,
        wrap=config.wrap,
        reduce_dtype=DTYPES[config.reduce_dtype],
        reshard_after_forward=config.reshard_after_forward,
        device=here.device,
        world=here.world,
    )
    if recipe.precompute_scales:
        precompute_scales(model)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=config.lr or 0.0,
        betas=config.betas,
        eps=config.eps,
        weight_decay=config.weight_decay,
        fused=True,
    )
    job = Job(
        config=config,
        recipe=recipe,
        rank=here.rank,
        world=here.world,
        device=here.device,
        model=model,
        optimizer=optimizer,
        rows=TrainingRows(data.training, layout, config.seed),
        held_out=HeldOutRows(data.held_out, layout),
    )
    return Built(job, tokenizer, facts, data.facts, precision)
