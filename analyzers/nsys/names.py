"""Names of rows as numbers, while the rows come: a text of the row's own, else that of its id among the strings."""

import pyarrow as pa
import pyarrow.compute as pc

from .export import Export

_NO_NAME = "?"


class Names:
    """The different names met so far, each once, however many ids the export has for it."""

    def __init__(self, export: Export) -> None:
        """Texts of ids come from `export`."""
        self._export = export
        self._number: dict[str, int] = {_NO_NAME: 0}
        self._of_id: dict[int | None, int] = {None: 0}

    def indices(self, rows: int, texts: pa.Array | None, ids: pa.Array | None) -> pa.Array:
        """For each row the number of its name, which is its text ('' is none), else that of its id."""
        by_id = pa.repeat(pa.scalar(0, pa.int32()), rows) if ids is None else self._by_id(ids)
        if texts is None:
            return by_id
        met = texts.dictionary_encode()
        numbers = [self._numbered(name) if name else None for name in met.dictionary.to_pylist()]
        return pc.coalesce(_looked_up(numbers, met.indices), by_id)

    def _by_id(self, ids: pa.Array) -> pa.Array:
        met = ids.dictionary_encode(null_encoding="encode")
        wanted = met.dictionary.to_pylist()
        new = [id for id in wanted if id not in self._of_id]
        if new:
            known = self._export.texts(new)
            self._of_id |= {id: self._numbered(known.get(id, _NO_NAME)) for id in new}
        return _looked_up([self._of_id[id] for id in wanted], met.indices)

    def labels(self) -> pa.Array:
        """The names, each in the place of its number."""
        return pa.array(list(self._number), pa.string())

    def _numbered(self, name: str) -> int:
        return self._number.setdefault(name, len(self._number))


def _looked_up(numbers: list[int | None], places: pa.Array) -> pa.Array:
    return pa.array(numbers, pa.int32()).take(places)
