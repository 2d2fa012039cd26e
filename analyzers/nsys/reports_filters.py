"""The part of a capture that reports are about: `--filter-time` and `--filter-nvtx`, as nsys understands them."""

import re

import numpy as np

from ...record.errors import ConfigError, UserError
from .export import Export
from .reports_ranges import Ranges, load_ranges

Window = tuple[int | None, int | None]

_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|ms|s|m|h)")
_NAMES_SHOWN = 5


def time_window(text: str) -> Window:
    """`start/end` as ns; either may be missing, each may have units (`1s200ms`). ConfigError says what is wrong."""
    first, slash, last = text.partition("/")
    if not slash or not (first or last):
        raise ConfigError(f"--filter-time: {text!r} is no START/END, such as 1s/1500ms, or 2000000/ for all after it")
    window = _ns(first), _ns(last)
    if window[0] is not None and window[1] is not None and window[0] > window[1]:
        raise ConfigError(f"--filter-time: {text!r} ends before it starts")
    return window


def range_window(export: Export, text: str) -> Window:
    """When the NVTX range `name[@domain][/index]` was open: the first of that name, or the one of that index from 0.

    UserError where there is none. A name may contain `@` and `/`: the longest that is one counts.
    """
    ranges = load_ranges(export)
    for name, domain, index in _readings(text):
        found = _named(ranges, name, domain)
        if len(found):
            if index >= len(found):
                raise UserError(f"--filter-nvtx: {export.path.name} has {len(found)} ranges {name!r}, from /0 on")
            return int(ranges.start[found[index]]), int(ranges.end[found[index]])
    known = list(dict.fromkeys(ranges.texts))
    has = ", ".join(known[:_NAMES_SHOWN]) + (", …" if len(known) > _NAMES_SHOWN else "")
    raise UserError(f"--filter-nvtx: {export.path.name} has no range {text!r}; it has {has or 'none'}")


def _ns(text: str) -> int | None:
    if not text:
        return None
    if text.isdigit():
        return int(text)
    parts = _PART.findall(text)
    if "".join(map("".join, parts)) != text:
        raise ConfigError(f"--filter-time: {text!r} is no time; write ns, or units of ns, us, ms, s, m, h")
    return round(sum(float(number) * _NS[unit] for number, unit in parts))


def _readings(text: str) -> list[tuple[str, str | None, int]]:
    """Name, domain (None: any) and index that the text may mean, the longest name first."""
    indexed = re.fullmatch(r"(.+)/(\d+)", text)
    found = [(text, 0), *([(indexed[1], int(indexed[2]))] if indexed else [])]
    readings: list[tuple[str, str | None, int]] = [(name, None, index) for name, index in found]
    for whole, index in found:
        name, at, domain = whole.rpartition("@")
        if at:
            readings.append((name, None if domain == "*" else domain, index))
    return readings


def _named(ranges: Ranges, name: str, domain: str | None) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The ranges of a name, by their start."""
    wanted = [
        index
        for index, (whole, text) in enumerate(zip(ranges.names, ranges.texts, strict=True))
        if text == name and domain in (None, whole[: len(whole) - len(text) - 1])
    ]
    found = np.flatnonzero(np.isin(ranges.name, wanted))
    return found[np.lexsort((ranges.id[found], ranges.start[found]))]
