"""Running another program to its end, with the signals that end programs going where they should."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

_NOT_STARTED = 126
"""What shells answer for a program that is there and does not start."""


def wait_for(command: Sequence[str], stdout: int | None = None) -> int:
    """Run a command to its end and answer its exit code, 128 and the signal's number if one ended it.

    It decides itself what Ctrl-C means, which its terminal sends to both; SIGTERM is passed on to it, and SIGHUP
    where it is not ignored, as under nohup.
    """
    with subprocess.Popen(command, stdout=stdout) as child, signals_left(to=child.send_signal):
        code = child.wait()
    return code if code >= 0 else 128 - code


def wait_for_program(command: Sequence[str]) -> int:
    """The same for a program that the user names: one that does not start costs a line and the exit code 126."""
    try:
        return wait_for(command)
    except OSError as error:
        sys.stderr.write(f"stepscope capture: {command[0]}: does not start ({error.strerror})\n")
        return _NOT_STARTED


@contextmanager
def signals_left(to: Callable[[int], object]) -> Iterator[None]:
    """Meanwhile Ctrl-C does nothing here, and `to` is called with SIGTERM, and with SIGHUP where it is not ignored."""
    handlers: dict[signal.Signals, Callable[..., object]] = {signal.SIGINT: lambda *_: None}
    handlers[signal.SIGTERM] = handlers[signal.SIGHUP] = lambda signum, _: to(signum)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        del handlers[signal.SIGHUP]
    with _handling(handlers):
        yield


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Meanwhile SIGTERM raises KeyboardInterrupt too."""
    with _handling({signal.SIGTERM: signal.default_int_handler}):
        yield


@contextmanager
def _handling(handlers: Mapping[signal.Signals, Callable[..., object]]) -> Iterator[None]:
    before = {signum: signal.signal(signum, handler) for signum, handler in handlers.items()}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
