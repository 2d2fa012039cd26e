"""What must not leave this machine with a file: names of people and hosts, homes, tokens; learnt first, then taken out.

`Names` collects what a file gives away in the places made for it (an environment, a host field). A `Cleaner` takes
those out of any text, and besides them what has a telling form wherever it stands: home directories, credentials in
addresses, tokens of well-known services. What it puts in their place it leaves alone the next time.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache

TRACE_HOST = "host_name"
"""The member of a Kineto trace that names the host."""

TRACE_PATH = "traceName"
"""The member of a Kineto trace that has the path it was written to."""

REMOVED = "<removed>"

_COMMON = frozenset(
    "admin azureuser centos coder core debian docker ec2-user gpu gpus home host jovyan jupyter lambda local "  # noqa: SIM905
    "localhost mambauser master nobody none null nvidia opc python ray removed root runner sample scrubbed shared "
    "slurm test torch train ubuntu unknown user username users vscode worker workspace".split()
)
"""Names that tell nothing about anybody, and that stand in much text that is no name."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|LICENSE|DSN|WEBHOOK|IPADDR|SSH_C", re.I)
_USER_NAME = re.compile(r"(?:.*_)?(?:USER|LOGNAME|USERNAME)", re.I)
_HOST_NAME = re.compile(r"(?:.*_)?(?:HOST|HOSTNAME|NODENAME|COMPUTERNAME|NODELIST)", re.I)
_TOKEN_SHAPE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_\-.+=]{24,}")
_ASSIGNMENT = re.compile(r"""(?:^|(?<=[\s;\0]))([A-Za-z_][A-Za-z0-9_]*)=("[^"]*"|[^\n\0]*)""")

_SLASH = r"(?:\\+|/)"
_HOME = re.compile(
    rf"(?:[A-Za-z]:{_SLASH}|(?<![\w.]){_SLASH}(?:mnt/[a-z]/|export/|var/|nfs/|global/)?)(?:home|Users|homes|u[0-9]*(?:/[a-z])?)"
    rf"{_SLASH}([^\s/\\\"'<>|:;,~]+)"
)
_ROOT = re.compile(r"(?<![\w.])/root(?![\w.-])")
_URL = re.compile(r"(?<=://)[^\s/@:\"'<]+:[^\s/@\"'<]+(?=@)")
_ASSIGNED = re.compile(
    r"(?i)((?:api[_-]?key|secret(?:[_-]?key)?|passw(?:or)?d|(?:access|auth|hf|bearer)[_-]?token)[\"']?\s*[=:\s]\s*[\"']?)"
    r"(?!<removed>)[^\s\"'&,;<]{6,}"
)
_TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}"
    r"|glpat-[A-Za-z0-9_-]{16,}|xox[abprs]-[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
)


@dataclass
class Names:
    """What has been learnt so far."""

    users: set[str] = field(default_factory=set)
    hosts: set[str] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    """Homes that do not lie where homes usually do, and working directories."""

    def user(self, name: str) -> None:
        """Somebody's user name."""
        if len(name) > 1 and name.lower() not in _COMMON and not name.isdigit() and not _placeholder(name):
            self.users.add(name)

    def host(self, name: str) -> None:
        """A machine's name; of a full one its first part counts too."""
        for known in {name, name.partition(".")[0]}:
            if len(known) > 2 and known.lower() not in _COMMON and not known.isdigit() and not _placeholder(known):
                self.hosts.add(known)

    def token(self, value: str) -> None:
        """A value to be found nowhere."""
        if len(value) >= 6 and not _placeholder(value):
            self.tokens.add(value)

    def folder(self, path: str) -> None:
        """A directory whose path tells something; one directly below the root does not."""
        path = path.rstrip("/")
        if path.startswith("/") and path.count("/") > 1:
            self.folders.add(path)

    def text(self, text: str) -> None:
        """Learn the user names in the home directories of any text."""
        for match in _HOME.finditer(text):
            self.user(match[1])

    def variable(self, name: str, value: str) -> None:
        """Learn from a variable of an environment what may stand elsewhere too."""
        value = value.strip().strip('"')
        if not value or _placeholder(value):
            return
        self.text(value)
        if _USER_NAME.fullmatch(name):
            self.user(value)
        elif _HOST_NAME.fullmatch(name):
            self.host(value)
        elif name in ("HOME", "PWD", "OLDPWD", "USERPROFILE"):
            self.folder(value)
        elif _SECRET_NAME.search(name) and not value.startswith("/"):
            for part in value.split():
                self.token(part)
        elif _TOKEN_SHAPE.fullmatch(value):
            self.token(value)

    def environment(self, text: str) -> None:
        """Learn from an environment written as `NAME=value`, one variable or many."""
        for match in _ASSIGNMENT.finditer(text):
            self.variable(match[1], match[2])


class Cleaner:
    """Takes what `names` knows, and what has a telling form, out of texts; counts what it took, by kind."""

    def __init__(self, names: Names) -> None:
        """`names` is complete: what is learnt later is not seen."""
        self.removed: Counter[str] = Counter()
        """Kind → how many were taken out."""
        self._rules = [*_learnt(names), *_ALWAYS]
        self._clean = lru_cache(maxsize=1 << 16)(self._counted)

    def text(self, text: str) -> str:
        """`text` without what must not leave."""
        cleaned, counts = self._clean(text)
        if counts:
            self.removed.update(counts)
        return cleaned

    def data(self, data: bytes) -> bytes:
        """The same for bytes that are text or hold some; all others stay as they are."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _counted(self, text: str) -> tuple[str, dict[str, int]]:
        counts: dict[str, int] = {}
        for kind, pattern, put in self._rules:
            text, number = pattern.subn(put, text)
            if number:
                counts[kind] = counts.get(kind, 0) + number
        return text, counts


def base_name(path: str) -> str:
    """The last part of a path, of whatever system."""
    return re.split(r"[/\\]", path)[-1]


_ALWAYS = [
    ("token", _URL, REMOVED),
    ("token", _ASSIGNED, rf"\1{REMOVED}"),
    ("token", _TOKENS, REMOVED),
    ("home directory", _HOME, "~"),
    ("home directory", _ROOT, "~"),
]


def _learnt(names: Names) -> list[tuple[str, re.Pattern[str], str]]:
    """Patterns, longest names first. A name counts as a whole word; a short user name only as a part of a path."""
    rules = []
    if names.tokens:
        rules.append(("token", re.compile(_any(names.tokens)), REMOVED))
    if names.folders:
        rules.append(("directory", re.compile(rf"(?<![\w.~])(?:{_any(names.folders)})(?![\w.-])"), "."))
    rules += _ALWAYS[-2:]  # before the names in them
    if hosts := names.hosts:
        rules.append(("host name", re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{_any(hosts)})(?![A-Za-z0-9])"), "<host>"))
    long = {name for name in names.users if len(name) > 3}
    if long:
        rules.append(("user name", re.compile(rf"(?<![A-Za-z0-9])(?:{_any(long)})(?![A-Za-z0-9])"), "<user>"))
    if short := names.users - long:
        rules.append(("user name", re.compile(rf"(?<=[/\\])(?:{_any(short)})(?=[/\\]|$)"), "<user>"))
    return rules


def _any(names: set[str]) -> str:
    return "|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name))))


def _placeholder(value: str) -> bool:
    return value in (REMOVED, "<host>", "<user>", "~", ".")
