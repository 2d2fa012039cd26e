"""The error family: everything that is the user's to mend, each message with the way out.

Caught once per command (`dashboards.cli`, `trainer.command`), printed as one line on stderr, turned into `exit_code`.
Anything else is a bug of ours and keeps its traceback.
"""

import errno
from pathlib import Path

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""What the system says of a full disk and of a used-up quota."""


class UserError(Exception):
    """Something the user can mend; the message says what, where and the way out."""

    exit_code = 1


class ConfigError(UserError):
    """A flag or setting that cannot be; the message names it. Exit code 2, as for any misuse of a command line."""

    exit_code = 2


class TraceError(UserError):
    """An input file that cannot be read as what it claims to be."""

    def __init__(self, path: Path | str, what: str) -> None:
        """`path` is the file, `what` says what is wrong with it and what to do."""
        super().__init__(f"{path}: {what}")
        self.path = Path(path)
        self.what = what


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its kind where it has none: for a report in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def plain_reason(error: OSError) -> str:
    """What the system refused and where, in words that say the way out where it is a full disk."""
    place = f" ({error.filename})" if error.filename else ""
    if error.errno in NO_SPACE:
        return f"the disk is full{place}; make room"
    return f"{error.strerror or type(error).__name__}{place}"
