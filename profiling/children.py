"""Running another program to its end, with the signals that end programs going where they should."""

import signal
import subprocess
from collections.abc import Sequence


def wait_for(command: Sequence[str], stdout: int | None = None) -> int:
    """Run a command to its end and answer its exit code, 128 and the signal's number if one ended it.

    It decides itself what Ctrl-C means, which its terminal sends to both; SIGTERM is passed on to it, and SIGHUP
    where it is not ignored, as under nohup.
    """
    with subprocess.Popen(command, stdout=stdout) as child:
        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda signum, _: child.send_signal(signum)),
        }
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda signum, _: child.send_signal(signum))
        try:
            code = child.wait()
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
    return code if code >= 0 else 128 - code
