"""Copies and sets of an export by direction and by the memory at either end: how many, how much, how fast."""

from typing import Any

import msgspec

from .columns import DAY_NS, NO_PID, gpus
from .export import Export
from .reports_names import memory_kinds

PAGEABLE, PINNED = "Pageable", "Pinned"


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """All copies of one device in one direction between two kinds of memory; or its sets."""

    device: int
    direction: str
    """Such as `Host-to-Device`; `memset` for sets."""
    source: str | None
    """`Pageable`, `Pinned`, `Device` …; None where not recorded, and for sets."""
    destination: str | None
    count: int
    total_ns: int
    bytes: int
    bytes_per_s: float | None
    """Bytes over the time copies took; None where that is 0."""


def transfers(export: Export) -> list[Transfer]:
    """Largest time first. Devices are numbered as kernels' are."""
    found = [*_of("MEMCPY", export), *_of("MEMSET", export)]
    return sorted(found, key=lambda row: (-row.total_ns, row.device, row.direction, row.source or ""))


def _of(table_name: str, export: Export) -> list[Transfer]:
    table = export.table(f"CUPTI_ACTIVITY_KIND_{table_name}")
    if table is None or not {"start", "end", "bytes"} <= export.columns(table):
        return []
    is_copy, has = table_name == "MEMCPY", export.columns(table)
    ends = ("srcKind", "dstKind") if is_copy else ("NULL", "memKind")
    keys = ("deviceId", "copyKind" if is_copy else "NULL", *ends)
    selected = [f"CAST({key} AS INTEGER)" if key in has else "NULL" for key in keys]
    selected.append(f"(CAST(globalPid AS INTEGER) >> 24) & {NO_PID}" if "globalPid" in has else "NULL")
    rows = export.small(
        f"""SELECT {", ".join(selected)}, count(*), sum("end" - start), sum(CAST(bytes AS INTEGER)) FROM "{table}"
            WHERE "end" >= start AND "end" > 0 AND "end" - start < {DAY_NS} GROUP BY 1, 2, 3, 4, 5"""
    )
    found: dict[tuple[int, Any, Any, Any], tuple[int, int, int]] = {}
    number = gpus(export)
    for device, direction, source, destination, process, *sums in rows:
        key = (number.get((process, device), int(device or 0)), direction, source, destination)
        count, total, size = (int(value or 0) for value in sums)
        before = found.get(key, (0, 0, 0))
        found[key] = (before[0] + count, before[1] + total, before[2] + size)
    directions, memories = export.copy_labels(), memory_kinds(export)
    return [
        Transfer(
            device=device,
            direction=directions.get(direction, "Unknown") if is_copy else "memset",
            source=memories.get(source),
            destination=memories.get(destination),
            count=count,
            total_ns=total,
            bytes=size,
            bytes_per_s=size * 1e9 / total if total else None,
        )
        for (device, direction, source, destination), (count, total, size) in found.items()
    ]
