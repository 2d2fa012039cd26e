"""SIGINT, SIGTERM, SIGHUP: during set-up they end a process at once; during training all ranks finish the same step.

A rank whose launcher is gone, killed without a chance to say so, stops as if it had received SIGHUP: nobody would end
it any more, and a resumed run would have two writers.
"""

import os
import signal
from collections.abc import Sequence
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP_CODES = tuple(128 + signum for signum in SIGNALS)
"""Exit codes of a run that was stopped."""


class Stopped(BaseException):
    """A signal that came before training had begun. Not an error; carries the signal."""

    def __init__(self, signum: int) -> None:
        """`signum` is the signal's number."""
        super().__init__(signum)
        self.signum = signum


class StopRequest:
    """Remembers the first signal. Every rank has one; ranks learn of each other's with each step's loss."""

    def __init__(self) -> None:
        """Nothing asked for yet; `install` starts listening."""
        self.signum = 0
        self._parent = os.getppid()
        self.training = False
        """Whether a signal waits for the end of the step rather than ending the process."""

    def install(self) -> None:
        """Take over the signals of this process; SIGHUP stays ignored where it is, as under nohup."""
        for signum in SIGNALS:
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, self._received)

    def asked(self) -> int:
        """The signal to stop for; 0 for none."""
        if not self.signum and os.getppid() != self._parent:
            self.signum = signal.SIGHUP
        return self.signum

    def _received(self, signum: int, _: FrameType | None) -> None:
        self.signum = self.signum or signum
        if not self.training:
            raise Stopped(signum)


def elected(votes: Sequence[float]) -> int:
    """The signal that most ranks have received, `votes` being counted in the order of SIGNALS; 0 where none has any."""
    most = max(votes)
    return SIGNALS[votes.index(most)] if most else 0


def nothing_recorded(signum: int) -> str:
    """What a stop before training says, as a whole line."""
    return f"profile-train: stopped by {signal_name(signum)} before training began; nothing was recorded\n"


def signal_name(signum: int) -> str:
    """`SIGTERM` for 15."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
