"""`stepscope capture --price`: what each part of a capture costs a step on this machine.

Steps of our own trainer on one rank: on a GPU by the clock; on a CPU in one thread and in CPU time, which
others hardly change. Each part is measured in pairs of steps, one with it and one without, on the same batch,
each first in every other pair. A cost is the median of the differences within pairs, with the 95 % interval of that
median by bootstrap over the pairs; where the interval holds 0, the cost is not resolved. All parts take turns in every
round, so that a drift falls on all of them.
"""

import csv
import logging
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from ..record.program import run, single
from ..record.run import RunDir
from ..record.units import NOT_MEASURED, show_ns, show_pct
from .config import Config
from .quiet import silence_known_noise

SCHEMA = "stepscope.price/1"

Format = Literal["table", "csv", "json"]

WARM_UP = 2
"""Rounds before those that count."""
_LEAST_PAIRS = 5


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What one part costs. None: `missing` says why."""

    part: str
    paid: str
    """When: `every step`, `a recorded step`, …"""
    cost_ns: int | None = None
    """The median; of a part's presence, against the same step without it."""
    ci95_ns: tuple[int, int] | None = None
    resolved: bool = False
    """Whether the interval leaves 0 out."""
    step_pct: float | None = None
    """Of the step without it."""
    pairs: int
    missing: str | None = None


class PriceList(msgspec.Struct, frozen=True, kw_only=True):
    """What `stepscope capture --price` prints as JSON."""

    schema: str = SCHEMA
    device: str
    recipe: str
    emulated: bool
    model: str
    seq_len: int
    micro_batch: int
    clock: Literal["cpu time", "wall"]
    """What all times are of."""
    step_ns: int
    """Median of a step that nothing watches."""
    costs: list[Cost]


def price(
    *,
    recipe: str = "mxtw",
    model: str | None = None,
    seq_len: int | None = None,
    steps: int = 12,
    format: Format = "table",
) -> None:
    """Say what each part of a capture costs a step on this machine: about two minutes on two CPU cores.

    Parameters
    ----------
    recipe
        Precision recipe of the steps; without FP8 there are no FP8 statistics to pay for.
    model
        As in profile-train. [default: tiny; llama-1b on GPUs]
    seq_len
        Positions per row. [default: 256; 2048 on GPUs]
    steps
        Pairs of steps for each part, 5 or more.
    format
        table, csv or json.
    """
    found = price_list(recipe=recipe, model=model, seq_len=seq_len, pairs=steps)
    if format == "json":
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    elif format == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["part", "paid", "cost_ns", "cost_ns_low", "cost_ns_high", "resolved", "step_pct", "pairs"])
        for cost in found.costs:
            low, high = cost.ci95_ns or (None, None)
            row = (cost.part, cost.paid, cost.cost_ns, low, high, cost.resolved, cost.step_pct, cost.pairs)
            writer.writerow(["" if value is None else value for value in row])
    else:
        sys.stdout.write(in_words(found))


def price_list(*, recipe: str, model: str | None, seq_len: int | None, pairs: int) -> PriceList:
    """Measure everything. ConfigError where the settings cannot be."""
    from ..record.errors import ConfigError

    if pairs < _LEAST_PAIRS:
        raise ConfigError(f"--steps: {_LEAST_PAIRS} pairs or more, not {pairs}; fewer have no interval worth its name")
    silence_known_noise()
    import torch
    import torch.distributed as dist

    from .build import build
    from .hardware import probe
    from .place import Place
    from .price_parts import Bench
    from .resolve import resolved

    hardware = probe()
    device = torch.device("cuda", 0) if hardware.gpus else torch.device("cpu")
    here = Place(rank=0, local_rank=0, world=1, local_world=1, node=0, device=device)
    asked = Config(recipe=recipe, model=model, seq_len=seq_len, steps=10**6, eval_samples=0, profile=False, nproc=1)
    config = resolved(asked, hardware, {})
    if hardware.gpus:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(here.backend, store=store, rank=0, world_size=1)
    try:
        with tempfile.TemporaryDirectory(prefix="stepscope-price-") as folder, ExitStack() as open_:
            job = build(config, here, hardware).job
            bench = Bench(job, config, hardware, here, RunDir(Path(folder)), open_)
            step_ns, costs = _measured(bench, pairs)
    finally:
        dist.destroy_process_group()
    return PriceList(
        device=torch.cuda.get_device_name(device) if hardware.gpus else f"CPU, {hardware.cores} cores",
        recipe=job.recipe.name,
        emulated=hardware.why_emulated(job.recipe) is not None,
        model=str(config.model),
        seq_len=config.seq_len or 0,
        micro_batch=config.micro_batch,
        clock="wall" if hardware.gpus else "cpu time",
        step_ns=step_ns,
        costs=costs,
    )


