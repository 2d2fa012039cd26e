"""Weights that FSDP2 gathers in FP8: no rank ever sees the whole of one in high precision, so ranks count together.

Each counts its own shard: sums are added over ranks, of extremes the largest counts, and amax is agreed on before, for
it sets the scale. All ranks call `counted` for the same steps, also one on which counting fails: it says so in what is
reduced, and all give up together. No rank ever waits for one that has given up.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from .float8_casts import float8_layers
from .guard import Part
from .tally import Counted, Rounded, Tally, amax_of, tally


class ShardedWeights:
    """The weights of a model that are gathered in FP8, on this rank."""

    def __init__(self, model: nn.Module, part: Part) -> None:
        """To be created while weights are sharded, as they are before the first forward pass."""
        found = {name: module.weight for name, module, _ in float8_layers(model) if _is_gathered_in_fp8(module.weight)}
        self.names = list(found)
        self._weights: list[Any] = list(found.values())
        self._dtype = str(self._weights[0]._local_tensor._dtype).removeprefix("torch.") if found else ""
        self._part = part
        self._ended = False

    @property
    def works(self) -> bool:
        """Whether there are such weights and no rank has failed; the same on every rank."""
        return bool(self._weights) and not self._ended

    def counted(self) -> dict[str, Counted]:
        """Each whole weight by its layer's name, the same on all ranks; nothing from the first failure on any rank."""
        if not self.works:
            return {}
        device = self._weights[0].device
        amaxes = torch.zeros(len(self._weights), dtype=torch.float64, device=device)
        with self._part.guarded():
            amaxes = torch.stack([amax_of(weight._local_tensor._tensor) for weight in self._weights]).double()
        largest = self._reduced(amaxes, dist.ReduceOp.MAX)
        tallies: list[Tally] = []
        if largest is not None:
            with self._part.guarded():
                tallies = [self._count(*pair) for pair in zip(self._weights, largest.float(), strict=True)]
        sums, extremes = ([t.sums for t in tallies], [t.extremes for t in tallies])
        sums_of_all = self._reduced(torch.stack(sums) if sums else amaxes, dist.ReduceOp.SUM)
        extremes_of_all = self._reduced(torch.stack(extremes) if extremes else amaxes, dist.ReduceOp.MAX)
        if sums_of_all is None or extremes_of_all is None:
            return {}
        whole = [Tally(*pair) for pair in zip(sums_of_all, extremes_of_all, strict=True)]
        return {name: Counted(found, self._dtype, "tensorwise") for name, found in zip(self.names, whole, strict=True)}

    def _count(self, weight: Any, amax: torch.Tensor) -> Tally:
        """Of this rank's shard, by the cast that its all-gather does."""
        from torchao.float8.float8_training_tensor import hp_tensor_and_scale_to_float8
        from torchao.float8.float8_utils import amax_to_scale

        local = weight._local_tensor
        exact, dtype, scale = local._tensor, local._dtype, local._precomputed_scale
        scale = amax_to_scale(amax.to(exact.dtype), dtype) if scale is None else scale
        done = hp_tensor_and_scale_to_float8(exact, scale, dtype, local._linear_mm_config)
        return tally(Rounded(exact, done._data, done._scale, "tensorwise"), amax)

    def _reduced(self, values: torch.Tensor, how: Any) -> torch.Tensor | None:
        """`values` over all ranks that hold shards; None where the part has ended on some rank, on every rank alike."""
        if self._ended:
            return None
        groups = _groups_of_shards(self._weights[0])
        failed = torch.tensor(0.0 if self._part.works else 1.0, device=values.device)
        for group in groups:
            dist.all_reduce(failed, group=group)
        if failed:
            self._ended = True
            return None
        for group in groups:
            dist.all_reduce(values, op=how, group=group)
        return values


def _groups_of_shards(weight: DTensor) -> list[Any]:
    mesh = weight.device_mesh
    return [mesh.get_group(index) for index, placement in enumerate(weight.placements) if placement.is_shard()]


def _is_gathered_in_fp8(weight: Any) -> bool:
    return isinstance(weight, DTensor) and type(weight._local_tensor).__name__ == "WeightWithDynamicFloat8CastTensor"
