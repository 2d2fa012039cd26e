"""A comparison as a Markdown block for a pull request or a model card."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .learning_tables import gap_table, gate_table, loss_table, price_table
from .tables import Table

if TYPE_CHECKING:
    from ..analyzers.results import Comparison


def markdown(comparison: "Comparison", first: Sequence[Table]) -> str:
    """Verdicts, gates, then the figures (`first`, then the losses'); nothing of an input is read as markup."""
    verdicts = [_verdict(comparison, at) for at in range(len(comparison.verdicts))]
    gates = [_table(gate_table(comparison))] if comparison.gates else []
    figures = [*first, loss_table(comparison), gap_table(comparison), price_table(comparison)]
    shown = [_table(table) for table in figures if table.rows]
    warnings = [f"- {_plain(finding.text)}" for finding in comparison.findings if finding.severity != "info"]
    parts = [
        f"### Recipes against {_plain(comparison.baseline)}",
        *verdicts,
        *gates,
        "<details><summary>Figures</summary>",
        *shown,
        "</details>",
        *(["**Mind**\n\n" + "\n".join(warnings)] if warnings else []),
    ]
    return "\n\n".join(parts) + "\n"


def _verdict(comparison: "Comparison", at: int) -> str:
    verdict = comparison.verdicts[at]
    lines = [f"**{_plain(verdict.recipe)}**: {_plain(verdict.text)}"]
    if verdict.distrust:
        lines.append(f"- Distrust: {_plain('; '.join(verdict.distrust))}.")
    if verdict.next:
        lines.append(f"- Next: {_plain('; '.join(verdict.next))}.")
    head, *others = lines
    return f"{head}\n\n" + "\n".join(others) if others else head


def _table(table: Table) -> str:
    rows = [[column.heading for column in table.columns], ["--:" if c.right else ":--" for c in table.columns]]
    rows += table.shown()
    heading, rule, *others = rows
    lines = [_row([_plain(cell) for cell in heading]), _row(rule), *(_row(map(_plain, row)) for row in others)]
    note = f"\n\n{_plain(table.note)}" if table.note else ""
    return f"**{_plain(table.title)}**\n\n" + "\n".join(lines) + note


def _row(cells: "list[str] | map[str]") -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that Markdown and HTML leave as it is."""
    one_line = " ".join(text.split())
    for char in "\\`*_[]|#~":
        one_line = one_line.replace(char, f"\\{char}")
    return one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
