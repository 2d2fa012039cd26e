"""NVTX ranges of an export: push/pop ranges, which belong to a thread, and start/end ranges, which belong to a process.

PyTorch puts more than a name into a range's text (`aten::mm, seq = 12, op_id = 34, sizes = [[8, 16]]`): the name and
autograd's number are taken apart.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..activities import NONE
from ..nesting import HostRanges, Ranges, sorted_ranges
from .columns import LONG, TEXT, Rejected, is_interval, texts
from .export import Export
from .reports_asked import PUSH_POP, START_END

_NUMBERED = r", seq = (?P<seq>\d{1,18})(?:,|$)"
_DETAILS = r", (?:seq|op_id|sizes|input_op_ids) = .*$"


def read_nvtx(export: Export, rejected: Rejected) -> HostRanges | None:
    """None where the export has no range, or no table of them."""
    table = export.table("NVTX_EVENTS")
    if table is None or not {"start", "end", "globalTid", "eventType"} <= export.columns(table):
        return None
    has = export.columns(table)
    columns = {
        "start": "start",
        "end": f'coalesce("end", {NONE})',
        "style": "eventType",
        "thread": f"coalesce(globalTid & {(1 << 48) - 1}, 0)",
        "text_id": f"coalesce(textId, {NONE})" if "textId" in has else str(NONE),
        "text": "text" if "text" in has else "NULL",
    }
    selected = ", ".join(f'{expression} AS "{name}"' for name, expression in columns.items())
    query = f'SELECT {selected} FROM "{table}" WHERE eventType IN ({PUSH_POP}, {START_END})'
    types = {name: TEXT if name == "text" else LONG for name in columns}
    with export.batches(query, types) as batches:
        rows = batches.read_all()
    good = is_interval(rows["start"].to_numpy(), rows["end"].to_numpy())
    rejected.add("ranges", len(good) - int(good.sum()))
    rows = rows.filter(pa.array(good))
    if not len(rows):
        return None
    rows = rows.append_column("name", _texts(export, rows))
    styles = rows["style"].to_numpy()
    return HostRanges(
        push_pop=_ranges(rows.filter(pa.array(styles == PUSH_POP))),
        start_end=_ranges(rows.filter(pa.array(styles == START_END))),
    )


def _texts(export: Export, rows: pa.Table) -> pa.ChunkedArray:
    strings = texts(export)
    index = pc.index_in(rows["text_id"], value_set=pa.array(strings.keys(), LONG))
    by_id = pa.array(strings.values(), TEXT).take(index.combine_chunks())
    own = pc.if_else(pc.equal(rows["text"], ""), None, rows["text"])
    return pc.coalesce(own, by_id, "?")


def _ranges(rows: pa.Table) -> Ranges:
    whole = rows["name"].combine_chunks()
    numbers = pc.struct_field(pc.extract_regex(whole, _NUMBERED), "seq").cast(LONG)
    plain = pc.replace_substring_regex(whole, _DETAILS, "").dictionary_encode()
    # Codes in the order of names, so that ranges with the same times nest alike whatever the order of rows.
    raw = plain.dictionary.cast(pa.binary()).to_pylist()
    known = np.array([name.decode("utf-8", errors="replace") for name in raw], dtype=object)
    by_text = np.argsort(known, kind="stable")
    code_of = np.empty(len(by_text), dtype=np.int32)
    code_of[by_text] = np.arange(len(by_text), dtype=np.int32)
    return sorted_ranges(
        start=rows["start"].to_numpy(),
        end=rows["end"].to_numpy(),
        thread=rows["thread"].to_numpy(),
        name=code_of[np.asarray(plain.indices, dtype=np.int64)],
        names=tuple(known[by_text].tolist()),
        sequence=pc.fill_null(numbers, NONE).to_numpy(zero_copy_only=False),
    )
