"""A look at the data before a run has a folder: what no worker could train on is refused while nothing has started."""

from itertools import islice
from pathlib import Path

from ..record.errors import ConfigError
from .config import Config
from .examples import data_source, read_conversations
from .forms import reading
from .resolve import SHIPPED_DATA
from .shards import Shards

_CHEAP_BYTES = 1 << 25
"""Files up to this size together are read whole, larger ones only at their beginning."""
_FIRST_ROWS = 1000


def check_data(config: Config) -> None:
    """TraceError for a row of no form, ConfigError where --eval-samples holds out all. The hub's data is not read."""
    path = config.data or SHIPPED_DATA
    source = data_source(path, config.data_split)
    if not isinstance(source, Shards):
        return
    whole = source.size() <= _CHEAP_BYTES
    rows = read_conversations(source, reading(config.data_columns))
    answered = sum(bool(turns) for turns in (rows if whole else islice(rows, _FIRST_ROWS)))
    if whole and answered <= config.eval_samples:
        raise ConfigError(
            f"--data: {_named(path)} has {answered} examples with an answer, and --eval-samples holds out "
            f"{config.eval_samples}; give more data, or hold out fewer"
        )


def _named(path: Path) -> str:
    return f"{path.name}, which comes with this," if path == SHIPPED_DATA else str(path)
