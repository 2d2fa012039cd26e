"""The training loop: what one optimizer step does, in order, and what is written down about it."""

import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import psutil
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from ..profiling.ranges import region
from ..record.recipes import Recipe
from ..record.steps import Mark, Step
from .batches import HeldOutRows, TrainingRows
from .checkpoints import Checkpoints
from .clock import Phases, StepClock
from .config import Config
from .evaluation import answer_logits, evaluate, summed_loss
from .instruments import Instruments
from .learning_rate import lr_factor
from .precision import precompute_scales
from .ranks import CommonError
from .sharding import accumulate
from .stopping import SIGNALS, StopRequest, elected
from .watch import Watch

_THIS_PROCESS = psutil.Process()


@dataclass(frozen=True, kw_only=True)
class Job:
    """All that a rank needs to train."""

    config: Config
    recipe: Recipe
    rank: int
    world: int
    device: torch.device
    model: Any
    optimizer: torch.optim.Optimizer
    rows: TrainingRows
    held_out: HeldOutRows

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.config.steps or 0


class Learned(NamedTuple):
    """What all ranks agree on at the end of a step."""

    loss: float
    """Σ NLL / Σ unmasked tokens over all ranks, before the update."""
    grad_norm: float
    """Over all parameters, before clipping."""
    lr: float
    tokens: int
    """Unmasked tokens of this rank."""
    tokens_of_all: int
    signum: int
    """The signal some rank has received; 0 for none."""


class Ended(NamedTuple):
    """How the loop ended: the steps finished, and the signal that all ranks stopped for (0: none)."""

    steps: int
    signum: int


def train(
    job: Job,
    instruments: Instruments,
    watch: Watch,
    checkpoints: Checkpoints,
    stop: StopRequest,
    *,
    done: int = 0,
    until: int | None = None,
) -> Ended:
    """Run the steps after the first `done`, up to the one at which all ranks have learned of a stop.

    With `until` the run breaks off after that step, on its way to all its steps.
    """
    until = until or job.steps
    for number in range(done + 1, until + 1):
        marks: list[Mark] = ["first"] if number == done + 1 else []
        graphs = _graphs_compiled(job)
        if job.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        if checkpoints.writing:
            marks.append("checkpoint")
        marks += instruments.before(number)

        clock = StepClock(job.device)
        with region("step"):
            learned = optimizer_step(job, clock, number, stop)
        measured = _measured(job, clock)
        if _graphs_compiled(job) != graphs:
            marks.append("compiling")
        instruments.after(number)

        if _evaluation_due(job, number, learned):
            measured |= _evaluation(job)
            marks.append("eval")
        last = bool(learned.signum) or number == job.steps
        held_up_ns = checkpoints.after(number, measured.get("eval_loss"), last=last)
        if held_up_ns is not None:
            measured["checkpoint_ns"] = held_up_ns
            marks += [] if "checkpoint" in marks else ["checkpoint"]
        if instruments.window:
            before = time.perf_counter_ns()
            instruments.window.step(number)
            measured["profiler_ns"] = time.perf_counter_ns() - before

        step = Step(
            step=number,
            rank=job.rank,
            loss=learned.loss,
            grad_norm=learned.grad_norm,
            lr=learned.lr,
            tokens=learned.tokens,
            positions=job.rows.positions_per_step,
            marks=tuple(marks),
            **measured,
        )
        watch.record(step, tokens_of_all=learned.tokens_of_all)
        if learned.signum:
            return Ended(number, learned.signum)
    return Ended(until, 0)


def optimizer_step(job: Job, clock: Phases, number: int, stop: StopRequest) -> Learned:
    """Data, forward and backward for each micro-batch, one update; ends with the loss read back on every rank."""
    with clock.phase("data"):
        batches, tokens_of_all = job.rows.step(number)
    summed = torch.zeros((), device=job.device)
    for batch in batches:
        if len(batches) > 1:  # it asks every module of the model
            accumulate(job.model, last=batch is batches[-1])
        with clock.phase("forward"):
            loss = summed_loss(answer_logits(job.model, batch), batch)
        with clock.phase("backward"):
            # FSDP averages gradients over ranks; the loss is a mean over the tokens of all ranks together.
            (loss * (job.world / tokens_of_all)).backward()
        summed += loss.detach()
    with clock.phase("optimizer"):
        norm = torch.nn.utils.clip_grad_norm_(job.model.parameters(), job.config.clip)
        grad_norm = norm.full_tensor() if isinstance(norm, DTensor) else norm
        lr = (job.config.lr or 0.0) * lr_factor(number - 1, job.config.warmup_steps or 0, job.steps)
        for group in job.optimizer.param_groups:
            group["lr"] = lr
        job.optimizer.step()
        job.optimizer.zero_grad()
        if job.recipe.precompute_scales:
            precompute_scales(job.model)
    asked = stop.asked()
    agreed = torch.tensor([0.0, *(asked == signum for signum in SIGNALS)], dtype=torch.float64, device=job.device)
    agreed[0] = summed
    dist.all_reduce(agreed)
    total, *votes = agreed.tolist()
    loss_of_all, norm_of_all = total / tokens_of_all, float(grad_norm)
    # A norm that is no number has made the weights none too: no checkpoint may be written of them.
    for what, value in (("loss", loss_of_all), ("gradient norm", norm_of_all)):
        if not math.isfinite(value):
            raise CommonError(
                f"the {what} is {value} at step {number} and training cannot go on from there; lower --lr (it is "
                f"{lr:.3g}), warm up longer, or look at the last steps in the run's folder"
            )
    tokens = sum(batch.tokens for batch in batches)
    return Learned(loss_of_all, norm_of_all, lr, tokens, tokens_of_all, elected(votes))


def _measured(job: Job, clock: StepClock) -> dict[str, Any]:
    """Times and memory of the step just finished, by the names of `Step`'s fields."""
    measured: dict[str, Any] = {"start_ns": clock.start_ns, "duration_ns": clock.elapsed_ns()}
    measured |= {f"{phase}_ns": duration for phase, duration in clock.durations_ns().items()}
    measured["rss_bytes"] = _THIS_PROCESS.memory_info().rss
    if job.device.type == "cuda":
        measured["memory_allocated_bytes"] = torch.cuda.max_memory_allocated()
        measured["memory_reserved_bytes"] = torch.cuda.max_memory_reserved()
    return measured


def _evaluation_due(job: Job, number: int, learned: Learned) -> bool:
    """Whether to evaluate after this step; never on the way out of a stop."""
    if not len(job.held_out) or learned.signum:
        return False
    every = job.config.eval_every
    return number == job.steps or bool(every and number % every == 0)


def _evaluation(job: Job) -> dict[str, Any]:
    clock = StepClock(job.device)
    with region("eval"):
        found = evaluate(job.model, job.held_out, job.device)
    return {
        "eval_ns": clock.elapsed_ns(),
        "eval_loss": found.loss,
        "eval_perplexity": found.perplexity,
        "eval_accuracy": found.accuracy,
    }


def _graphs_compiled(job: Job) -> int:
    """Graphs that torch.compile has made so far in this process."""
    if not job.config.compile:
        return 0
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
