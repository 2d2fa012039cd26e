"""The steps of a training loop, told from its ranges by name, and what the devices did in each.

A step's device time is a window: from the first start of what it launched to that of what the next step launched, so
that windows do not overlap and nothing is lost between them; the last ends with what it launched.
"""

import re
from collections import Counter

import msgspec
import numpy as np

from .activities import NONE, Ints
from .breakdown import Coverage
from .intervals import covered_before
from .nesting import MODULE, OPERATOR, STEP, Ranges

_STEP = re.compile(
    r"(?:profilerstep|(?:train(?:ing)?|global)?[ _.-]?(?:step|iter(?:ation)?)|batch)[ _#:=.-]*\d*", re.IGNORECASE
)


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one process on its device. `span_ns = compute_ns + comm_exposed_ns + memory_ns + idle_ns`."""

    process: int
    device: int
    number: int
    """Counted from 0 within the process."""
    name: str
    start_ns: int
    host_ns: int
    """From the range's beginning to its end."""
    launched_ns: int
    """GPU time of what was launched in it, summed."""
    span_ns: int
    compute_ns: int
    comm_overlapped_ns: int
    """Communication that compute covers; counted inside `compute_ns`."""
    comm_exposed_ns: int
    memory_ns: int
    idle_ns: int


class StepSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one process on one device; shares are of their windows together, and sum to 100."""

    process: int
    device: int
    count: int
    span_median_ns: float
    span_min_ns: int
    span_max_ns: int
    compute_pct: float
    comm_exposed_pct: float
    memory_pct: float
    idle_pct: float


def step_summaries(steps: list[StepTime]) -> list[StepSummary]:
    """One for each process and device, in their order."""
    groups: dict[tuple[int, int], list[StepTime]] = {}
    for step in steps:
        groups.setdefault((step.process, step.device), []).append(step)
    found = []
    for (process, device), mine in sorted(groups.items()):
        spans = [step.span_ns for step in mine]
        whole = sum(spans) or 1
        found.append(
            StepSummary(
                process=process,
                device=device,
                count=len(mine),
                span_median_ns=float(np.median(spans)),
                span_min_ns=min(spans),
                span_max_ns=max(spans),
                compute_pct=100 * sum(step.compute_ns for step in mine) / whole,
                comm_exposed_pct=100 * sum(step.comm_exposed_ns for step in mine) / whole,
                memory_pct=100 * sum(step.memory_ns for step in mine) / whole,
                idle_pct=100 * sum(step.idle_ns for step in mine) / whole,
            )
        )
    return found


def is_step(name: str) -> bool:
    """Whether a range's name says that it is a step: `step`, `train_step 12`, `ProfilerStep#7`, `iteration 3` …."""
    return bool(_STEP.fullmatch(name))


def steps_of(ranges: Ranges, process: int) -> Ints:
    """Rows of a process's steps in order of time, none within another.

    Of several families of names (`step`, `train_step`) it is the one with most ranges; of equals, the first by name.
    torch.profiler's own steps come before all of them.
    """
    others = [OPERATOR, MODULE]
    if STEP in ranges.styles and (ranges.has_style(STEP) & (ranges.thread >> 24 == process)).any():
        others = [style for style in set(ranges.styles) if style != STEP]
    named = np.array(
        [ranges.style(code) not in others and is_step(name) for code, name in enumerate(ranges.names)], dtype=bool
    )
    if not named.any():
        return np.empty(0, dtype=np.int64)
    rows = np.flatnonzero(named[ranges.name] & (ranges.thread >> 24 == process))
    families = [re.sub(r"[ _#:=.-]*\d+$", "", ranges.names[ranges.name[row]]) for row in rows.tolist()]
    if not families:
        return np.empty(0, dtype=np.int64)
    chosen = min(Counter(families).items(), key=lambda entry: (-entry[1], entry[0]))[0]
    rows = rows[np.array([family == chosen for family in families])]
    rows = rows[np.lexsort((-ranges.end[rows], ranges.start[rows]))]
    reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(ranges.end[rows])[:-1]))
    found: Ints = rows[ranges.start[rows] >= reach]
    return found


def step_at(ranges: Ranges, rows: Ints, times: Ints) -> Ints:
    """For each time the number of the step (of `rows`, in order) that is open then; `NONE` between steps."""
    if not len(rows):
        return np.full(len(times), NONE, dtype=np.int64)
    found: Ints = np.searchsorted(ranges.start[rows], times, side="right").astype(np.int64) - 1
    outside = (found < 0) | (times >= ranges.end[rows][np.maximum(found, 0)])
    found[outside] = NONE
    return found


def step_times(
    ranges: Ranges, rows: Ints, device: int, cover: Coverage, step: Ints, start: Ints, end: Ints
) -> list[StepTime]:
    """The steps of one process on one device.

    `step`, `start` and `end` are of the process's work on it: the number of the step that launched each, or `NONE`.
    A step that launched nothing has no window, and is left out.
    """
    if not len(rows):
        return []
    inside = step != NONE
    first = np.full(len(rows), np.iinfo(np.int64).max, dtype=np.int64)
    np.minimum.at(first, step[inside], start[inside])
    launched = np.bincount(step[inside], weights=(end - start)[inside], minlength=len(rows)).astype(np.int64)
    busy = np.flatnonzero(np.bincount(step[inside], minlength=len(rows)))
    if not len(busy):
        return []
    opens = np.maximum.accumulate(first[busy])
    last = int(end[step == busy[-1]].max())
    edges = np.concatenate((opens, [max(last, int(opens[-1]))]))
    compute, kernels, whole, communication = (np.diff(covered_before(part, edges)) for part in cover)
    spans = np.diff(edges)
    return [
        StepTime(
            process=int(ranges.thread[row]) >> 24,
            device=device,
            number=int(number),
            name=ranges.names[ranges.name[row]],
            start_ns=int(ranges.start[row]),
            host_ns=int(ranges.end[row] - ranges.start[row]),
            launched_ns=int(launched[number]),
            span_ns=int(spans[at]),
            compute_ns=int(compute[at]),
            comm_overlapped_ns=int(communication[at] - kernels[at] + compute[at]),
            comm_exposed_ns=int(kernels[at] - compute[at]),
            memory_ns=int(whole[at] - kernels[at]),
            idle_ns=int(spans[at] - whole[at]),
        )
        for at, (number, row) in enumerate(zip(busy.tolist(), rows[busy].tolist(), strict=True))
    ]
