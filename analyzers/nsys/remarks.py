"""What an export says in sentences: what stands out, with the evidence; what is not in it, and how to capture it."""

import numpy as np

from ...record.units import show_count
from ..activities import Activities
from ..findings import Finding
from .export import Export


def remarks(export: Export, work: Activities) -> list[Finding]:
    """The findings of one export."""
    return [*_absent(export, work), *_environment(export)]


def _absent(export: Export, work: Activities) -> list[Finding]:
    found = []
    if not len(work):
        text = (
            f"{export.path.name} has no kernels, copies or sets: device time is not measured. Profile with -t cuda "
            "(on WSL, with a driver that supports it)."
        )
        found.append(Finding(code="no-device-activity", severity="info", text=text))
    whole = [entry for entry in work.labels if entry.what == "graph"]
    if whole:
        launches = int(np.isin(work.label, [work.labels.index(entry) for entry in whole]).sum())
        text = (
            f"{show_count(launches)} launches of {len(whole)} CUDA graphs were recorded whole, each charged once; the "
            "kernels in them have no rows. Profile with --cuda-graph-trace=node to see them (it costs more)."
        )
        evidence = {"graphs": len(whole), "launches": launches}
        found.append(Finding(code="graphs-recorded-whole", severity="info", text=text, evidence=evidence))
    return found


def _environment(export: Export) -> list[Finding]:
    if not export.carries_environment:
        return []
    text = (
        f"{export.path.name} carries the environment variables of the profiled program, tokens perhaps among them: "
        f"send on what stepscope scrub {export.path.name} writes, and profile with --discard-environment=true."
    )
    return [Finding(code="carries-environment", severity="warning", text=text)]
