"""What events say of the collectives that they are, as rows of that table."""

import math
from typing import Any

import msgspec
import pyarrow as pa

from .categories import COMMUNICATION_PREFIXES
from .events import NO_ARGS, Args, Event
from .values import devices, integer, integers, links


def communicating(events: list[Event], names: pa.DictionaryArray) -> list[int]:
    """The places of events that are collectives: they name one, or c10d opened them around one."""
    places = [at for at, event in enumerate(events) if event.args is not None and event.args.collective is not None]
    if any(name.startswith(COMMUNICATION_PREFIXES) for name in names.dictionary.to_pylist()):
        by_name = {at for at, event in enumerate(events) if event.name.startswith(COMMUNICATION_PREFIXES)}
        places = sorted(by_name.union(places))
    return places


def said_of_collectives(events: list[Event], host: dict[str, Any] | None) -> dict[str, Any]:
    """The columns of `collectives`; `host` has process and thread of calls on the host, None stands for kernels."""
    args = [event.args or NO_ARGS for event in events]
    sizes = [_elements(a) for a in args]
    nothing = [None] * len(events)
    place: dict[str, Any] = {"device": nothing, "correlation": nothing, "process": nothing, "thread": nothing}
    if host is None:
        place["device"] = devices([a.device for a in args], [event.pid for event in events])
        place["correlation"] = links([a.correlation for a in args])
    else:
        place |= host
    return place | {
        "name": [event.name for event in events],
        "collective": [
            event.name if a.collective is None else str(a.collective) for event, a in zip(events, args, strict=True)
        ],
        "group": [None if a.group is None else str(a.group) for a in args],
        "group_size": integers([a.group_size for a in args]),
        "dtype": [dtype for dtype, _, _ in sizes],
        "in_elements": [given for _, given, _ in sizes],
        "out_elements": [taken for _, _, taken in sizes],
    }


def _elements(args: Args) -> tuple[str | None, int | None, int | None]:
    """A collective's type, what one rank hands in and what it gets, in elements; else those of its inputs."""
    if args.in_elements is not None or args.out_elements is not None:
        return (
            None if args.element is None else str(args.element),
            integer(args.in_elements),
            integer(args.out_elements),
        )
    dtypes, shapes = msgspec.json.decode(args.dtypes), input_shapes(args)
    if not (isinstance(dtypes, list) and dtypes and isinstance(shapes, list) and shapes):
        return None, None, None
    shape = shapes[0]
    if not isinstance(shape, list) or not all(isinstance(side, int) for side in shape):
        return None, None, None
    return str(dtypes[0]), math.prod(shape) if shape else None, None


def input_shapes(args: Args) -> Any:
    """The shapes of the inputs, by the name of either era."""
    shapes = msgspec.json.decode(args.shapes)
    return msgspec.json.decode(args.old_shapes) if shapes is None else shapes
