"""What a rank writes down about its steps: the step file on every rank, scalars and progress on the first."""

from contextlib import ExitStack, suppress
from typing import Self

from ..profiling.guard import Part
from ..record.errors import UserError, plain_reason
from ..record.jsonl import JsonlWriter
from ..record.manifest import Manifest
from ..record.run import RunDir
from ..record.steps import Step
from .checkpoints import ways_on
from .progress import Progressing
from .scalars import Scalars
from .weights_biases import WeightsBiases


class Watch:
    """Tells a rank's step file, scalars, wandb where asked for, and progress of each step."""

    def __init__(
        self, run: RunDir, rank: int, manifest: Manifest, progress: Progressing, *, wandb: bool, done: int = 0
    ) -> None:
        """Open the files of `rank` in the run's folder; `manifest` is shown beside the scalars; `done` steps are over.

        `progress` stays its owner's to close.
        """
        self._open = ExitStack()
        self._run, self._progress = run, progress
        try:
            self._steps = self._open.enter_context(JsonlWriter(run.steps_path(rank)))
        except OSError as error:
            raise UserError(f"no step can be written down: {plain_reason(error)}") from error
        self._scalars: Scalars | None = None
        self._part = Part("TensorBoard's file")
        if rank == 0:
            with self._part.guarded():
                self._scalars = Scalars(run.path, after=done)
                self._open.callback(self._close_scalars)
                self._scalars.describe(manifest)
        self._wandb = self._open.enter_context(WeightsBiases(run.path, manifest)) if wandb and rank == 0 else None

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        """Write a finished step everywhere. UserError where it cannot be kept; scalars end alone."""
        try:
            self._steps.write(step)
        except OSError as error:
            raise UserError(
                f"step {step.step} could not be written down: {plain_reason(error)}, then {ways_on(self._run)}"
            ) from error
        if self._steps.lost:
            raise UserError(
                f"the run's folder {self._run.path} was removed or moved while step {step.step} was trained; training "
                "stops, for nothing more could be kept"
            )
        if self._scalars and self._part.works:
            with self._part.guarded():
                self._scalars.record(step, tokens_of_all=tokens_of_all)
        if self._wandb:
            self._wandb.record(step, tokens_of_all=tokens_of_all)
        self._progress.record(step, tokens_of_all=tokens_of_all)

    def _close_scalars(self) -> None:
        with suppress(OSError):  # what could not be written was said when it happened
            if self._scalars:
                self._scalars.close()

    def __enter__(self) -> Self:
        """The watch itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._open.close()
