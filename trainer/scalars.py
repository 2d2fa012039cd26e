"""TensorBoard's view of a run: one event file in the run's folder, written by rank 0.

Flushed with each step, so that a crash loses nothing; the file's name carries no host name.
"""

import time
from pathlib import Path
from typing import Self

import msgspec
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from ..record.manifest import Manifest
from ..record.steps import Step
from .points import hyperparameters, points


class Scalars:
    """Appends to the event file of one run."""

    def __init__(self, folder: Path, *, after: int = 0) -> None:
        """Create the event file in `folder`, of a run that goes on after step `after`.

        TensorBoard drops the later points of earlier files: those steps are trained again.
        """
        path = folder / f"events.out.tfevents.{int(time.time())}.rank0"
        self._records = RecordWriter(path.open("ab"))
        self._write(Event(file_version="brain.Event:2"))
        if after:
            self._write(Event(session_log=SessionLog(status=SessionLog.START), step=after + 1))

    def describe(self, manifest: Manifest) -> None:
        """Show the manifest as text, and its settings as hyper-parameters with the recipe first."""
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode()
        self._add(text_pb("run.json", f"```json\n{text}\n```"), 0)
        self._add(hparams_pb(hyperparameters(manifest), trial_id=manifest.run), 0)

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        """Add a step's points; `tokens_of_all` are those of all ranks."""
        # One small event: RecordWriter's checksum goes through the bytes in Python.
        found = points(step, tokens_of_all=tokens_of_all)
        self._add(
            Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in found.items()]), step.step
        )
        self._records.flush()

    def close(self) -> None:
        """Close the file."""
        self._records.close()

    def __enter__(self) -> Self:
        """The scalars themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()

    def _add(self, summary: Summary, step: int) -> None:
        self._write(Event(summary=summary, step=step))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())
