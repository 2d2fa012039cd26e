"""Kernels with their launches: how long the call took, the wait in the queue, the kernel, and all of it.

The queue time is from the end of the call to the start of the kernel where that is positive; else there is none. The
total runs from the start of the call to the later of both ends. Kernels whose call was not recorded are left out.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from .export import Export
from .reports_asked import Asked, Row, largest_first
from .reports_engine import Array, database, in_order, process_of, spread, thread_of
from .reports_launches import Launched, kernels, range_names
from .reports_names import SHAPE, Names, api_names, xyz


def execution_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """By process, thread, device, call and kernel; most total time first."""
    launched = kernels(export, asked)
    calls, names = api_names(export), Names(export.strings())
    ranges, around = range_names(export, asked, launched)
    keys = {
        "pid": process_of(launched.thread), "tid": thread_of(launched.thread), "device": launched.columns["device"],
        "api": launched.launch_name, "range": around, "name": launched.columns["name"],
    }  # fmt: skip
    phases = _phases(launched)
    queue = pa.array(phases["queue"], mask=phases["queue"] <= 0)
    given = pa.table(keys | phases | {"queue": queue}).filter(pa.array(launched.call >= 0))
    by = ", ".join(keys)
    with database() as connection:
        connection.register("given", given)
        merged = names.merged(connection, calls.merged(connection, "SELECT * FROM given", "api"))
        spreads = ", ".join(spread(phase) for phase in ("total", "call", "queue", "kernel"))
        found = connection.execute(
            f"SELECT sum(total), {by}, count(*), count(queue), {spreads} FROM ({merged}) GROUP BY {by}"
        ).fetchall()
    rows = [
        (total, pid, tid, device, *rest, calls.text(api), ranges.prefix(around) + names.text(name))
        for total, pid, tid, device, api, around, name, *rest in found
    ]
    return [row[1:] for row in largest_first(rows, names=2)]


def execution_trace(export: Export, asked: Asked) -> Iterable[Row]:
    """Every kernel by the start of its call."""
    launched = kernels(export, asked, SHAPE)
    calls, names = api_names(export), Names(export.strings())
    ranges, around = range_names(export, asked, launched)
    phases = _phases(launched)
    columns = (
        launched.launch_start, phases["call"], launched.launch_end, phases["queue"], launched.start, phases["kernel"],
        phases["total"], process_of(launched.thread), thread_of(launched.thread), launched.columns["device"],
        launched.launch_name, *(launched.columns[side] for side in SHAPE), around, launched.columns["name"],
    )  # fmt: skip
    order = np.lexsort((launched.start, launched.launch_start))
    for row in in_order(columns, order[launched.call[order] >= 0]):
        queue = (row[2], row[3]) if row[3] > 0 else (None, None)
        yield (
            *row[:2], *queue, *row[4:10], calls.text(row[10]), xyz(*row[11:14]), xyz(*row[14:17]),
            ranges.prefix(row[17]) + names.text(row[18]),
        )  # fmt: skip


def _phases(launched: Launched) -> dict[str, Array]:
    """Times in ns; a queue time that is not positive is none."""
    return {
        "total": np.maximum(launched.launch_end, launched.end) - launched.launch_start,
        "call": launched.launch_end - launched.launch_start,
        "queue": launched.start - launched.launch_end,
        "kernel": launched.end - launched.start,
    }
