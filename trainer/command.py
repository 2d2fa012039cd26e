"""The command `profile-train`: one program for the launcher and for its workers, told apart by the environment."""

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from ..record.document import indented
from ..record.errors import ConfigError, UserError
from ..record.program import run, single
from .config import RUN_GROUP, Config, is_sweep
from .ranks import RUN_FOLDER, is_worker, says_for_node
from .sources import settings_from_elsewhere
from .stopping import Stopped, StopRequest, nothing_recorded

if TYPE_CHECKING:
    from .hardware import Hardware

_DEFAULTS = Config()


def profile_train(
    config: Config = _DEFAULTS,
    *,
    dry_run: Annotated[bool, Parameter(negative="", group=RUN_GROUP, show_default=False)] = False,
) -> int:
    """Train a Llama under FSDP2 in one precision recipe, or several in turn, and record it: traces, telemetry, scalars.

    Outside torchrun it launches its own workers. No run overwrites another.

    Example: `profile-train --recipe mxtw --steps 8`, or `profile-train --recipe bf16,mxtw,rowwise --repeats 3`

    Parameters
    ----------
    dry_run
        Print the settings as they would run, as JSON, and stop.
    """
    _check_installed()
    from .quiet import silence_known_noise

    silence_known_noise()
    stop = StopRequest()
    stop.install()
    from .hardware import probe
    from .resolve import resolved, resolved_recipe, shown_settings

    hardware = probe()
    if is_sweep(config):
        return _sweep(config, hardware, dry_run=dry_run)
    config = resolved(config, hardware, os.environ)
    if dry_run:
        recipe = resolved_recipe(config)
        shown = shown_settings(config) | {"recipe": recipe, "emulated_why": hardware.why_emulated(recipe)}
        return _print(shown)
    if is_worker(os.environ):
        if "nsys" in config.captures and RUN_FOLDER not in os.environ:
            raise ConfigError(
                "--capture nsys: nsys is started around our own launcher, and this is a worker of another one already; "
                "leave nsys out, or run it without torchrun on one machine"
            )
        from .worker import work

        return work(config, hardware, sys.argv[1:], stop)
    from .launch import launch

    return launch(config, hardware, sys.argv[1:])


def _sweep(config: Config, hardware: "Hardware", *, dry_run: bool) -> int:
    if is_worker(os.environ):
        raise ConfigError(
            "--recipe, --wrap, --repeats: a sweep launches its own workers, and this is a launcher's worker already; "
            "ask for one run here, or run the sweep without torchrun"
        )
    from . import sweep

    if dry_run:
        sys.stdout.write(sweep.dry_run(config, hardware))
        return 0
    folder = sweep.sweep(config, hardware, sys.argv[1:])
    sys.stdout.write(f"{folder}\n")
    return 0


def _print(shown: object) -> int:
    sys.stdout.write(indented(shown).decode() + "\n")
    return 0


def _check_installed() -> None:
    """UserError where the training side of the package is not installed."""
    missing = [name for name in ("torch", "torchao", "transformers", "nvtx", "pynvml") if find_spec(name) is None]
    if missing:
        raise UserError(f"training needs {', '.join(missing)}; install it with: pip install 'stepscope[train]'")


def program() -> App:
    """The command line."""
    made = single(profile_train, "profile-train")
    made.config = [settings_from_elsewhere]
    return made


def main(arguments: list[str] | None = None) -> int:
    """Entry point of `profile-train`; `arguments` take the place of the process's own."""
    if arguments is not None:
        sys.argv[1:] = arguments
    try:
        return run(program(), sys.argv[1:], silent=not says_for_node(os.environ))
    except Stopped as stopped:
        if not is_worker(os.environ):
            sys.stderr.write(nothing_recorded(stopped.signum))
        return 128 + stopped.signum
