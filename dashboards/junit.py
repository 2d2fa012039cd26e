"""Gates as a JUnit file, which CI systems show beside tests: failed ones as failures, inconclusive ones as errors."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ..record.errors import UserError

if TYPE_CHECKING:
    from ..analyzers.results import GateResult

_KINDS = {"fail": "failure", "inconclusive": "error"}


def junit(results: "Sequence[GateResult]") -> bytes:
    """The file's content, UTF-8."""
    counts = {f"{kind}s": str(sum(result.outcome == outcome for result in results)) for outcome, kind in _KINDS.items()}
    suite = ElementTree.Element("testsuite", {"name": "stepscope compare", "tests": str(len(results)), **counts})
    for result in results:
        name = _printable(f"{result.recipe}: fails if {result.gate}" if result.recipe else f"fails if {result.gate}")
        case = ElementTree.SubElement(suite, "testcase", classname="stepscope.compare", name=name)
        if kind := _KINDS.get(result.outcome):
            ElementTree.SubElement(case, kind, message=_printable(result.line), type=result.metric)
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    text: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def write_junit(path: Path, results: "Sequence[GateResult]") -> None:
    """Write the file, over what is there; UserError where it cannot be."""
    from ..record.atomic import write_atomically

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, junit(results))
    except OSError as error:
        raise UserError(f"--junit: {path} cannot be written: {error.strerror}") from None


def _printable(text: str) -> str:
    """Without the control characters that no XML may hold."""
    return "".join(char if char.isprintable() else "·" for char in text)
