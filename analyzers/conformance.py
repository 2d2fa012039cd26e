"""Whether a trace shows the recipe that the run's manifest states, field by field, each with what was seen.

`no` where anything seen contradicts a field, `yes` where every field that makes a difference was seen as stated, else
`cannot tell`. Nothing is taken from the recipe: operands are read off the GEMMs (`gemms`) and all-gathers (`gathers`).
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import msgspec

from ..record.manifest import Linear, Manifest
from ..record.recipes import CAPTURED, RECIPES, Cast, Recipe
from .gathers import Gather
from .gemms import UNTOLD, Gemm, Operand
from .results import Conforms

Verdict = Literal["yes", "no", "cannot tell", "makes no difference"]


class FieldProof(msgspec.Struct, frozen=True, kw_only=True):
    """One field of the recipe, and what the trace shows of it."""

    field: str
    stated: str
    seen: dict[str, int]
    """What was seen → how often."""
    where: str
    """What was looked at."""
    verdict: Verdict


class Conformance(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a recipe."""

    recipe: str | None
    """None: there is no manifest beside the trace, or it states no recipe."""
    conforms: Conforms
    why: str
    """The fields that decide, or what is missing; a sentence."""
    emulated: bool
    fields: list[FieldProof]
    fits: list[str]
    """The recipes that nothing seen contradicts, whatever the manifest says."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the trace of one run has, all its ranks together."""

    gemms: Sequence[Gemm]
    gathers: Sequence[Gather]
    float8_kernels: int = 0
    """GEMM kernels that multiply FP8, by their names."""
    other_kernels: int = 0
    """GEMM kernels in another precision, by their names."""
    world: int | None = None


def conformance(seen: Seen, manifest: Manifest | None) -> Conformance:
    """The verdict for the recipe of `manifest`."""
    sorts = alike(seen.gemms)
    fits = [] if _nothing(seen) else [row.name for row in RECIPES if _verdict(_fields(seen, sorts, row, []))[0] != "no"]
    emulated = any(gemm.emulated for gemm in seen.gemms)
    if manifest is None or manifest.recipe.name == CAPTURED.name:
        why = "there is no run.json beside the trace" if manifest is None else "the run's manifest states no recipe"
        return Conformance(recipe=None, conforms="cannot tell", why=why, emulated=emulated, fields=[], fits=fits)
    if manifest.emulated and (manifest.config.get("compile") or any(gemm.call.is_compiled for gemm in seen.gemms)):
        sorts = [Alike(_hidden(gemm), count) for gemm, count in sorts]
    found = _fields(seen, sorts, manifest.recipe, manifest.linear_layers)
    conforms, why = _verdict(found)
    if _nothing(seen):
        why = "the trace has no GEMM with its shapes: profile with record_shapes"
    return Conformance(
        recipe=manifest.recipe.name, conforms=conforms, why=why, emulated=emulated, fields=found, fits=fits
    )


def _hidden(gemm: Gemm) -> Gemm:
    """The same GEMM of a compiled, emulated run: the casts around one in FP32 are fused out of sight."""
    if gemm.dtype != "fp32":
        return gemm
    return msgspec.structs.replace(gemm, a=Operand(dtype=UNTOLD), b=Operand(dtype=UNTOLD))


def _untold(gemm: Gemm) -> bool:
    return gemm.a.dtype == UNTOLD


def _nothing(seen: Seen) -> bool:
    return not seen.gemms and not seen.float8_kernels + seen.other_kernels


def _verdict(found: Sequence[FieldProof]) -> tuple[Conforms, str]:
    against = [proof.field for proof in found if proof.verdict == "no"]
    if against:
        return "no", f"the trace contradicts {', '.join(against)}"
    untold = [proof.field for proof in found if proof.verdict == "cannot tell"]
    if untold:
        return "cannot tell", f"the trace does not tell {', '.join(untold)}"
    return "yes", "every field of the recipe was seen as stated"


class Alike(NamedTuple):
    """GEMMs that differ in nothing that a verdict looks at: one of them, and how many they are."""

    gemm: Gemm
    number: int


