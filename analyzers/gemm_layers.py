"""Which layer a GEMM belongs to: told by ranges named after modules, by the order of the model's linear layers, or by
FSDP2's units, in this order; a backward GEMM has the layer of its forward one.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace

from ..record.manifest import Linear
from .gemms import Gemm

_MODULE = re.compile(r"^[A-Za-z_]\w*(?:\.\w+)+$")
_OPENS = re.compile(r"^FSDP::pre_forward \((?P<unit>.+)\)$")
_CLOSES = re.compile(r"^FSDP::post_forward \((?P<unit>.+)\)$")


@dataclass(frozen=True)
class _Span:
    start: int
    end: int
    name: str


def with_layers(gemms: Sequence[Gemm], ranges: pa.Table, linears: Sequence[Linear]) -> list[Gemm]:
    """The GEMMs of one rank with their layer's name, where that can be told. `ranges`: columns of `timeline.RANGES`."""
    modules, units = _spans(ranges)
    in_order = _by_order(gemms, linears)
    named: dict[int, str | None] = {}
    for gemm in gemms:
        if gemm.role in ("forward", "recomputed forward"):
            at, thread = gemm.call.start, gemm.call.thread
            module = _innermost(modules.get(thread, []), at)
            unit = _innermost(units.get(thread, []), at)
            named[id(gemm.call)] = module or in_order.get(id(gemm.call)) or unit
    return [replace(gemm, layer=named.get(id((gemm.forward or gemm).call))) for gemm in gemms]


def _by_order(gemms: Sequence[Gemm], linears: Sequence[Linear]) -> dict[int, str]:
    """Names by the order of execution, where the sizes of the forward GEMMs repeat those of all layers exactly."""
    sizes = [(linear.in_features, linear.out_features) for linear in linears]
    forward = [gemm for gemm in gemms if gemm.role == "forward" and gemm.batch == 1 and gemm.sizes[1:] in sizes]
    forward.sort(key=lambda gemm: gemm.call.start)
    if not sizes or len(forward) % len(sizes):
        return {}
    if any(gemm.sizes[1:] != sizes[at % len(sizes)] for at, gemm in enumerate(forward)):
        return {}
    return {id(gemm.call): linears[at % len(sizes)].name for at, gemm in enumerate(forward)}


def _spans(ranges: pa.Table) -> tuple[dict[tuple[int, int], list[_Span]], dict[tuple[int, int], list[_Span]]]:
    """By thread: ranges named after modules, and the forward passes of FSDP2's units."""
    modules: dict[tuple[int, int], list[_Span]] = {}
    units: dict[tuple[int, int], list[_Span]] = {}
    opened: dict[tuple[tuple[int, int], str], int] = {}
    for row in ranges.select(["process", "thread", "start", "end", "name"]).sort_by("start").to_pylist():
        thread, name = (row["process"], row["thread"]), row["name"]
        if _MODULE.match(name):
            modules.setdefault(thread, []).append(_Span(row["start"], row["end"], name))
        elif opens := _OPENS.match(name):
            opened[thread, opens["unit"]] = row["end"]
        elif (closes := _CLOSES.match(name)) and (begun := opened.pop((thread, closes["unit"]), None)) is not None:
            units.setdefault(thread, []).append(_Span(begun, row["start"], closes["unit"]))
    for spans in units.values():
        spans.sort(key=lambda span: span.start)
    return modules, units


def _innermost(spans: Sequence[_Span], at: int) -> str | None:
    """The name of the span that begins last of those around `at`; looks back over as many as a model is deep."""
    last = bisect_right(spans, at, key=lambda span: span.start)
    for span in reversed(spans[max(0, last - 64) : last]):
        if span.end > at:
            return span.name
    return None
