"""What a rank writes down about its steps: the step file on every rank, scalars and progress on the first."""

from contextlib import ExitStack
from typing import Self

from ..record.jsonl import JsonlWriter
from ..record.manifest import Manifest
from ..record.run import RunDir
from ..record.steps import Step
from .progress import Progressing
from .scalars import Scalars
from .weights_biases import WeightsBiases


class Watch:
    """Tells a rank's step file, scalars, wandb where asked for, and progress of each step."""

    def __init__(self, run: RunDir, rank: int, manifest: Manifest, progress: Progressing, *, wandb: bool) -> None:
        """Open the files of `rank` in the run's folder; `manifest` is shown beside the scalars.

        `progress` stays its owner's to close.
        """
        self._open = ExitStack()
        self._progress = progress
        self._steps = self._open.enter_context(JsonlWriter(run.steps_path(rank)))
        self._scalars = self._open.enter_context(Scalars(run.path)) if rank == 0 else None
        if self._scalars:
            self._scalars.describe(manifest)
        self._wandb = self._open.enter_context(WeightsBiases(run.path, manifest)) if wandb and rank == 0 else None

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        """Write a finished step everywhere."""
        self._steps.write(step)
        if self._scalars:
            self._scalars.record(step, tokens_of_all=tokens_of_all)
        if self._wandb:
            self._wandb.record(step, tokens_of_all=tokens_of_all)
        self._progress.record(step, tokens_of_all=tokens_of_all)

    def __enter__(self) -> Self:
        """The watch itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self._open.close()
