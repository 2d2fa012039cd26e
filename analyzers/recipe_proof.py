"""What a timeline proves of a run's precision: the verdict on its recipe, what ran in which precision on every rank,
and how much of the devices' peaks it reached.
"""

from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import replace

from ..record.errors import UserError
from ..record.manifest import Linear, Manifest
from ..record.run import RunDir
from .conformance import Conformance, Seen, conformance
from .efficiency import Efficiency, efficiency
from .gathers import Gather, gathers_of
from .gemm_layers import with_layers
from .gemms import Gemm, gemms_of
from .op_calls import Call, calls_of
from .op_kernels import Launched
from .precision import precision_of
from .precision_use import PrecisionUse, precision_use
from .timeline import Source, Timeline


class RecipeProof(msgspec.Struct, frozen=True, kw_only=True):
    """Everything there is to say of a trace's precision."""

    conformance: Conformance
    ranks: list[PrecisionUse]
    efficiency: list[Efficiency]
    """One entry a rank."""


def recipe_proof(timeline: Timeline, manifest: Manifest | None) -> RecipeProof:
    """Of all ranks of a timeline; `manifest` is that of the run it belongs to, if there is one."""
    linears = manifest.linear_layers if manifest else []
    gemms: list[Gemm] = []
    gathers: list[Gather] = []
    uses, rates = [], []
    float8_kernels = other_kernels = 0
    for source in timeline.sources:
        calls, of_rank, gathered, launched = _rank(timeline, source, linears)
        gemms += of_rank
        gathers += gathered
        uses.append(precision_use(source.rank, calls, of_rank, gathered, launched))
        device = _device(source, launched)
        rates.append(efficiency(source.rank, calls, of_rank, launched, device))
        counts = np.bincount(launched.work.label, minlength=len(launched.work.labels)).tolist()
        for label, count in zip(launched.work.labels, counts, strict=True):
            precision = precision_of(label.name)
            float8_kernels += count if precision == "fp8" else 0
            other_kernels += count if precision not in (None, "fp8") else 0
    world = next((source.world_size for source in timeline.sources if source.world_size), None)
    seen = Seen(
        gemms=gemms,
        gathers=gathers,
        float8_kernels=float8_kernels,
        other_kernels=other_kernels,
        world=manifest.world.size if manifest else world,
    )
    return RecipeProof(conformance=conformance(seen, manifest), ranks=uses, efficiency=rates)


def manifest_beside(timeline: Timeline) -> Manifest | None:
    """The manifest in the folder of the traces; None where there is none, or the traces lie in several folders."""
    folders = {Path(source.path).parent for source in timeline.sources}
    if len(folders) != 1:
        return None
    folder = RunDir(folders.pop())
    try:
        return folder.manifest() if folder.manifest_path.is_file() else None
    except UserError:
        return None


def _rank(
    timeline: Timeline, source: Source, linears: list[Linear]
) -> tuple[list[Call], list[Gemm], list[Gather], Launched]:
    part = timeline.of_rank(source.rank)
    launched = Launched(part.activities, part.launches)
    calls = calls_of(part.ops)
    gemms = with_layers(gemms_of(source.rank, calls), part.ranges, linears)
    return calls, _timed(gemms, launched), gathers_of(source.rank, calls), launched


def _timed(gemms: list[Gemm], launched: Launched) -> list[Gemm]:
    launches = launched.by([gemm.call for gemm in gemms])
    each = zip(gemms, launched.time_ns(launches), launched.names(launches), strict=True)
    return [replace(gemm, device_ns=time_ns, kernels=names) for gemm, time_ns, names in each]


def _device(source: Source, launched: Launched) -> str | None:
    """The name of the device that all kernels ran on; None where there are several, of different names."""
    names = {source.device_names.get(device) for device in set(launched.work.device.tolist())}
    return names.pop() if len(names) == 1 else None
