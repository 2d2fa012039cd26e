"""How each of our command lines runs: the one place where a user's mistake becomes one line and an exit code."""

import io
import os
import sys
from collections.abc import Callable
from typing import Any, get_args

from cyclopts import App, ArgumentCollection, CycloptsError

from .. import __version__
from .errors import ConfigError, UserError, plain_reason


def run(program: App, arguments: list[str] | None = None, *, silent: bool = False) -> int:
    """Run a command line and answer its exit code; a command may answer its own by returning an int.

    0 fine, 1 bad data or a failed run (UserError), 2 misuse of the command line, 130 interrupted. A UserError, a misuse
    or a place that the system refuses costs one line on stderr; any other exception is a bug and keeps its traceback. A
    closed pipe is no error. `silent`: another process says the line.
    """
    complain = _keep_silent if silent else _complain
    name = program.name[0]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path with bytes that are no text is printed as it is
    program.suppress_keyboard_interrupt = False
    program.config = (whole_numbers, *(program.config or ()))
    try:
        result = program(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        return complain(f"{name}: {' '.join(str(error).split())} See {name} --help.", 2)
    except UserError as error:
        return complain(f"{name}: {error}", error.exit_code)
    except KeyboardInterrupt:
        return complain(f"{name}: interrupted", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        return complain(f"{name}: {plain_reason(error)}", 1)


def whole_numbers(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """A cyclopts config source that fills in nothing. ConfigError for a fraction where a whole number is asked for.

    cyclopts itself would round it.
    """
    for argument in arguments:
        for token in argument.tokens:
            if _is_whole(argument.hint) and _is_fraction(token.value):
                raise ConfigError(f"{argument.name}: a whole number is needed, not {token.value}")


def _is_whole(hint: Any) -> bool:
    kinds = get_args(hint) or (hint,)
    return int in kinds and float not in kinds


def _is_fraction(text: str) -> bool:
    try:
        return not float(text).is_integer()
    except ValueError:
        return False  # cyclopts says so of what is no number at all


def single(command: Callable[..., object], name: str) -> App:
    """A program of one command, for a console script of its own."""
    program = App(name=name, version=__version__)
    program.default(command)
    return program


def _complain(line: str, code: int) -> int:
    sys.stderr.write(line + "\n")
    return code


def _keep_silent(_: str, code: int) -> int:
    return code