def alike(gemms: Iterable[Gemm]) -> list[Alike]:
    """The sorts of GEMMs, in order of their first."""
    first: dict[Hashable, Gemm] = {}
    counts: Counter[Hashable] = Counter()
    for gemm in gemms:
        forward = gemm.forward.sizes if gemm.forward else None
        key = gemm.role, gemm.layer, gemm.batch, gemm.sizes, forward, gemm.a, gemm.b, gemm.padded, gemm.emulated
        first.setdefault(key, gemm)
        counts[key] += 1
    return [Alike(gemm, counts[key]) for key, gemm in first.items()]


_T = TypeVar("_T")


def _tally(found: Iterable[tuple[_T, int]]) -> Counter[_T]:
    counts: Counter[_T] = Counter()
    for one, count in found:
        counts[one] += count
    return counts


def _number(sorts: Iterable[Alike]) -> int:
    return sum(count for _, count in sorts)


def fields(seen: Seen, recipe: Recipe, linears: Sequence[Linear]) -> list[FieldProof]:
    """Every field of a recipe. Without `linears` a layer counts as an FP8 one where its forward GEMM is in FP8."""
    return _fields(seen, alike(seen.gemms), recipe, linears)


def _fields(seen: Seen, sorts: Sequence[Alike], recipe: Recipe, linears: Sequence[Linear]) -> list[FieldProof]:
    layers = _Layers(sorts, linears)
    found = [_any_float8(seen, sorts, recipe), *([_layers(layers, linears)] if linears else [])]
    for role, operands in _OPERANDS.items():
        picked = layers.of(role, float8=recipe.is_float8)
        for name, operand in operands:
            counts = _tally((operand(gemm), count) for gemm, count in picked)
            found.append(_operand(name, getattr(recipe, name), counts, role))
    found += [_all_gather(seen, recipe, linears), _precomputed(seen, recipe)]
    return [*found, _padding(sorts, recipe), _powers_of_2(sorts, recipe)]


class _Layers:
    """The GEMMs of linear layers, sorted by whether the layer is to run in FP8."""

    def __init__(self, sorts: Sequence[Alike], linears: Sequence[Linear]) -> None:
        self._by_name = {linear.name: linear.precision == "float8" for linear in linears}
        self._by_size: dict[tuple[int, int], set[bool]] = {}
        for linear in linears:
            size = linear.in_features, linear.out_features
            self._by_size.setdefault(size, set()).add(linear.precision == "float8")
        if not linears:
            for gemm, _ in sorts:
                if gemm.role == "forward" and gemm.batch == 1:
                    self._by_size.setdefault(gemm.sizes[1:], set()).add(gemm.is_float8)
        self._sorts = [one for one in sorts if one.gemm.batch == 1 and layer_size(one.gemm) in self._by_size]

    def of(self, role: str, *, float8: bool | None) -> list[Alike]:
        """Those of one role whose layer is to run in FP8, or not; of layers of which only a share is, none."""
        return [one for one in self._sorts if one.gemm.role == role and float8 in (None, self.float8(one.gemm))]

    def float8(self, gemm: Gemm) -> bool | None:
        """Whether the layer is to run in FP8; None where its name is not known and others of its size differ."""
        if gemm.layer in self._by_name:
            return self._by_name[gemm.layer]
        size = layer_size(gemm)
        told = self._by_size.get(size, set()) if size else set()
        return next(iter(told)) if len(told) == 1 else None


def layer_size(gemm: Gemm) -> tuple[int, int] | None:
    """in_features and out_features of the layer that a GEMM belongs to; None where its role is not told."""
    if gemm.forward is not None:
        return gemm.forward.sizes[1:]
    first, inner, last = gemm.sizes
    by_role = {
        "forward": (inner, last),
        "recomputed forward": (inner, last),
        "grad_input": (last, inner),
        "grad_weight": (last, first),
    }
    return by_role.get(gemm.role)


