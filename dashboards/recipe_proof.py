"""Tables of a trace's precision: the verdict on the recipe, GEMMs by role, their rates, layers, and the roofline."""

from typing import TYPE_CHECKING

from ..record.units import show_bytes, show_count, show_ns, show_pct
from .tables import Column, Table, first_of, share_pct

if TYPE_CHECKING:
    from ..analyzers.conformance import Conformance
    from ..analyzers.efficiency import Efficiency
    from ..analyzers.precision_use import PrecisionUse
    from ..analyzers.recipe_proof import RecipeProof


WORTH_SHOWING_PCT = 10
"""Share of the kernels' time from which on multiplications are shown of a trace without FP8 and without a recipe."""


def proof_tables(proof: "RecipeProof", top: int) -> list[Table]:
    """The verdict over all ranks, and the tables of the first rank that has GEMMs with shapes."""
    if not _worth_showing(proof):
        return []
    verdict = [_verdict(proof.conformance)] if proof.conformance.fields else []
    rank = _first(proof)
    if rank is None:
        return verdict
    rates = _of_rank(proof, rank)
    shown = [*verdict, _gemms(rank, proof.conformance), _rates(rates)]
    if rank.gathers:
        shown.append(_gathers(rank))
    if rank.tax_ns is not None and rank.layers:
        shown.append(_layers(rank, top))
    if rates.clock == "device":
        shown.append(_roofline(rates, top))
    return shown


def proof_line(proof: "RecipeProof") -> str | None:
    """The verdict, and FP8's part in the first rank that has GEMMs; None where `proof_tables` has nothing."""
    if not _worth_showing(proof):
        return None
    found = proof.conformance
    fits = f"recipes that fit what is seen: {', '.join(found.fits) or 'none of ours'}"
    text = f"Recipe {found.recipe}: conforms: {found.conforms} ({found.why})" if found.recipe else f"Precision: {fits}"
    if rank := _first(proof):
        text += f"; FP8 has {show_pct(rank.fp8_flops_pct)} of the FLOPs of GEMMs"
        text += f" and {show_pct(rank.fp8_time_pct)} of their time{', emulated' if rank.emulated else ''}"
    return f"{text}. More: --view precision"


def _worth_showing(proof: "RecipeProof") -> bool:
    """Not of a trace without FP8 and without a recipe in which little was multiplied."""
    rank, stated = _first(proof), bool(proof.conformance.fields)
    if rank is None:
        return stated and bool(proof.conformance.fits)
    much = (_of_rank(proof, rank).multiplying_pct or 100) >= WORTH_SHOWING_PCT
    return stated or bool(rank.fp8_flops_pct) or much


def _first(proof: "RecipeProof") -> "PrecisionUse | None":
    """The first rank that has GEMMs."""
    return next((rank for rank in proof.ranks if rank.gemms), None)


def _of_rank(proof: "RecipeProof", rank: "PrecisionUse") -> "Efficiency":
    return next(found for found in proof.efficiency if found.rank == rank.rank)


def _verdict(found: "Conformance") -> Table:
    emulated = ", FP8 emulated" if found.emulated else ""
    return Table(
        title=f"Recipe {found.recipe}, all ranks{emulated}: conforms: {found.conforms}",
        columns=[
            Column(name="field", heading="field", right=False),
            Column(name="stated", heading="stated", right=False),
            Column(name="verdict", heading="as stated", right=False),
            Column(name="seen", heading="seen", right=False, fold=True),
            Column(name="where", heading="where", right=False, fold=True, less=1),
        ],
        rows=[
            (row.field, row.stated, row.verdict, _counts(row.seen), row.where)
            for row in found.fields
            if row.verdict != "makes no difference"
        ],
        note=f"{found.why[0].upper()}{found.why[1:]}. Read off the operators, not off the recipe.",
    )


def _counts(seen: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in seen.items()) or "nothing"


def _gemms(rank: "PrecisionUse", found: "Conformance") -> Table:
    total, flops = (sum(getattr(row, name) or 0 for row in rank.gemms) for name in ("time_ns", "flops"))
    said = (
        f"FP8 has {show_pct(rank.fp8_flops_pct)} of the FLOPs and {show_pct(rank.fp8_time_pct)} of the time of GEMMs."
    )
    if found.recipe is None:
        said += f" Recipes that fit what is seen: {', '.join(found.fits) or 'none of ours'}."
    return Table(
        title=f"GEMMs by role and precision, rank {rank.rank} ({_clock(rank.clock)})",
        columns=[
            Column(name="role", heading="role", right=False),
            Column(name="dtype", heading="dtype", right=False),
            Column(name="count", heading="count", show=show_count),
            Column(name="flops_pct", heading="FLOPs", show=show_pct),
            Column(name="time_ns", heading="time", show=show_ns),
            Column(name="time_pct", heading="share", show=show_pct),
            Column(name="by", heading="kernel or operator", right=False, fold=True, less=1),
        ],
        rows=[
            (
                row.role,
                f"{row.dtype}, emulated" if row.emulated else row.dtype,
                row.count,
                share_pct(row.flops, flops),
                row.time_ns,
                None if row.time_ns is None else share_pct(row.time_ns, total),
                ", ".join(row.kernels or row.operators),
            )
            for row in rank.gemms
        ],
        note=f"{said} Shares are of all GEMMs.",
    )


