"""Findings: sentences a person can act on, each with the evidence behind it."""

from typing import Any, Literal

import msgspec

Severity = Literal["info", "warning", "error"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the reader should know. `code` is stable and kebab-case; `text` is one or two full sentences."""

    code: str
    severity: Severity
    text: str
    evidence: dict[str, Any] = {}
