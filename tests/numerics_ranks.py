"""Run by torchrun from test_numerics.py: a sharded float8 layer a case; writes its statistics and its whole weight."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from stepscope.profiling.numerics import Numerics
from stepscope.record.recipes import recipe
from stepscope.trainer.hardware import Hardware
from stepscope.trainer.precision import apply_recipe, precompute_scales
from stepscope.trainer.quiet import silence_known_noise
from stepscope.trainer.sharding import unwrapped

ROWS, COLUMNS = 48, 32


def sharded(name: str) -> Any:
    """A model of one linear layer with an outlier in its last row, which the last rank holds.

    The norm gives its unit a second dtype, as in a transformer: float8 alone is a type that gloo does not gather.
    """
    torch.manual_seed(5)
    linear = nn.Linear(COLUMNS, ROWS, bias=False, dtype=torch.bfloat16)
    model = nn.Sequential(linear, nn.RMSNorm(ROWS, dtype=torch.bfloat16))
    with torch.no_grad():
        model[0].weight[-1, -1] = 30.0
    apply_recipe(model, recipe(name), Hardware(gpus=0, capability=None, cores=2), keep=[])
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    return model


def step(model: Any, numerics: Numerics, number: int) -> bool:
    taken = numerics.before(number)
    torch.manual_seed(dist.get_rank())
    model(torch.randn(16, COLUMNS, dtype=torch.bfloat16)).square().sum().backward()
    numerics.after(number)
    return taken


def main(out: Path) -> None:
    rank = dist.get_rank()
    cases = {"float8": "mxtw", "float8 precomputed": "mxtw", "bf16": "tensorwise", "axiswise": "rowwise"}
    for case, name in cases.items():
        model = sharded(name)
        if case.endswith("precomputed"):
            precompute_scales(model)
        numerics = Numerics(model, out / f"{case}.jsonl", every=1, rank=rank)
        whole = unwrapped(model[0].weight).full_tensor()
        assert step(model, numerics, 1) == (rank == 0 or name == "mxtw")
        if rank == 0:
            (out / f"{case}.weight.json").write_text(json.dumps(whole.double().tolist()))
    model = sharded("mxtw")
    numerics = Numerics(model, out / "failing.jsonl", every=1, rank=rank)
    if rank == dist.get_world_size() - 1:
        numerics._sharded._count = None  # type: ignore[assignment]  # fails here, on this rank alone
    step(model, numerics, 1)
    assert not numerics._sharded.works
    step(model, numerics, 2)
    (out / f"given up {rank}: nothing more, no hang").touch()


if __name__ == "__main__":
    silence_known_noise()
    dist.init_process_group("gloo")
    main(Path(sys.argv[1]))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)
