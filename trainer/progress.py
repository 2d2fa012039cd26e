"""What a run shows while it trains, on stderr and from rank 0 only: a bar on a terminal, plain lines in a pipe."""

import sys
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..record.steps import Step
from ..record.units import show_count, show_loss, show_ns, show_pct


class Progressing(Protocol):
    """Something that is told of steps and remarks."""

    def expect(self, steps: int) -> None:
        """So many steps will be in all; said before the first."""

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        """A step was finished."""

    def note(self, text: str) -> None:
        """Say something in one line."""

    def close(self) -> None:
        """Nothing more will come."""


class Silent:
    """For every rank but the first."""

    def expect(self, steps: int) -> None:
        """Say nothing."""

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def close(self) -> None:
        """Nothing to close."""


class Lines:
    """One line every so many steps, for logs."""

    def __init__(self, every: int) -> None:
        """A line for each `every` steps."""
        self._steps = 0
        self._every = every

    def expect(self, steps: int) -> None:
        """`steps` in all."""
        self._steps = steps

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        """Write the line where it is due: every so many steps, at the first, the last, and after an evaluation."""
        if step.step % self._every == 0 or step.step in (1, self._steps) or step.eval_loss is not None:
            self.note(f"step {step.step}/{self._steps}  {describe(step, tokens_of_all)}")

    def note(self, text: str) -> None:
        """Write a line."""
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Nothing to close."""


class Bar:
    """A bar with the latest figures, for a terminal."""

    def __init__(self) -> None:
        """Show an empty bar."""
        self._progress = Progress(
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.description}", markup=False),
            console=Console(stderr=True),
            transient=False,
        )
        self._task = self._progress.add_task("", total=None)
        self._progress.start()

    def expect(self, steps: int) -> None:
        """`steps` in all."""
        self._progress.update(self._task, total=steps)

    def record(self, step: Step, *, tokens_of_all: int) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=step.step, description=describe(step, tokens_of_all))

    def note(self, text: str) -> None:
        """Write a line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._progress.stop()


def progress_for(*, rank: int, every: int) -> Progressing:
    """What suits this rank and this stderr."""
    if rank:
        return Silent()
    return Bar() if sys.stderr.isatty() else Lines(every)


def describe(step: Step, tokens_of_all: int) -> str:
    """A step in one line. A rate is shown for timed steps only."""
    rate = f"{show_count(tokens_of_all / step.duration_ns * 1e9)} tokens/s" if not step.marks else step.marks[0]
    parts = [f"loss {show_loss(step.loss)}", f"{show_ns(step.duration_ns)}", rate]
    if step.eval_loss is not None and step.eval_accuracy is not None:
        parts.append(f"eval loss {show_loss(step.eval_loss)}, accuracy {show_pct(step.eval_accuracy * 100)}")
    return "  ".join(parts)
