"""CUDA API calls of an export as columns."""

import numpy as np

from ..activities import distinct, translated
from ..calls import Calls
from .columns import Rejected, is_interval, read_columns, texts
from .export import Export


def read_calls(export: Export, rejected: Rejected) -> Calls | None:
    """Every call that has a thread; None where the export has no table of them."""
    table = export.table("CUPTI_ACTIVITY_KIND_RUNTIME")
    if table is None or not {"start", "end", "globalTid"} <= export.columns(table):
        return None
    has = export.columns(table)
    rows = read_columns(
        export,
        table,
        {
            "start": "start",
            "end": '"end"',
            "thread": f"globalTid & {(1 << 48) - 1}",
            "correlation": "nullif(correlationId, 0)" if "correlationId" in has else "NULL",
            "name": "nameId" if "nameId" in has else "NULL",
        },
    )
    good = is_interval(rows["start"], rows["end"])
    rejected.add("API calls", len(good) - int(good.sum()))
    if not good.all():
        rows = {column: values[good] for column, values in rows.items()}
    numbers = rows.pop("name")
    known = distinct(numbers)
    strings = texts(export)
    return Calls(
        start=rows["start"],
        end=rows["end"],
        thread=rows["thread"].astype(np.int64, copy=False),
        correlation=rows["correlation"],
        name=translated(numbers, known, range(len(known))),
        names=tuple(plain_name(strings.get(number, "?")) for number in known.tolist()),
    )


def plain_name(name: str) -> str:
    """An API call's name without the CUDA version that introduced it: `cudaLaunchKernel_v7000` → `cudaLaunchKernel`."""
    stem, mark, version = name.rpartition("_v")
    return stem if mark and version.isdigit() else name
