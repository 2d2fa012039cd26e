"""What FP8 casts did to each layer over time, from sampled steps (`--numerics`), and the layers to watch.

A layer and operand is to watch for any of these, each of which is told with its figures:

- saturated: over 0.001 % of values above the dtype's largest in some sample (the share at which FP8-LM's scaling backs
  off);
- underflowed: over 1 % of values that are not zero became zero;
- SQNR: 6 dB or more (twice the error) below the median of the same operand over all layers of the run's last sample;
- growing amax: ten times that of the first sample;
- kurtosis over 100, or ten times that of the first sample: outliers, which FOG takes as an early warning.

Several runs of a recipe: the worst of them counts.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from statistics import median

import msgspec

from ..record.numerics import OperandStatistics
from .runs import Run

SATURATED, UNDERFLOWED, SQNR_BELOW_DB, GROWTH, KURTOSIS = 1e-5, 0.01, 6.0, 10.0, 100.0
FIELDS = ("amax", "saturated_share", "underflowed_share", "sqnr_db", "kurtosis")


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a layer's operand over the samples that have it."""

    first: float
    last: float
    least: float
    most: float


class LayerCourse(msgspec.Struct, frozen=True, kw_only=True):
    """One operand of one layer in one run. A course is None where no sample has the figure."""

    run: str
    layer: str
    operand: str
    dtype: str
    samples: int
    first_step: int
    last_step: int
    amax: Course | None
    saturated_share: Course | None
    underflowed_share: Course | None
    sqnr_db: Course | None
    kurtosis: Course | None
    watch: list[str]
    """Why it is to watch; empty where it is not."""


class OperandCourse(msgspec.Struct, frozen=True, kw_only=True):
    """One operand over all layers and runs of a recipe."""

    operand: str
    layers: int
    samples: int
    """Sampled steps, all runs together."""
    sqnr_first_db: float | None
    """Median over layers, of the first sample; of the last one below."""
    sqnr_last_db: float | None
    sqnr_least_db: float | None
    """The worst of any layer and sample, as are the shares below."""
    saturated_most: float | None
    underflowed_most: float | None
    to_watch: int
    """Layers to watch."""


def layer_courses(runs: Sequence[Run]) -> list[LayerCourse]:
    """Each run's layers and operands in the order of their names."""
    found = []
    for run in sorted(runs, key=lambda run: run.name):
        own = [_course(run.name, list(lines)) for _, lines in groupby(sorted(run.numerics, key=_order), key=_of)]
        found += _watched(own)
    return found


def operand_courses(courses: Sequence[LayerCourse], runs: Sequence[Run]) -> list[OperandCourse]:
    """One for each operand."""
    samples = {
        operand: sum(len({line.step for line in run.numerics if line.operand == operand}) for run in runs)
        for operand in dict.fromkeys(course.operand for course in courses)
    }
    return [
        _operand(operand, [course for course in courses if course.operand == operand], samples[operand])
        for operand in sorted(samples, key=("input", "weight", "grad_output").index)
    ]


def to_watch(courses: Sequence[LayerCourse]) -> list[LayerCourse]:
    """Those to watch, each layer and operand once: most reasons first, then the lowest SQNR."""

    def urgency(course: LayerCourse) -> tuple[int, float, str, str, str]:
        sqnr = course.sqnr_db.least if course.sqnr_db else 0.0
        return -len(course.watch), sqnr, course.layer, course.operand, course.run

    found: dict[tuple[str, str], LayerCourse] = {}
    for course in sorted((course for course in courses if course.watch), key=urgency):
        found.setdefault((course.layer, course.operand), course)
    return list(found.values())


def _of(line: OperandStatistics) -> tuple[str, str]:
    return line.layer, line.operand


def _order(line: OperandStatistics) -> tuple[str, str, int]:
    return line.layer, line.operand, line.step


def _course(run: str, lines: Sequence[OperandStatistics]) -> LayerCourse:
    figures = {name: _over_time(getattr(line, name) for line in lines) for name in FIELDS}
    return LayerCourse(
        run=run,
        layer=lines[0].layer,
        operand=lines[0].operand,
        dtype=lines[-1].dtype,
        samples=len(lines),
        first_step=lines[0].step,
        last_step=lines[-1].step,
        watch=[],
        **figures,
    )


def _over_time(values: Iterable[float | None]) -> Course | None:
    known = [value for value in values if value is not None]
    return Course(first=known[0], last=known[-1], least=min(known), most=max(known)) if known else None


def _watched(courses: Sequence[LayerCourse]) -> list[LayerCourse]:
    usual = {}
    for operand in {course.operand for course in courses}:
        known = [course.sqnr_db.last for course in courses if course.operand == operand and course.sqnr_db]
        usual[operand] = median(known) if known else None
    return [msgspec.structs.replace(course, watch=_reasons(course, usual[course.operand])) for course in courses]


def _reasons(course: LayerCourse, usual_sqnr: float | None) -> list[str]:
    reasons = []
    if course.saturated_share and course.saturated_share.most > SATURATED:
        reasons.append(f"{100 * course.saturated_share.most:.3g} % saturated")
    if course.underflowed_share and course.underflowed_share.most > UNDERFLOWED:
        reasons.append(f"{100 * course.underflowed_share.most:.3g} % underflowed")
    if course.sqnr_db and usual_sqnr is not None and course.sqnr_db.last <= usual_sqnr - SQNR_BELOW_DB:
        reasons.append(f"SQNR {course.sqnr_db.last:.1f} dB, of all layers {usual_sqnr:.1f}")
    if course.amax and course.amax.last >= GROWTH * course.amax.first > 0:
        reasons.append(f"amax {course.amax.first:.3g} → {course.amax.last:.3g}")
    if course.kurtosis and (course.kurtosis.last > KURTOSIS or course.kurtosis.last >= GROWTH * course.kurtosis.first):
        reasons.append(f"kurtosis {course.kurtosis.first:.3g} → {course.kurtosis.last:.3g}")
    return reasons


def _operand(operand: str, courses: Sequence[LayerCourse], samples: int) -> OperandCourse:
    sqnr = [course.sqnr_db for course in courses if course.sqnr_db]
    return OperandCourse(
        operand=operand,
        layers=len({course.layer for course in courses}),
        samples=samples,
        sqnr_first_db=median(course.first for course in sqnr) if sqnr else None,
        sqnr_last_db=median(course.last for course in sqnr) if sqnr else None,
        sqnr_least_db=min((course.least for course in sqnr), default=None),
        saturated_most=_most(course.saturated_share for course in courses),
        underflowed_most=_most(course.underflowed_share for course in courses),
        to_watch=len({course.layer for course in courses if course.watch}),
    )


def _most(courses: Iterable[Course | None]) -> float | None:
    return max((course.most for course in courses if course), default=None)
