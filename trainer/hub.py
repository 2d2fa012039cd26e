"""Data sets of the Hugging Face hub, through the package `datasets`.

A copy in this machine's cache is used before the hub is asked.
"""

import hashlib
import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ..record.errors import ConfigError, first_line
from .shards import SUFFIXES

_PATIENCE_S = 5.0
"""How long the hub may take to say that it is there."""


def is_hub_id(path: Path) -> bool:
    """Whether `--data` can be `owner/name` on the hub: nothing here is called so, and it is no data file's name."""
    named = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", str(path)) is not None
    return named and not path.exists() and not path.parent.exists() and not path.name.endswith(SUFFIXES)


class HubSplit:
    """One split of a data set of the hub."""

    def __init__(self, name: Path, split: str | None) -> None:
        """`name` is `owner/name`; `split` as `datasets` has it, None: train. ConfigError without `datasets`."""
        if find_spec("datasets") is None:
            raise ConfigError(
                f"--data: there is no file or folder {name}; to read it from the hub: pip install 'stepscope[datasets]'"
            )
        self._name = str(name)
        self._split = split or "train"
        self._loaded: Any = None

    def rows(self, columns: Collection[str]) -> Iterator[tuple[str, str, Any]]:
        """Every row with the data set's name and its place there, such as `row 3`; only `columns` are read."""
        if self._loaded is None:
            self._loaded = load(self._name, self._split)
        names = self._loaded.column_names
        wanted = self._loaded.select_columns([name for name in names if name in columns] or names)
        for number, row in enumerate(wanted, start=1):
            yield self._name, f"row {number}", row

    def facts(self, columns: Collection[str]) -> dict[str, Any]:
        """The name, and the SHA-256 over `columns` of all rows as JSON in order."""
        whole = hashlib.sha256()
        for _, _, row in self.rows(columns):
            whole.update(msgspec.json.encode(row, order="deterministic") + b"\n")
        return {"file": self._name, "split": self._split, "sha256": whole.hexdigest()}


def load(name: str, split: str) -> Any:
    """A split as `datasets.Dataset`: the copy in the cache, else from the hub. ConfigError where neither is."""
    import datasets

    offline = datasets.config.HF_HUB_OFFLINE
    shown = datasets.utils.logging.get_verbosity()
    datasets.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    try:
        with suppress(ConnectionError):
            datasets.config.HF_HUB_OFFLINE = True
            return datasets.load_dataset(name, split=split)
        datasets.config.HF_HUB_OFFLINE = offline
        _ask_hub(name, offline=offline)
        return datasets.load_dataset(name, split=split)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - a loader fails in as many ways as there are data sets
        raise ConfigError(f"--data {name}: split {split} does not load: {first_line(error)}") from None
    finally:
        datasets.config.HF_HUB_OFFLINE = offline
        datasets.utils.logging.set_verbosity(shown)


def _ask_hub(name: str, *, offline: bool) -> None:
    """ConfigError where the hub is out of reach: `datasets` itself would try for most of a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    why = "HF_HUB_OFFLINE is set"
    if not offline:
        try:
            HfApi().dataset_info(name, timeout=_PATIENCE_S)
        except HfHubHTTPError as error:
            raise ConfigError(f"--data {name}: the hub does not give it: {first_line(error)}") from None
        except Exception as error:  # noqa: BLE001 - the client's errors have changed with each major version
            why = first_line(error)
        else:
            return
    raise ConfigError(
        f"--data {name}: there is no such file, no copy in the cache of datasets, and the hub is out of reach ({why}); "
        "load it once with a connection, or give files"
    )
