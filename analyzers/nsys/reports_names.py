"""Names as `nsys stats` prints them: kernels, copies and sets, API calls, devices, grids.

Equal texts are one name, whatever their ids.
"""

import re
from collections.abc import Mapping
from functools import cache

import duckdb

from .export import Export
from .reports_asked import Asked, Value
from .summaries import UNKNOWN

SHAPE = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_MEMSET = -1_000_000
"""Stands for sets among names, as −1 − kind does for a kind of copy; ids of strings are not negative."""


class Names:
    """Texts by id, equal texts under one id."""

    def __init__(self, texts: Mapping[int, str]) -> None:
        """`texts`: id → text as it is shown."""
        first: dict[str, int] = {}
        self._text = dict(texts)
        self._same = {id: first.setdefault(text, id) for id, text in self._text.items()}
        self._twins = {id: one for id, one in self._same.items() if id != one}

    def text(self, id: Value) -> str:
        """The text of an id."""
        return self._text.get(id, UNKNOWN) if isinstance(id, int) else UNKNOWN

    def merged(self, connection: duckdb.DuckDBPyConnection, source: str, column: str = "name") -> str:
        """A query of `source` in which ids of equal text are one."""
        if not self._twins:
            return source
        import pyarrow as pa

        twins = pa.table({"id": [*self._twins.keys()], "one": [*self._twins.values()]})
        connection.register(f"twins_{column}", twins)
        return (
            f"SELECT given.* REPLACE (coalesce(twins.one, given.{column}) AS {column}) "
            f"FROM ({source}) AS given LEFT JOIN twins_{column} AS twins ON twins.id = given.{column}"
        )


def api_names(export: Export) -> Names:
    """Names of calls as nsys prints them: without a version of four digits, with one of five (`_v10000`)."""
    return Names({id: unversioned(text) for id, text in export.strings().items()})


def operation_names(export: Export) -> dict[int, str]:
    """The names of copies and sets by the numbers that stand for them."""
    labels = {0: "Unknown"} | export.copy_labels()
    return {-1 - kind: f"[CUDA memcpy {label}]" for kind, label in labels.items()} | {_MEMSET: "[CUDA memset]"}


def operation(export: Export, table: str) -> str:
    """The number that stands for a copy's or a set's name, as SQL over its table."""
    if "MEMSET" in table:
        return str(_MEMSET)
    known = ", ".join(str(kind) for kind in export.copy_labels())
    return f"CASE WHEN copyKind IN ({known}) THEN -1 - copyKind ELSE -1 END"


def kernel_column(export: Export, table: str, asked: Asked) -> str:
    """The id of a kernel's name in the form that is asked for, as SQL; exports of old captures have no mangled ones."""
    wanted = {"full": "demangledName", "base": "shortName", "mangled": "mangledName"}[asked.kernel_name]
    has = export.columns(table)
    found = [column for column in (wanted, "demangledName", "shortName") if column in has]
    return f"coalesce({', '.join(found)}, NULL)" if found else "NULL"


@cache
def xyz(x: Value, y: Value, z: Value) -> str:
    """Grid or block dimensions as nsys prints them: each at least four wide."""
    return " ".join(f"{side if isinstance(side, int) and side >= 0 else '':>4}" for side in (x, y, z))


def memory_kinds(export: Export) -> dict[int, str]:
    """srcKind, dstKind or memKind → words."""
    if "ENUM_CUDA_MEM_KIND" in export.tables:
        return {int(kind): str(label) for kind, label in export.small("SELECT id, label FROM ENUM_CUDA_MEM_KIND")}
    kinds = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static", "Unknown")
    return dict(enumerate(kinds))


def unversioned(name: str) -> str:
    """The name of a call without the CUDA version that introduced it, where that has four digits: _v10000 stays."""
    return re.sub(r"_v[0-9]{4}$", "", name)
