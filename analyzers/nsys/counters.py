"""What an export may hold beside work and ranges: sampled GPU metrics, and the sizes that NCCL records with calls."""

import re

import msgspec

from ..collectives import OTHER, Sizes, collective_of
from .export import Export

_SIZE = re.compile(r'"Message size \[bytes\]"\s*:\s*"?(\d+)')


class MetricSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled metric over the whole capture, in the unit that its name has."""

    source: str
    """The GPU, as the export numbers it."""
    metric: str
    samples: int
    mean: float
    max: float


def metric_summaries(export: Export) -> list[MetricSummary] | None:
    """By GPU and name; None where no metric was sampled. Metrics are known by name, since their numbers change."""
    samples, names = export.table("GPU_METRICS"), export.table("TARGET_INFO_GPU_METRICS")
    if samples is None or names is None:
        return None
    if not ({"typeId", "metricId", "value"} <= export.columns(samples)) or not (
        {"typeId", "metricId", "metricName"} <= export.columns(names)
    ):
        return None
    rows = export.small(
        f"""SELECT typeId, metricId, count(*), avg(CAST(value AS DOUBLE)), max(CAST(value AS DOUBLE)) FROM "{samples}"
            WHERE value IS NOT NULL GROUP BY typeId, metricId"""
    )
    named = {
        (kind, metric): str(name)
        for kind, metric, name in export.small(f'SELECT typeId, metricId, metricName FROM "{names}"')
    }
    gpus = {kind: f"GPU {number}" for number, kind in enumerate(sorted({row[0] for row in rows}, key=str))}
    found = [
        MetricSummary(
            source=gpus[kind],
            metric=named.get((kind, metric), f"metric {metric}"),
            samples=int(count),
            mean=float(mean),
            max=float(most),
        )
        for kind, metric, count, mean, most in rows
    ]
    return sorted(found, key=lambda row: (row.source, row.metric))


def message_sizes(export: Export) -> dict[str, Sizes]:
    """Collective → its NCCL calls with a size, which NCCL puts into its NVTX ranges and nsys exports as JSON."""
    table = export.table("NVTX_EVENTS")
    columns = export.columns(table) if table else set()
    if table is None:
        return {}
    if not {"id", "value"} <= export.tables.get("StringIds", set()):
        columns = columns - {"textId", "jsonTextId"}  # their texts are not there
    if not columns & {"text", "textId"} or not columns & {"jsonText", "jsonTextId"}:
        return {}
    name = _text("text", "textId", columns)
    rows = export.small(
        f"""SELECT called, payload FROM (SELECT CAST({name} AS TEXT) AS called,
            CAST({_text("jsonText", "jsonTextId", columns)} AS TEXT) AS payload FROM "{table}")
            WHERE payload LIKE '%Message size%' AND called LIKE 'nccl%'"""
    )
    found: dict[str, Sizes] = {}
    for called, payload in rows:
        size, collective = _SIZE.search(payload), collective_of(called)
        if size and collective != OTHER:
            before = found.get(collective, Sizes(0, 0))
            found[collective] = Sizes(before.calls + 1, before.bytes + int(size[1]))
    return found


def _text(inline: str, number: str, columns: set[str]) -> str:
    """A text's expression: its own, else that of its number."""
    by_id = f"(SELECT value FROM StringIds WHERE id = {number})" if number in columns else "NULL"
    return f"coalesce({inline}, {by_id})" if inline in columns else by_id
