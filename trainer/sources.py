"""Where settings come from besides flags: a run to resume, a TOML file, a preset.

A flag wins over all of them, a file over a preset.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cyclopts import App, ArgumentCollection
from cyclopts.config import Dict

from ..record.errors import ConfigError
from ..record.run import RunDir
from .resolve import SHIPPED

PRESETS = Path(__file__).with_name("presets.toml")

ON_RESUME = (
    "resume", "steps", "checkpoint_every", "checkpoint_keep", "eval_every", "profile", "profile_wait", "profile_warmup",
    "profile_active", "profile_repeat", "telemetry_period", "wandb", "log_every", "hints", "save_model", "nproc",
    "dry_run",
)  # fmt: skip
"""Settings that a resumed run may change; any other would make two runs of one."""

_LENGTH = {"steps", "epochs"}
"""Two ways to say one thing: whichever the first source gives, the later ones give neither."""


def settings_from_elsewhere(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """A cyclopts config source: fills in what the command line leaves open. ConfigError where a source is no good."""
    given = {_field(argument.name): argument.tokens[0].value for argument in arguments if argument.tokens}
    if "resume" in given:
        if refused := sorted(given.keys() - set(ON_RESUME)):
            names = ", ".join("--" + name.replace("_", "-") for name in refused)
            raise ConfigError(f"--resume goes on with the run's own settings; leave out {names}, or start a new run")
        sources = {"the run to resume": settings_of_run(Path(given["resume"]))}
    else:
        sources = {}
        if "config" in given:
            sources[given["config"]] = settings_of_file(Path(given["config"]))
        if "preset" in given:
            sources[f"preset {given['preset']}"] = preset(given["preset"])
    length = given.keys() & _LENGTH
    for source, settings in sources.items():
        known = _known(settings)
        if length:
            known = {name: value for name, value in known.items() if name not in _LENGTH}
        length |= known.keys() & _LENGTH
        Dict(known, source=source)(app, commands, arguments)


def settings_of_run(path: Path) -> dict[str, Any]:
    """The settings that the run in `path` has been training with."""
    manifest = RunDir(path).manifest()
    found = manifest.config | {"recipe": manifest.recipe.name}
    if manifest.world.nodes == 1:
        found["nproc"] = manifest.world.size
    if found.get("data") == SHIPPED:
        found["data"] = None
    for name in ("data", "model"):
        if isinstance(found.get(name), str) and found[name].startswith("~"):
            found[name] = str(Path(found[name]).expanduser())
    return found


def settings_of_file(path: Path) -> dict[str, Any]:
    """A TOML file's settings, named as the flags are, with `-` or `_`."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"--config: there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"--config: {path} does not read as TOML ({error})") from None


def preset(name: str) -> dict[str, Any]:
    """The settings of a preset; ConfigError lists the names there are."""
    presets = tomllib.loads(PRESETS.read_text(encoding="utf-8"))
    if name not in presets:
        raise ConfigError(f"--preset: there is no preset {name!r}; choose from {', '.join(presets)}")
    settings: dict[str, Any] = presets[name]
    return settings


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {_field(name): value for name, value in settings.items() if value is not None}


def _field(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")