def _turned(gemm: Gemm) -> bool:
    """Whether a grad_weight GEMM is inputᵀ · grad_output, and not its transpose."""
    size = layer_size(gemm) if gemm.forward else None
    return size is not None and size[0] != size[1] and gemm.sizes[0] == size[0]


_OPERANDS: dict[str, tuple[tuple[str, Callable[[Gemm], Operand]], ...]] = {
    "forward": (("input", lambda gemm: gemm.a), ("weight", lambda gemm: gemm.b)),
    "grad_input": (("grad_output", lambda gemm: gemm.a), ("weight_for_grad_input", lambda gemm: gemm.b)),
    "grad_weight": (
        ("grad_output_for_grad_weight", lambda gemm: gemm.b if _turned(gemm) else gemm.a),
        ("input_for_grad_weight", lambda gemm: gemm.a if _turned(gemm) else gemm.b),
    ),
}
"""Role → the recipe's fields of both operands."""


def _layers(layers: _Layers, linears: Sequence[Linear]) -> FieldProof:
    """Whether just the layers that the manifest names run in FP8."""
    wanted = Counter(linear.precision for linear in linears)
    forward = layers.of("forward", float8=None)
    seen = _tally(("FP8" if gemm.is_float8 else gemm.dtype, count) for gemm, count in forward)
    told = [one for one in forward if not _untold(one.gemm)]
    wrong = [gemm for gemm, _ in told if layers.float8(gemm) not in (None, gemm.is_float8)]
    unnamed = any(layers.float8(gemm) is None for gemm, _ in forward)
    number = _number(forward)
    share = seen["FP8"] * len(linears) == wanted["float8"] * number
    verdict: Verdict = "yes" if forward and len(told) == len(forward) else "cannot tell"
    if wrong or (unnamed and not share and len(told) == len(forward)):
        verdict = "no"
    where = f"{number} forward GEMMs of linear layers"
    if wrong:
        named = dict.fromkeys(gemm.layer or f"a layer of size {gemm.sizes[1]} to {gemm.sizes[2]}" for gemm in wrong)
        where += f"; against the manifest: {', '.join(list(named)[:3])}{', …' if len(named) > 3 else ''}"
    stated = f"{wanted['float8']} in FP8, {wanted['bf16']} not"
    return FieldProof(field="linear layers", stated=stated, seen=dict(seen), where=where, verdict=verdict)


def _operand(name: str, stated: Cast, operands: Counter[Operand], role: str) -> FieldProof:
    seen = _tally((str(operand), count) for operand, count in operands.items())
    verdict: Verdict = "yes" if operands else "cannot tell"
    if any(operand.dtype not in (stated.dtype, UNTOLD) for operand in operands):
        verdict = "no"
    elif any(operand.dtype == UNTOLD for operand in operands):
        verdict = "cannot tell"
    elif stated.granularity is not None:
        told = {operand.granularity for operand in operands} - {None}
        if told - {stated.granularity}:
            verdict = "no"
        elif any(operand.granularity is None for operand in operands):
            verdict = "cannot tell"
    text = f"{stated.dtype} {stated.granularity}" if stated.granularity else stated.dtype
    where = f"{operands.total()} {role} GEMMs"
    return FieldProof(field=name, stated=text, seen=dict(seen), where=where, verdict=verdict)


def _any_float8(seen: Seen, sorts: Sequence[Alike], recipe: Recipe) -> FieldProof:
    """Whether any GEMM at all multiplies FP8, by the operators' operands and by the kernels' names."""
    told = _tally((None if _untold(gemm) else gemm.is_float8, count) for gemm, count in sorts)
    counts = {
        "operators in FP8": told[True],
        "operators not": told[False],
        "operators that do not tell": told[None],
        "kernels in FP8": seen.float8_kernels,
        "kernels not": seen.other_kernels,
    }
    shown = {name: count for name, count in counts.items() if count}
    ran = counts["operators in FP8"] + counts["kernels in FP8"] > 0
    verdict: Verdict = "cannot tell"
    if shown and (ran or not told[None]):
        verdict = "yes" if ran == recipe.is_float8 else "no"
    stated = "some" if recipe.is_float8 else "none"
    return FieldProof(field="FP8 GEMMs", stated=stated, seen=shown, where="all GEMMs", verdict=verdict)


