"""SIGINT and SIGTERM: during set-up they end a process at once; during training all ranks finish the same step."""

import signal
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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
        self.training = False
        """Whether a signal waits for the end of the step rather than ending the process."""

    def install(self) -> None:
        """Take over SIGINT and SIGTERM of this process."""
        for signum in SIGNALS:
            signal.signal(signum, self._received)

    def _received(self, signum: int, _: FrameType | None) -> None:
        self.signum = self.signum or signum
        if not self.training:
            raise Stopped(signum)


def nothing_recorded(signum: int) -> str:
    """What a stop before training says, as a whole line."""
    return f"profile-train: stopped by {signal_name(signum)} before training began; nothing was recorded\n"


def signal_name(signum: int) -> str:
    """`SIGTERM` for 15."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"