class _Warnings(logging.Handler):
    """Keeps what a part says when it fails."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


def _measured(bench: Any, pairs: int) -> tuple[int, list[Cost]]:
    """The median of a step with nothing, and what each part costs."""
    parts, said = bench.parts(), _Warnings()
    on: dict[str, list[float]] = {part.name: [] for part in parts}
    off: dict[str, list[float]] = {part.name: [] for part in parts}
    missing: dict[str, str] = bench.missing()
    terminal, log = sys.stderr, logging.getLogger("stepscope.profiling")
    log.addHandler(said)
    step_s, number = 1.0, 0
    with open("/dev/null", "w") as nowhere, redirect_stderr(nowhere):
        for turn in range(WARM_UP + pairs):
            for part in parts:
                if part.name in missing:
                    continue
                number += 1
                repeats = max(1, round(part.least_s / step_s))
                with_it, without = _pair(part, number, bench.clock, repeats=repeats, first=turn % 2)
                if said.first:
                    missing[part.name], said.first = said.first, None
                elif turn >= WARM_UP:
                    on[part.name].append(with_it)
                    off[part.name].append(without)
                else:
                    step_s = without / 1e9
            if terminal.isatty():
                terminal.write(f"\rround {turn + 1} of {WARM_UP + pairs} ")
                terminal.flush()
        readings = bench.readings(pairs)
    log.removeHandler(said)
    if terminal.isatty():
        terminal.write("\r" + 30 * " " + "\r")
    bare = parts[0].name
    costs = [
        Cost(part=part.name, paid=part.paid, pairs=0, missing=missing[part.name])
        if part.name in missing
        else cost_of(part.name, part.paid, np.array(on[part.name]), np.array(off[part.name]))
        for part in parts
    ]
    once = [(bench.opened.name, bench.opened.paid, bench.opened.spent_ns[WARM_UP:])]
    once.append((readings.name, readings.paid, readings.spent_ns))
    costs += [cost_of(name, paid, np.array(spent), None) for name, paid, spent in once if spent]
    return round(float(np.median(off[bare]))), costs


def _pair(part: Any, number: int, clock: Callable[[], int], *, repeats: int, first: int) -> tuple[float, float]:
    """ns of a step with the part and without it; `first` 0: with it comes first."""

    def timed(step: Any) -> float:
        began = clock()
        for _ in range(repeats):
            step(number)
        return (clock() - began) / repeats

    without = timed(part.off) if first else 0.0
    with part.around(number):
        with_it = timed(part.on)
    return with_it, without or timed(part.off)


def cost_of(part: str, paid: str, on_ns: np.ndarray, off_ns: np.ndarray | None) -> Cost:
    """The cost of a part from its pairs; without `off_ns` that of something paid by itself."""
    more = on_ns if off_ns is None else on_ns - off_ns
    drawn = np.random.default_rng(0).choice(more, (10_000, len(more)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    cost = float(np.median(more))
    return Cost(
        part=part,
        paid=paid,
        cost_ns=round(cost),
        ci95_ns=(round(low), round(high)),
        resolved=not low <= 0 <= high,
        step_pct=None if off_ns is None else 100 * cost / float(np.median(off_ns)),
        pairs=len(more),
    )


def in_words(found: PriceList) -> str:
    """The list for people."""
    rows = [("part", "cost, median [95 %]", "of a step", "paid")]
    for cost in found.costs:
        share = "" if cost.step_pct is None or not cost.resolved else show_pct(cost.step_pct, signed=True)
        rows.append((cost.part, _shown(cost), share, cost.paid))
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [f"{a:<{wide[0]}}  {b:>{wide[1]}}  {c:>{wide[2]}}  {d}" for a, b, c, d in rows]
    lines.insert(1, "  ".join("─" * width for width in wide))
    clock = " CPU time" if found.clock == "cpu time" else ""
    emulated = ", FP8 emulated" if found.emulated else ""
    pairs = max(cost.pairs for cost in found.costs)
    whys = [f"{cost.part}: {NOT_MEASURED}: {cost.missing}" for cost in found.costs if cost.missing]
    return "\n".join(
        [
            f"What capturing costs a step of {show_ns(found.step_ns)}{clock}: {found.recipe}{emulated}, {found.model}, "
            f"{found.micro_batch} rows of {found.seq_len} positions, {found.device}",
            "",
            *lines,
            "",
            f"{pairs} pairs of steps with and without each. Not resolved: the interval holds 0; ask for more --steps.",
            *whys,
            "",
        ]
    )


def _shown(cost: Cost) -> str:
    if cost.cost_ns is None or cost.ci95_ns is None:
        return NOT_MEASURED
    low, high = (show_ns(end) for end in cost.ci95_ns)
    return f"{show_ns(cost.cost_ns) if cost.resolved else 'not resolved'} [{low}, {high}]"


def main() -> int:
    """The program that `stepscope capture --price` starts."""
    return run(single(price, "stepscope capture --price"), sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
