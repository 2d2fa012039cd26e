"""What keeps a capture from harming the job it watches: a part that fails is switched off, once and aloud."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_log = logging.getLogger("stepscope.profiling")


class Part:
    """One part of a capture. Work done under `guarded()` may fail; the first failure ends the part, not the job."""

    def __init__(self, name: str) -> None:
        """`name` says in the log which part it is."""
        self.name = name
        self.failure: str | None = None
        """The failure that ended it, in one line; None while it works."""

    @property
    def works(self) -> bool:
        """Whether it is still worth calling."""
        return self.failure is None

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Hold back any exception, log it, and end the part."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever a profiler or driver does, the job goes on
            self.failure = f"{type(error).__name__}: {' '.join(str(error).split())}"
            _log.warning("%s ends here, training goes on: %s", self.name, self.failure)
