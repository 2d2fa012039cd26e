"""An export of Nsight Systems as a Timeline.

Times are ns since the capture began; `origin_ns` is the session's start where the export says it. The process of an
activity is the one that launched it; correlation ids repeat over processes, so the two belong together.
"""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..findings import Finding
from ..timeline import ACTIVITIES, LAUNCHES, RANGES, Source, Timeline
from .export import Export, quoted

_LONG, _TEXT = pa.int64(), pa.string()
_NO_PID = (1 << 24) - 1
_PUSH_POP, _START_END = 59, 60


def read_export(path: Path, *, rank: int = 0) -> Timeline:
    """The whole export as rank `rank`. TraceError where the file is none."""
    with Export(path) as export:
        activities = [
            table
            for table in (_kernels(export), _graphs(export), _copies(export), _sets(export), _waits(export))
            if table is not None
        ]
        source = Source(
            rank=rank,
            path=str(path),
            format=export.format,
            origin_ns=_session_start(export),
            device_names=device_names(export),
        )
        return Timeline(
            sources=(source,),
            activities=_shaped(activities, ACTIVITIES, rank),
            launches=_shaped(_present(_launches(export)), LAUNCHES, rank),
            ranges=_shaped(_present(_ranges(export)), RANGES, rank),
            findings=tuple(_findings(export)),
        )


def _kernels(export: Export) -> pa.Table | None:
    table = export.table("CUPTI_ACTIVITY_KIND_KERNEL")
    return table and _rows(export, table, "kernel", name_id="demangledName")


def _graphs(export: Export) -> pa.Table | None:
    table = export.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
    return table and _rows(export, table, "graph", name="'CUDA graph ' || graphId")


def _copies(export: Export) -> pa.Table | None:
    table = export.table("CUPTI_ACTIVITY_KIND_MEMCPY")
    labels = "".join(f" WHEN {kind} THEN {quoted(label)}" for kind, label in export.copy_labels().items())
    return table and _rows(export, table, "memcpy", name=f"'memcpy ' || CASE copyKind{labels} ELSE 'Unknown' END")


def _sets(export: Export) -> pa.Table | None:
    table = export.table("CUPTI_ACTIVITY_KIND_MEMSET")
    return table and _rows(export, table, "memset", name="'memset'")


def _waits(export: Export) -> pa.Table | None:
    table = export.table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION")
    return table and _rows(export, table, "sync", name="'synchronisation ' || syncType")


def _rows(export: Export, table: str, kind: str, *, name: str = "NULL", name_id: str = "NULL") -> pa.Table:
    """Activities of one kind; columns that this version of the table lacks are null."""
    has = export.columns(table)
    stream = "coalesce(streamId, -1)" if "streamId" in has else "-1"
    columns = {
        "device": "coalesce(deviceId, 0)" if "deviceId" in has else "0",
        "stream": stream,
        "start": "start",
        "end": '"end"',
        "name": name,
        "name_id": name_id,
        "correlation": "correlationId" if "correlationId" in has else "NULL",
        "process": f"(globalPid >> 24) & {_NO_PID}" if "globalPid" in has else "NULL",
        "graph": "nullif(graphId, 0)" if "graphId" in has else "NULL",
        "bytes": "bytes" if "bytes" in has else "NULL",
    }
    found = _query(export, table, columns)
    return found.append_column("kind", pa.array([kind] * len(found), _TEXT))


def _launches(export: Export) -> pa.Table | None:
    table = export.table("CUPTI_ACTIVITY_KIND_RUNTIME")
    if table is None:
        return None
    columns = _on_thread() | {"name": "NULL", "name_id": "nameId", "correlation": "correlationId"}
    return _query(export, table, columns)


def _ranges(export: Export) -> pa.Table | None:
    table = export.table("NVTX_EVENTS")
    if table is None:
        return None
    text_id = "textId" if "textId" in export.columns(table) else "NULL"
    style = f"CASE eventType WHEN {_PUSH_POP} THEN 'pushpop' ELSE 'startend' END"
    columns = _on_thread() | {"name": "text", "name_id": text_id, "style": style}
    return _query(export, table, columns, f"AND eventType IN ({_PUSH_POP}, {_START_END})")


def _on_thread() -> dict[str, str]:
    return {
        "process": f"(globalTid >> 24) & {_NO_PID}",
        "thread": f"globalTid & {_NO_PID}",
        "start": "start",
        "end": '"end"',
    }


def _query(export: Export, table: str, columns: dict[str, str], where: str = "") -> pa.Table:
    """Rows that are intervals, their name put in from its id where it has no text of its own."""
    selected = ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())
    query = f'SELECT {selected} FROM {table} WHERE "end" >= start {where}'
    types = {name: _TEXT if name in ("name", "style") else _LONG for name in columns}
    with export.batches(query, types) as rows:
        found = rows.read_all()
    strings = export.strings()
    index = pc.index_in(found["name_id"], value_set=pa.array(strings.keys(), _LONG))
    by_id = pa.array(strings.values(), _TEXT).take(index.combine_chunks())
    own = pc.if_else(pc.equal(found["name"], ""), None, found["name"])
    names = pc.coalesce(own, by_id, "?")
    return found.drop_columns(["name_id"]).set_column(found.schema.get_field_index("name"), "name", names)


def _shaped(parts: list[pa.Table], schema: pa.Schema, rank: int) -> pa.Table:
    tables = []
    for part in parts:
        columns = [
            pa.array([rank] * len(part), pa.int32())
            if field.name == "rank"
            else part[field.name].cast(_flat(field.type))
            for field in schema
        ]
        tables.append(pa.table(columns, names=schema.names).cast(schema))
    return pa.concat_tables(tables).unify_dictionaries() if tables else schema.empty_table()


def _flat(kind: pa.DataType) -> pa.DataType:
    return _TEXT if pa.types.is_dictionary(kind) else kind


def _present(table: pa.Table | None) -> list[pa.Table]:
    return [] if table is None else [table]


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
        text = (
            f"{export.path.name} carries the environment variables of the profiled program, tokens perhaps among them: "
            f"send on what stepscope scrub {export.path.name} writes, and profile with --discard-environment=true."
        )
        found.append(Finding(code="carries-environment", severity="warning", text=text))
    return found
