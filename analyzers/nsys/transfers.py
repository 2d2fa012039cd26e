"""Copies and sets of an export by direction and by the memory at either end: how many, how much, how fast."""

from typing import Any

import msgspec

from .columns import DAY_NS
from .export import Export

PAGEABLE, PINNED = "Pageable", "Pinned"
_MEMORY_KINDS = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")
"""By number, as exports without the table of words have them."""


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
    """Largest time first. Devices are numbered as the program did."""
    found = [*_of("MEMCPY", export), *_of("MEMSET", export)]
    return sorted(found, key=lambda row: (-row.total_ns, row.device, row.direction, row.source or ""))


def _of(table_name: str, export: Export) -> list[Transfer]:
    table = export.table(f"CUPTI_ACTIVITY_KIND_{table_name}")
    if table is None or not {"start", "end", "bytes"} <= export.columns(table):
        return []
    is_copy = table_name == "MEMCPY"
    ends = ("srcKind", "dstKind") if is_copy else ("NULL", "memKind")
    keys = ["deviceId", "copyKind" if is_copy else "NULL", *ends]
    selected = [f"CAST({key} AS INTEGER)" if key in export.columns(table) else "NULL" for key in keys]
    rows = export.small(
        f"""SELECT {", ".join(selected)}, count(*), sum("end" - start), sum(CAST(bytes AS INTEGER)) FROM "{table}"
            WHERE "end" >= start AND "end" > 0 AND "end" - start < {DAY_NS} GROUP BY 1, 2, 3, 4"""
    )
    directions, memories = export.copy_labels(), _memory_kinds(export)
    return [
        Transfer(
            device=int(device or 0),
            direction=directions.get(direction, "Unknown") if is_copy else "memset",
            source=memories.get(source),
            destination=memories.get(destination),
            count=int(count),
            total_ns=int(total),
            bytes=int(size or 0),
            bytes_per_s=int(size or 0) * 1e9 / int(total) if total else None,
        )
        for device, direction, source, destination, count, total, size in rows
    ]


def _memory_kinds(export: Export) -> dict[Any, str]:
    if "ENUM_CUDA_MEM_KIND" in export.tables:
        return {int(kind): str(text) for kind, text in export.small("SELECT id, label FROM ENUM_CUDA_MEM_KIND")}
    return dict(enumerate(_MEMORY_KINDS))