def _clock(clock: str) -> str:
    return "time of kernels" if clock == "device" else "host time"


def _rates(found: "Efficiency") -> Table:
    said = f"MFU is not measured: {found.mfu_why}."
    if found.mfu_pct is not None:
        said = (
            f"MFU {show_pct(found.mfu_pct)} over the device's span, {show_pct(found.hfu_pct)} with what was recomputed"
        )
        said += f" ({show_pct(found.uncounted_flops_pct)} of the FLOPs in a dtype without a peak add nothing)."
    return Table(
        title=f"Rate of multiplication, rank {found.rank} ({_clock(found.clock)})",
        columns=[
            Column(name="kind", heading="what", right=False),
            Column(name="dtype", heading="dtype", right=False),
            Column(name="count", heading="count", show=show_count),
            Column(name="flops", heading="GFLOP", show=lambda value: f"{value / 1e9:,.3f}"),
            Column(name="time_ns", heading="time", show=show_ns),
            Column(name="flops_per_s", heading="TFLOP/s", show=lambda value: f"{value / 1e12:.3f}"),
            Column(name="peak_pct", heading="of peak", show=show_pct),
        ],
        rows=[
            (
                row.kind,
                f"{row.dtype}, emulated" if row.emulated else row.dtype,
                row.count,
                row.flops,
                row.time_ns,
                row.flops_per_s,
                row.peak_pct,
            )
            for row in found.rates
        ],
        note=said,
    )


def _gathers(rank: "PrecisionUse") -> Table:
    return Table.of(
        rank.gathers,
        title=f"All-gathers of parameters, rank {rank.rank}",
        columns=[
            Column(name="dtype", heading="dtype", right=False),
            Column(name="count", heading="count", show=show_count),
            Column(name="bytes", heading="bytes", show=show_bytes),
            Column(name="casts", heading="weights cast", show=show_count),
        ],
        note="Bytes are those of the gathered buffers, all ranks' parts together.",
    )


def _layers(rank: "PrecisionUse", top: int) -> Table:
    rows = rank.layers[: top or None]
    said = f"The FP8 tax is {show_ns(rank.tax_ns)}: casts, largest values, scales and layout that only FP8 needs."
    gained = f"not measured: {rank.gained_why}." if rank.gained_why else show_ns(rank.gained_ns) + ", an estimate."
    return Table.of(
        rows,
        title=f"FP8 layer by layer, rank {rank.rank} ({_clock(rank.clock)}){first_of(len(rows), len(rank.layers))}",
        columns=[
            Column(name="layer", heading="layer", right=False, fold=True),
            Column(name="fp8_gemms", heading="FP8 GEMMs"),
            Column(name="gemms", heading="of"),
            Column(name="gemm_ns", heading="GEMMs", show=show_ns),
            Column(name="tax_ns", heading="FP8 tax", show=show_ns),
            Column(name="gained_ns", heading="gained", show=show_ns, less=1),
        ],
        note=f"{said} Gained by the GEMMs against bf16: {gained}",
    )


def _roofline(found: "Efficiency", top: int) -> Table:
    rows = found.roofline[: top or None]
    return Table.of(
        rows,
        title=f"Roofline, rank {found.rank}{first_of(len(rows), len(found.roofline))}",
        columns=[
            Column(name="sizes", heading="sizes", right=False),
            Column(name="dtype", heading="dtype", right=False),
            Column(name="role", heading="role", right=False, less=1),
            Column(name="count", heading="count", show=show_count),
            Column(name="time_ns", heading="time", show=show_ns),
            Column(name="flops_per_byte", heading="FLOP/B", show=lambda value: f"{value:.1f}"),
            Column(name="ridge", heading="ridge", show=lambda value: f"{value:.0f}", less=2),
            Column(name="bound", heading="bound by", right=False),
            Column(name="attainable_pct", heading="of roof", show=show_pct),
        ],
        note="Sizes are m × k × n, with the batch before. Bound by memory where FLOPs a byte lie below the ridge.",
    )
