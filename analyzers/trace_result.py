"""What `stepscope trace` says of traces, beyond what `analyze-nsys` says of exports too (`answer`)."""

from typing import Literal

import msgspec

from .answer import DeviceAnswer, RankAnswer
from .communication import CommunicationTime
from .critical_path import CriticalPath
from .findings import Finding
from .fsdp import FsdpTime
from .launches import QueueDepth
from .memory_curve import MemoryCurve
from .phases import PhaseTime
from .projection import RangeTime
from .recipe_proof import RecipeProof
from .skew import Skew
from .trace_stragglers import Straggler


class TraceRank(RankAnswer, frozen=True, kw_only=True):
    """One trace."""

    world_size: int | None
    """Ranks of the job, where the trace says."""
    processor: DeviceAnswer | None
    """Operators and communication of a run without device work, as a device of its own (−1); None where a device
    worked, or nothing was recorded."""
    modules: list[RangeTime]
    """Calls of nn.Modules, largest inclusive time first; empty unless recorded with modules or stacks."""
    phases: list[PhaseTime]
    """Forward, backward, optimizer, data, other; empty without ranges and operators."""
    fsdp: list[FsdpTime]
    """FSDP2's collectives by layer; empty where it was not used."""
    communication: list[CommunicationTime]
    """Collectives with sizes and bandwidths, largest time first."""
    queues: list[QueueDepth]
    """By device; empty where no launches were recorded."""
    memory: list[MemoryCurve]
    """By device; empty where memory was not recorded."""
    critical_paths: list[CriticalPath]
    """By process, device and step; empty without steps, launches or device work."""


class TraceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `stepscope trace` shows and prints as JSON."""

    schema: Literal["stepscope.timeline/1"] = "stepscope.timeline/1"
    ranks: list[TraceRank]
    skew: Skew | None
    """Ranks side by side; None with only one."""
    straggler: Straggler | None
    """Who the others wait for; None with one rank, or where nobody is last more often than the others."""
    precision: RecipeProof | None
    """What ran in which precision, and the verdict on the run's recipe; None without operators."""
    findings: list[Finding]
