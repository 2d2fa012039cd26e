"""Where settings come from besides flags: a run to resume, a TOML file, a preset.

A flag wins over all of them, a file over a preset.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from cyclopts import App, ArgumentCollection
from cyclopts.config import Dict

from ..record.errors import ConfigError
from ..record.run import RunDir
from ..record.sweep import FILE as SWEEP_FILE
from ..record.sweep import read_sweep
from .config import Config
from .resolve import SHIPPED

PRESETS = Path(__file__).with_name("presets.toml")

ON_RESUME = (
    "resume", "steps", "checkpoint_every", "checkpoint_keep", "eval_every", "capture", "profile", "profile_at",
    "profile_ranks", "profile_shapes", "profile_memory", "profile_stacks", "profile_limit", "profile_wait",
    "profile_warmup", "profile_active", "profile_repeat", "nsys_graph_nodes", "nsys_operators", "nsys_memory",
    "telemetry_period", "wandb", "log_every", "hints", "save_model", "nproc", "dry_run",
)  # fmt: skip
"""Settings that a resumed run may change; any other would make two runs of one."""

SWEEP_ON_RESUME = ("resume", "log_every", "hints", "dry_run")
"""The same for a sweep, whose runs must be alike."""

_LISTS = ("recipe", "wrap", "capture")
"""Settings that may be several names, as a list in a file."""

_FLAGS_ONLY = ("resume", "config", "preset")
"""Settings that say where others come from: in a file they would come too late."""

_HINTS = get_type_hints(Config)

_KINDS: tuple[tuple[Any, str], ...] = (
    (tuple[float, float], "a list of two numbers"),
    (bool, "true or false"),
    (int, "a whole number"),
    (float, "a number"),
    (str, "a text"),
    (Path, "a text"),
)
"""Kind of a setting → what a file must give it."""

_EITHER = ({"steps", "epochs"}, {"capture", "profile"})
"""Pairs of ways to say one thing: whichever the first source gives, the later ones give neither."""


def settings_from_elsewhere(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """A cyclopts config source: fills in what the command line leaves open. ConfigError where a source is no good."""
    given = {_field(argument.name): argument.tokens[0].value for argument in arguments if argument.tokens}
    if "resume" in given:
        path = Path(given["resume"])
        of_sweep = (path / SWEEP_FILE).exists()
        if refused := sorted(given.keys() - set(SWEEP_ON_RESUME if of_sweep else ON_RESUME)):
            names = ", ".join("--" + name.replace("_", "-") for name in refused)
            raise ConfigError(f"--resume goes on with the run's own settings; leave out {names}, or start a new run")
        sources = {"what is resumed": settings_of_sweep(path) if of_sweep else settings_of_run(path)}
    else:
        sources = {}
        if "config" in given:
            sources[given["config"]] = settings_of_file(Path(given["config"]))
        if "preset" in given:
            sources[f"preset {given['preset']}"] = preset(given["preset"])
    said: set[str] = set(given)
    for source, settings in sources.items():
        taken = {name for pair in _EITHER if pair & said for name in pair}
        known = {name: value for name, value in _known(settings).items() if name not in taken}
        said |= known.keys()
        Dict(known, source=source)(app, commands, arguments)


def settings_of_run(path: Path) -> dict[str, Any]:
    """The settings that the run in `path` has been training with."""
    manifest = RunDir(path).manifest()
    found = manifest.config | {"recipe": manifest.recipe.name}
    if manifest.world.nodes == 1:
        found["nproc"] = manifest.world.size
    if found.get("data") == SHIPPED:
        found["data"] = None
    return _at_home(found)


def settings_of_sweep(path: Path) -> dict[str, Any]:
    """The settings that the sweep in `path` was planned with."""
    return _at_home(read_sweep(path).settings)


def settings_of_file(path: Path) -> dict[str, Any]:
    """A TOML file's settings, named as the flags are, with `-` or `_`."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"--config: there is no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"--config: {path} does not read as TOML ({error})") from None
    known = [field.name for field in fields(Config)]
    for name, value in settings.items():
        if _field(name) in _FLAGS_ONLY:
            raise ConfigError(f"--config: {path} sets {name}, which only the flag --{_field(name)} can")
        if _field(name) in _LISTS and isinstance(value, list) and not all(isinstance(word, str) for word in value):
            raise ConfigError(f"--config: {path} has a list in {name} with something that is no name")
        if _field(name) not in known:
            near = get_close_matches(_field(name), known, n=1)
            hint = f"did you mean {near[0]}?" if near else "settings are named as the flags of profile-train --help"
            raise ConfigError(f"--config: {path} has a setting {name!r} that there is not; {hint}")
        _check_kind(path, name, value)
    return settings


def _check_kind(path: Path, name: str, value: Any) -> None:
    """ConfigError where a file has a value of another kind than the setting's; TOML tells numbers from texts."""
    if _field(name) in _LISTS and isinstance(value, list):
        return
    hint = _HINTS[_field(name)]
    try:
        msgspec.convert(value, hint, dec_hook=lambda kind, given: kind(given))
    except (msgspec.ValidationError, TypeError):
        needed = next((words for kind, words in _KINDS if kind in (hint, *get_args(hint))), "")
        needed = needed or "one of " + ", ".join(map(repr, get_args(hint)))
        raise ConfigError(f"--config: {path} sets {name} to {value!r}, and it must be {needed}") from None


def preset(name: str) -> dict[str, Any]:
    """The settings of a preset; ConfigError lists the names there are."""
    presets = tomllib.loads(PRESETS.read_text(encoding="utf-8"))
    if name not in presets:
        raise ConfigError(f"--preset: there is no preset {name!r}; choose from {', '.join(presets)}")
    settings: dict[str, Any] = presets[name]
    return settings


def _at_home(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with `~` in paths, as manifests have it, spelled out."""
    paths = {name: settings[name] for name in ("data", "model") if str(settings.get(name, "")).startswith("~")}
    return settings | {name: str(Path(path).expanduser()) for name, path in paths.items()}


def _known(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their fields' names; a list of names as the flag has it, separated by commas."""
    known = {_field(name): value for name, value in settings.items() if value is not None}
    lists = {name: ",".join(known[name]) for name in _LISTS if isinstance(known.get(name), list)}
    return known | lists


def _field(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")
