"""JSON of any size, scrubbed as text: only its strings change, so that every number stays as it was written.

Works on what a reader of traces works on too: documents that are cut short or not quite JSON.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from ...record.errors import TraceError
from ...record.manifest import ENVIRONMENT_ALLOWED
from ...record.private import TRACE_HOST, TRACE_PATH, Cleaner, Names, base_name

_CHUNK = 1 << 20
_TOKEN = re.compile(rb'"((?:[^"\\]++|\\.)*+)(?:"(\s*+:)?|\\?\Z)|[{}\[\]]', re.DOTALL)
_HOSTS = frozenset((TRACE_HOST, "hostname", "host"))
_USERS = frozenset(("user", "username", "user_name"))
_PATHS = frozenset((TRACE_PATH.lower(), "cwd", "working_dir", "working_directory"))
_ENVIRONMENTS = frozenset(("environment", "env", "environ", "environment_variables"))
_TRACE_OR_OURS = re.compile(rb'"traceEvents"|"schema": *"stepscope\.')
_COMMANDS = frozenset(("argv", "cmdline", "command_line", "commandline", "command"))


def learn_json(path: Path, names: Names) -> None:
    """Learn what the document gives away in the places made for it, and in paths."""
    with _unpacked(path) as source:
        for _ in _rewritten(source, _Learner(names).step):
            pass


def scrubbed_json(path: Path, cleaner: Cleaner) -> Iterator[bytes]:
    """The scrubbed text."""
    with _unpacked(path) as source:
        yield from _rewritten(source, _Scrubber(cleaner).step)


def check_is_text(path: Path) -> None:
    """TraceError for what cannot be cleaned as text whatever it is called: UTF-16, archives, anything with NULs."""
    with _unpacked(path) as source:
        while block := _read(source):
            if b"\0" in block:
                raise TraceError(path, "is no text in UTF-8, so nothing in it can be found; leave it out or convert it")


def looks_like_trace(path: Path) -> bool:
    """Whether it is a list, as events alone are, or names events or a schema of ours."""
    held = b""
    with _unpacked(path) as source:
        while block := _read(source):
            if (not held and block.lstrip()[:1] == b"[") or _TRACE_OR_OURS.search(held[-32:] + block):
                return True
            held = block
    return False


class _Walk:
    """Where in the document we are: the last key, and how deep inside a value that is dropped."""

    def __init__(self, dropped: frozenset[str]) -> None:
        self._dropped = dropped
        self._dropping: str | None = None
        self._key = ""
        self._depth = 0

    def step(self, match: re.Match[bytes]) -> bytes | None:
        """Follow one token; what takes its place, None where nothing does."""
        if match[1] is None:
            if self._dropping:
                self._depth += 1 if match[0] in b"{[" else -1
                if self._depth <= 0:
                    self._dropping, self._key = None, ""
            return None
        if match[2] is not None:
            if not self._depth:  # a dropped value that was a number is over
                self._dropping = None
            text = _decoded(match[1])
            self._key = text if self._dropping else text.lower()
            put = self.member(text, match) if self._dropping else self.other(text, match)
            if not self._dropping and self._key in self._dropped:
                self._dropping, self._depth = self._key, 0
            return put
        put = self.dropped(self._dropping, match) if self._dropping else self.value(match)
        if not self._depth:
            self._dropping = None
        return put

    def member(self, name: str, match: re.Match[bytes]) -> bytes | None:
        """A key within a dropped value."""

    def dropped(self, what: str, match: re.Match[bytes]) -> bytes | None:
        """A text within a dropped value, or that value itself."""

    def value(self, match: re.Match[bytes]) -> bytes | None:
        """A text under `self._key`."""

    def other(self, text: str, match: re.Match[bytes]) -> bytes | None:
        """A key anywhere else."""


class _Learner(_Walk):
    def __init__(self, names: Names) -> None:
        super().__init__(_ENVIRONMENTS)
        self._names = names

    def dropped(self, what: str, match: re.Match[bytes]) -> None:
        text = _decoded(match[1])
        self._names.variable(self._key, text)
        self._names.environment(text)

    def value(self, match: re.Match[bytes]) -> None:
        text = _decoded(match[1])
        if self._key in _HOSTS:
            self._names.host(text)
        elif self._key in _USERS:
            self._names.user(text)
        elif "/" in text or "\\" in text:
            self._names.text(text)


class _Scrubber(_Walk):
    def __init__(self, cleaner: Cleaner) -> None:
        super().__init__(_ENVIRONMENTS | _COMMANDS)
        self._cleaner = cleaner
        self._members = 0

    def member(self, name: str, match: re.Match[bytes]) -> bytes | None:
        if name in ENVIRONMENT_ALLOWED or re.fullmatch(r"removed_\d+", name):
            return None
        self._members += 1
        return b'"removed_%d"%s' % (self._members, match[2])

    def dropped(self, what: str, match: re.Match[bytes]) -> bytes | None:
        if self._key in ENVIRONMENT_ALLOWED:
            return self._cleaned(match)
        return self._blank("environment variable" if what in _ENVIRONMENTS else "command line", match)

    def value(self, match: re.Match[bytes]) -> bytes | None:
        if self._key in _HOSTS or self._key in _USERS:
            return self._blank("host name" if self._key in _HOSTS else "user name", match)
        if self._key in _PATHS and re.search(rb"[/\\]", match[1]):
            self._cleaner.removed["directory"] += 1
            return _quoted(self._cleaner.text(base_name(_decoded(match[1]))))
        return self._cleaned(match)

    def other(self, text: str, match: re.Match[bytes]) -> bytes | None:
        return self._cleaned(match)

    def _blank(self, kind: str, match: re.Match[bytes]) -> bytes | None:
        if not match[1]:
            return None
        self._cleaner.removed[kind] += 1
        return b'""'

    def _cleaned(self, match: re.Match[bytes]) -> bytes | None:
        if len(match[1]) < 4:
            return None
        text = _decoded(match[1])
        new = self._cleaner.text(text)
        return None if new == text else _quoted(new) + (match[2] or b"")


def _rewritten(source: IO[bytes], step: Callable[[re.Match[bytes]], bytes | None]) -> Iterator[bytes]:
    """The text with tokens replaced as `step` says, in pieces that end between two tokens."""
    held, more = b"", True
    while more:
        new = _read(source)
        more = bool(new)
        held += new
        out: list[bytes] = []
        done, safe = 0, len(held)
        for match in _TOKEN.finditer(held):
            if more and match.end() > len(held) - 4096 and not held[match.end() :].strip():
                safe = match.start()  # it may go on, or turn out to be a key
                break
            put = step(match)
            if put is not None:
                out += [held[done : match.start()], put]
                done = match.end()
        yield b"".join([*out, held[done:safe]])
        held = held[safe:]


def _read(source: IO[bytes]) -> bytes:
    """The next chunk, shorter only at the end. Of a packed file that was cut short, all that there is of it."""
    parts: list[bytes] = []
    size = 0
    with suppress(EOFError):
        while size < _CHUNK and (part := source.read1(_CHUNK - size)):  # type: ignore[attr-defined]
            parts.append(part)
            size += len(part)
    return b"".join(parts)


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked where it is packed."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            yield gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[misc]
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(path, f"is a damaged gzip file ({error})") from None
    except OSError as error:
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from None


def _decoded(inner: bytes) -> str:
    text = inner.decode("utf-8", "surrogateescape")
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _quoted(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogateescape")
