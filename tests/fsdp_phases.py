"""One rank over gloo: which NVTX ranges FSDP2 opens in a training step, with `fsdp_phases` and without."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from stepscope.profiling import ranges


def names(opened: list[str], model: nn.Module) -> list[str]:
    opened.clear()
    model(torch.ones(1, 4)).sum().backward()
    return list(opened)


def main() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    opened: list[str] = []
    annotate = ranges.nvtx.annotate

    def noting(name: str) -> object:
        opened.append(name)
        return annotate(name)

    ranges.nvtx.annotate = noting
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    fully_shard(model[0], mesh=dist.init_device_mesh("cpu", (1,)))
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (1,)))
    before = names(opened, model)
    with ranges.fsdp_phases():
        during = names(opened, model)
    sys.stdout.write(json.dumps({"before": before, "during": during, "after": names(opened, model)}))


main()