def _all_gather(seen: Seen, recipe: Recipe, linears: Sequence[Linear]) -> FieldProof:
    dtypes = Counter(gather.dtype for gather in seen.gathers)
    in_float8 = [gather for gather in seen.gathers if gather.has_float8]
    casts = sum(gather.casts for gather in in_float8)
    layers = sum(linear.precision == "float8" for linear in linears)
    verdict: Verdict = "yes"
    if not seen.gathers:
        verdict = "makes no difference" if seen.world == 1 else "cannot tell"
    elif bool(in_float8) != (recipe.all_gather == "float8"):
        verdict = "no"
    elif recipe.all_gather == "float8" and layers and casts and casts % layers:
        verdict = "no"  # some of the layers are gathered in bf16
    sent = sum(gather.bytes for gather in seen.gathers)
    where = f"{len(seen.gathers)} all-gathers of parameters, {sent:,} bytes"
    if casts:
        where += f", {casts} weights cast for them"
    return FieldProof(field="all_gather", stated=recipe.all_gather, seen=dict(dtypes), where=where, verdict=verdict)


def _precomputed(seen: Seen, recipe: Recipe) -> FieldProof:
    casts = sum(gather.casts for gather in seen.gathers)
    searched = sum(gather.amaxes for gather in seen.gathers)
    verdict: Verdict = "makes no difference"
    if recipe.all_gather == "float8" or recipe.precompute_scales:
        verdict = "cannot tell"
        if casts:
            verdict = "yes" if recipe.precompute_scales == (searched == 0) else "no"
    counts = {"scales computed before": casts - min(casts, searched), "scales computed at the cast": searched}
    return FieldProof(
        field="precompute_scales",
        stated=str(recipe.precompute_scales).lower(),
        seen={name: count for name, count in counts.items() if count},
        where=f"{casts} casts for all-gathers",
        verdict=verdict,
    )


def _padding(sorts: Sequence[Alike], recipe: Recipe) -> FieldProof:
    float8 = [one for one in sorts if one.gemm.is_float8]
    found = _tally((gemm.padded, count) for gemm, count in float8)
    told = set(found) - {None}
    if not recipe.is_float8:
        verdict: Verdict = "makes no difference"
    elif told:
        verdict = "yes" if told == {recipe.pad_inner_dim} else "no"
    elif float8 and all(gemm.sizes[1] % 16 == 0 for gemm, _ in float8):
        verdict = "makes no difference"
    else:
        verdict = "cannot tell"
    where = f"{_number(float8)} FP8 GEMMs"
    return _switch(recipe, "pad_inner_dim", found, ("padded", "not padded"), where, verdict)


def _powers_of_2(sorts: Sequence[Alike], recipe: Recipe) -> FieldProof:
    rounded = _tally(
        (operand.power_of_2, count) for gemm, count in sorts for operand in (gemm.a, gemm.b) if operand.is_float8
    )
    told = set(rounded) - {None}
    verdict: Verdict = "cannot tell"
    if not recipe.is_float8:
        verdict = "makes no difference"
    elif told:
        verdict = "yes" if told == {recipe.power_of_2_scales} else "no"
    words, where = ("a power of two", "not rounded"), f"{rounded.total()} FP8 operands"
    return _switch(recipe, "power_of_2_scales", rounded, words, where, verdict)


def _switch(
    recipe: Recipe, field: str, found: Counter[bool | None], words: tuple[str, str], where: str, verdict: Verdict
) -> FieldProof:
    """A field of the recipe that is on or off; `words` are what it is called where it is seen on, and off."""
    called = {True: words[0], False: words[1], None: "cannot be told"}
    seen = {called[one]: count for one, count in found.items()}
    return FieldProof(field=field, stated=str(getattr(recipe, field)).lower(), seen=seen, where=where, verdict=verdict)
