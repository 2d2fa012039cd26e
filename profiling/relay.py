"""Between us and a program that another tool starts: the program has our own input and output, and we its exit code.

The tool starts this module in the program's place. It is handed our three standard streams over a socket, runs the
program on them, passes signals on, and sends the exit code back; whatever the tool prints, answers or dies of is apart
from that. The socket lies in a folder that only this user may enter.
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from .children import wait_for_program

_POLL_S = 0.1


class Relay:
    """Our end. While its context is open, a program can be started through `command`."""

    def __init__(self) -> None:
        """Nothing is opened yet."""
        self._folder = TemporaryDirectory(prefix="stepscope-")
        self._path = Path(self._folder.name) / "relay"
        self._listener = socket.socket(socket.AF_UNIX)
        self._line: socket.socket | None = None
        self._pid: int | None = None

    def __enter__(self) -> Self:
        """Listen. OSError where no socket can be made."""
        self._listener.bind(str(self._path))
        self._listener.listen(1)
        self._listener.settimeout(_POLL_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._listener.close()
        if self._line:
            self._line.close()
        self._folder.cleanup()

    def command(self, program: Sequence[str]) -> list[str]:
        """The words that start the program, for the other tool."""
        return [sys.executable, "-P", "-m", __name__, str(self._path), *program]

    def begun(self, *, limit_s: float, hope: Callable[[], bool]) -> bool:
        """Wait until the program begins; not once it has not after `limit_s`, or there is no more `hope` of it.

        After a No it cannot begin any more.
        """
        deadline = time.monotonic() + limit_s
        while True:
            last = time.monotonic() >= deadline or not hope()
            with suppress(TimeoutError):
                self._line, _ = self._listener.accept()
                break
            if last:
                self._listener.close()
                return False
        self._line.settimeout(None)
        self._pid = int(self._line.recv(32) or 0) or None
        streams = [_opened(number) for number in range(3)]
        with suppress(OSError):  # it has gone already: its result is unknown
            socket.send_fds(self._line, [b"0"], streams)
        for stream in streams:
            os.close(stream)
        return True

    def exit_code(self) -> int | None:
        """Wait until the program has ended; None where it went without a word."""
        if self._line is None:
            return None
        with suppress(ConnectionError):
            told = self._line.recv(32)
            return int(told) if told else None
        return None

    def send(self, signum: int) -> bool:
        """Pass a signal on to the program. False where it has not begun."""
        if self._pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._pid, signum)
        return True


def _opened(number: int) -> int:
    """A copy of one of our streams; of nothing where it is closed."""
    try:
        return os.dup(number)
    except OSError:
        return os.open(os.devnull, os.O_RDWR)


def main() -> int:
    """The other end, in the program's place."""
    path, *program = sys.argv[1:]
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(str(os.getpid()).encode())
        _, streams, _, _ = socket.recv_fds(line, 1, 3)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        code = wait_for_program(program)
        with suppress(OSError):
            line.sendall(str(code).encode())
    return code


if __name__ == "__main__":
    sys.exit(main())
