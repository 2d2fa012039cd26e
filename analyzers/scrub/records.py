"""Small records of a run, scrubbed whole: TensorBoard's event files and allocator snapshots."""

import io
import pickle
from pathlib import Path
from typing import Any

from ...record.errors import TraceError
from ...record.private import Cleaner


def scrubbed_events(path: Path, cleaner: Cleaner) -> bytes:
    """An event file, record by record: untouched where there is nothing to take out, else its texts cleaned.

    A record that holds something in a place that is no text is left out.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
    from tensorboard.summary.writer.record_writer import RecordWriter

    out = io.BytesIO()
    writer = RecordWriter(out)
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data):
        size = int.from_bytes(data[at : at + 8], "little")
        record = data[at + 12 : at + 12 + size]
        at += size + 16
        if at > len(data):  # cut short by a crash
            break
        if cleaner.data(record) != record:
            event = Event.FromString(record)
            for value in event.summary.value:
                content = value.metadata.plugin_data
                if content.plugin_name == "hparams" and content.content:
                    known = HParamsPluginData.FromString(content.content)
                    _clean_message(known, cleaner)
                    content.content = known.SerializeToString()
            _clean_message(event, cleaner, but=("content",))
            record = event.SerializeToString()
            if cleaner.data(record) != record:
                cleaner.removed["event record"] += 1
                continue
        writer.write(record)
    return out.getvalue()


def scrubbed_snapshot(path: Path, cleaner: Cleaner) -> bytes:
    """An allocator snapshot: plain values in a pickle, read without running anything. TraceError for any other."""
    try:
        with path.open("rb") as file:
            value = _Plain(file).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError, AttributeError, TypeError):
        raise TraceError(path, "is no pickle of plain values; leave it out") from None
    return pickle.dumps(_clean_value(value, cleaner))


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name}")


def _clean_value(value: Any, cleaner: Cleaner) -> Any:
    if isinstance(value, str):
        return cleaner.text(value)
    if isinstance(value, bytes):
        return cleaner.data(value)
    if isinstance(value, dict):
        return {_clean_value(key, cleaner): _clean_value(item, cleaner) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_clean_value(item, cleaner) for item in value)
    return value


def _clean_message(message: Any, cleaner: Cleaner, but: tuple[str, ...] = ()) -> None:
    """Clean the texts of a protocol buffer, and bytes that are text."""
    for descriptor, value in message.ListFields():
        if descriptor.name in but:
            continue
        entry = descriptor.message_type
        if entry is not None and entry.GetOptions().map_entry:
            for key in value:
                if entry.fields_by_name["value"].message_type is not None:
                    _clean_message(value[key], cleaner, but)
        elif entry is not None:
            for item in value if _repeated(value) else [value]:
                _clean_message(item, cleaner, but)
        elif _repeated(value):
            if value and isinstance(value[0], str | bytes):
                value[:] = [_clean_text(item, cleaner) for item in value]
        elif isinstance(value, str | bytes):
            setattr(message, descriptor.name, _clean_text(value, cleaner))


def _repeated(value: Any) -> bool:
    return hasattr(value, "append")


def _clean_text(text: str | bytes, cleaner: Cleaner) -> str | bytes:
    return cleaner.text(text) if isinstance(text, str) else cleaner.data(text)
