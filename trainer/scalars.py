"""TensorBoard's view of a run: one event file in the run's folder, written by rank 0.

Flushed with each step, so that a crash loses nothing; the file's name carries no host name.
"""

import time
from pathlib import Path
from typing import Any, Self

import msgspec
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.record_writer import RecordWriter

from ..record.manifest import Manifest
from ..record.steps import Step

_TAGS = {
    "train/loss": "loss",
    "train/lr": "lr",
    "train/grad_norm": "grad_norm",
    "eval/loss": "eval_loss",
    "eval/perplexity": "eval_perplexity",
    "eval/accuracy": "eval_accuracy",
    "memory/allocated_bytes": "memory_allocated_bytes",
    "memory/reserved_bytes": "memory_reserved_bytes",
    "memory/rss_bytes": "rss_bytes",
}
"""Tag → the field of a step it shows. A field that was not measured makes no point."""

_MS_TAGS = {
    "speed/step_ms": "duration_ns",
    "speed/data_ms": "data_ns",
    "speed/forward_ms": "forward_ns",
    "speed/backward_ms": "backward_ns",
    "speed/optimizer_ms": "optimizer_ns",
}


class Scalars:
    """Appends to the event file of one run."""

    def __init__(self, folder: Path) -> None:
        """Create the event file in `folder`."""
        path = folder / f"events.out.tfevents.{int(time.time())}.rank0"
        self._records = RecordWriter(path.open("ab"))
        self._write(Event(file_version="brain.Event:2"))

    def describe(self, manifest: Manifest) -> None:
        """Show the manifest as text, and its settings as hyper-parameters with the recipe first."""
        text = msgspec.json.format(msgspec.json.encode(manifest), indent=2).decode()
        self._add(text_pb("run.json", f"```json\n{text}\n```"), 0)
        settings: dict[str, Any] = {"recipe": manifest.recipe.name, "emulated": manifest.emulated}
        settings |= {
            name: value for name, value in manifest.config.items() if isinstance(value, bool | int | float | str)
        }
        self._add(hparams_pb(settings, trial_id=manifest.run), 0)

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        """Add a step's points. Tokens per second are those of all ranks, and left out for steps that are not timed."""
        points = {tag: getattr(step, field) for tag, field in _TAGS.items()}
        for tag, field in _MS_TAGS.items():
            value = getattr(step, field)
            points[tag] = None if value is None else value / 1e6
        if not step.marks:
            points["speed/tokens_per_s"] = tokens_of_all / (step.duration_ns / 1e9)
        # One small event: RecordWriter's checksum goes through the bytes in Python.
        found = [Summary.Value(tag=tag, simple_value=value) for tag, value in points.items() if value is not None]
        self._add(Summary(value=found), step.step)
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
