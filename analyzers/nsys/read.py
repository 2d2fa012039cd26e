"""An export of Nsight Systems as a Timeline.

Times are ns since the capture began; `origin_ns` is the session's start where the export says it. The process of an
activity is the one that launched it; correlation ids repeat over processes, so the two belong together.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa

from ..findings import Finding
from ..timeline import ACTIVITIES, LAUNCHES, RANGES, Source, Timeline
from .export import Export, quoted
from .names import Names

_LONG, _TEXT = pa.int64(), pa.string()
_NO_PID = (1 << 24) - 1
_PUSH_POP, _START_END = 59, 60


def read_export(path: Path, *, rank: int = 0) -> Timeline:
    """The whole export as rank `rank`. TraceError where the file is none."""
    with Export(path) as export:
        source = Source(
            rank=rank,
            path=str(path),
            format=export.format,
            origin_ns=_session_start(export),
            device_names=device_names(export),
        )
        return Timeline(
            sources=(source,),
            activities=_joined([_activities(export, kind, rank) for kind in _TABLES], ACTIVITIES),
            launches=_joined([_launches(export, rank)], LAUNCHES),
            ranges=_joined([_ranges(export, rank)], RANGES),
            findings=tuple(_findings(export)),
        )


_TABLES = {
    "kernel": "KERNEL",
    "graph": "GRAPH_TRACE",
    "memcpy": "MEMCPY",
    "memset": "MEMSET",
    "sync": "SYNCHRONIZATION",
}
"""Kind of activity → its table."""


def _activities(export: Export, kind: str, rank: int) -> pa.Table | None:
    """Activities of one kind; columns that this version of the table lacks are null. None where there are none."""
    table = export.table(f"CUPTI_ACTIVITY_KIND_{_TABLES[kind]}")
    if table is None:
        return None
    has = export.columns(table)
    columns = {
        "device": "coalesce(deviceId, 0)" if "deviceId" in has else "0",
        "stream": "coalesce(streamId, -1)" if "streamId" in has else "-1",
        "start": "start",
        "end": '"end"',
        "name": _name(export, kind),
        "name_id": "demangledName" if kind == "kernel" else "NULL",
        "correlation": "correlationId" if "correlationId" in has else "NULL",
        "process": f"(globalPid >> 24) & {_NO_PID}" if "globalPid" in has else "NULL",
        "graph": "nullif(graphId, 0)" if "graphId" in has else "NULL",
        "bytes": "bytes" if "bytes" in has else "NULL",
        "external": "NULL",
    }
    return _query(export, table, kind, columns, ACTIVITIES, rank)


def _name(export: Export, kind: str) -> str:
    """The name of an activity that is no string of its own."""
    if kind == "memcpy":
        labels = "".join(f" WHEN {number} THEN {quoted(label)}" for number, label in export.copy_labels().items())
        return f"'memcpy ' || CASE copyKind{labels or ' WHEN NULL THEN NULL'} ELSE 'Unknown' END"
    made = {"kernel": "NULL", "graph": "'CUDA graph ' || graphId", "sync": "'synchronisation ' || syncType"}
    return made.get(kind, quoted(kind))


def _launches(export: Export, rank: int) -> pa.Table | None:
    table = export.table("CUPTI_ACTIVITY_KIND_RUNTIME")
    if table is None:
        return None
    columns = _on_thread() | {"name": "NULL", "name_id": "nameId", "correlation": "correlationId"}
    return _query(export, table, "launch", columns, LAUNCHES, rank)


def _ranges(export: Export, rank: int) -> pa.Table | None:
    table = export.table("NVTX_EVENTS")
    if table is None:
        return None
    text_id = "textId" if "textId" in export.columns(table) else "NULL"
    style = f"CASE eventType WHEN {_PUSH_POP} THEN 'pushpop' ELSE 'startend' END"
    columns = _on_thread() | {"name": "text", "name_id": text_id, "style": style}
    return _query(export, table, "range", columns, RANGES, rank)


def _on_thread() -> dict[str, str]:
    return {
        "process": f"(globalTid >> 24) & {_NO_PID}",
        "thread": f"globalTid & {_NO_PID}",
        "start": "start",
        "end": '"end"',
    }


def _query(export: Export, table: str, kind: str, columns: dict[str, str], schema: pa.Schema, rank: int) -> pa.Table:
    """Rows that are intervals, a batch at a time in their final form: names become numbers as they come."""
    where = f"AND eventType IN ({_PUSH_POP}, {_START_END})" if kind == "range" else ""
    there = {name: expression for name, expression in columns.items() if expression != "NULL"}
    selected = ", ".join(f'{expression} AS "{name}"' for name, expression in there.items())
    query = f'SELECT {selected} FROM "{table}" WHERE "end" >= start {where}'
    types = {name: _TEXT if name in ("name", "style") else _LONG for name in there}
    same = {"rank": pa.scalar(rank, pa.int32()), "kind": pa.scalar(kind)}
    same |= {name: pa.scalar(None, _LONG) for name in columns.keys() - there.keys()}
    names, batches = Names(export), []
    with export.batches(query, types) as rows:
        for batch in rows:
            found = {name: batch[name] for name in there} | {
                name: pa.repeat(value, len(batch)) for name, value in same.items() if name in schema.names
            }
            found["name"] = names.indices(
                len(batch), found.get("name") if "name" in there else None, found.get("name_id")
            )
            batches.append([_typed(found[field.name], field) for field in schema])
    labels = names.labels()
    at = schema.get_field_index("name")
    for arrays in batches:
        arrays[at] = pa.DictionaryArray.from_arrays(arrays[at], labels)
    return pa.Table.from_batches([pa.record_batch(arrays, schema=schema) for arrays in batches], schema=schema)


def _typed(values: pa.Array, field: pa.Field) -> pa.Array:
    """The values as the timeline has them; names are numbers until all are known."""
    if field.name == "name":
        return values
    return values.dictionary_encode() if pa.types.is_dictionary(field.type) else values.cast(field.type)


def _joined(parts: list[pa.Table | None], schema: pa.Schema) -> pa.Table:
    tables = [part for part in parts if part is not None]
    return pa.concat_tables(tables).unify_dictionaries() if tables else schema.empty_table()


def _session_start(export: Export) -> int | None:
    if "utcEpochNs" not in export.tables.get("TARGET_INFO_SESSION_START_TIME", ()):
        return None
    rows = export.small("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME LIMIT 1")
    return int(rows[0][0]) if rows and rows[0][0] else None


def device_names(export: Export) -> dict[int, str]:
    """GPU number → name, for those that the export lists."""
    has = export.tables.get("TARGET_INFO_GPU", set())
    number = next((name for name in ("id", "deviceId") if name in has), None)
    if number is None or "name" not in has:
        return {}
    rows: list[tuple[Any, Any]] = export.small(f"SELECT {number}, name FROM TARGET_INFO_GPU")
    return {int(device): str(name) for device, name in rows if device is not None and name}


def _findings(export: Export) -> list[Finding]:
    found = []
    for what, name in (("kernels", "KERNEL"), ("API calls", "RUNTIME"), ("copies", "MEMCPY")):
        if table := export.table(f"CUPTI_ACTIVITY_KIND_{name}"):
            [(broken,)] = export.small(f'SELECT count(*) FROM {table} WHERE "end" < start OR "end" IS NULL')
            if broken:
                text = f"{broken} {what} of {export.path.name} end before they start, or never, and count in no sum."
                found.append(Finding(code="impossible-times", severity="warning", text=text))
    if export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        text = (
            "CUDA graphs were recorded whole, so that the kernels in them have no rows; profile with "
            "--cuda-graph-trace=node to see them (it costs more)."
        )
        found.append(Finding(code="graphs-recorded-whole", severity="info", text=text))
    if export.carries_environment:
        name = export.path.name
        scrubbed = f"stepscope scrub {name} writes"
        if export.path.is_dir():
            scrubbed = "stepscope scrub makes of an SQLite export of the same report"
        text = (
            f"{name} carries the environment variables of the profiled program, tokens perhaps among them: "
            f"send on what {scrubbed}, and profile with --discard-environment=true."
        )
        found.append(Finding(code="carries-environment", severity="warning", text=text))
    return found
