"""Weights & Biases' view of a run: an offline run in `wandb/` of the run's folder, written by rank 0.

`wandb sync` sends it on where that is wanted. Nothing about the machine, its user or the code is handed to it.
"""

import os
import shutil
from pathlib import Path
from typing import Any, Self

from ..profiling.guard import Part
from ..record.manifest import Manifest
from ..record.steps import Step
from .points import hyperparameters, points

_WITHOUT = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    "email": "",
    "host": "",
    "program": "profile-train",
    "save_code": False,
    "silent": True,
    "symlink": False,
    "username": "",
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}
"""Settings of wandb that keep names, hardware, code and packages out of its files."""


class WeightsBiases:
    """Appends to an offline run. A failure of wandb ends this view, never the job."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        """Begin a run in `folder/wandb`, named as the manifest's: offline, unless `WANDB_MODE` says otherwise."""
        self._part = Part("wandb")
        self._run: Any = None
        with self._part.guarded():
            import wandb

            settings: dict[str, Any] = {"mode": os.environ.get("WANDB_MODE", "offline"), **_WITHOUT}
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "stepscope"),
                name=manifest.run,
                dir=str(folder),
                config=hyperparameters(manifest),
                settings=wandb.Settings(**settings),
            )

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        """Add a step's points; `tokens_of_all` are those of all ranks."""
        if self._part.works:
            with self._part.guarded():
                self._run.log(points(step, tokens_of_all=tokens_of_all), step=step.step)

    def close(self) -> None:
        """End the run and wandb's own process; its logs, which name folders of this machine, are removed."""
        if self._run is None:
            return
        with self._part.guarded():
            import wandb

            written = Path(self._run.dir).parent
            self._run.finish()
            wandb.teardown()
            shutil.rmtree(written / "logs", ignore_errors=True)

    def __enter__(self) -> Self:
        """The view itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the run."""
        self.close()
