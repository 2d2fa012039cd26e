"""Tables of the host's side of a timeline as plain columns: numbers for threads, codes for names, ranges in order."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .activities import NONE, Codes, Ints
from .nesting import Ranges, sorted_ranges

_WIDTH = 1 << 24
"""Processes and threads are put into one number, process · 2²⁴ + thread."""


class Numbers:
    """Processes and threads as numbers below 2²⁴: themselves where they are, else free ones."""

    def __init__(self, *columns: Ints) -> None:
        """All processes and threads that will be asked for."""
        self._known = np.unique(np.concatenate(columns)) if columns else np.empty(0, dtype=np.int64)
        fits = (self._known >= 0) & (self._known < _WIDTH)
        taken = set(self._known[fits].tolist())
        free = (number for number in range(_WIDTH - 1, -1, -1) if number not in taken)
        self._as = np.array(
            [n if ok else next(free) for n, ok in zip(self._known.tolist(), fits.tolist(), strict=True)]
        )

    def __call__(self, values: Ints) -> Ints:
        """Their numbers."""
        found: Ints = self._as[np.searchsorted(self._known, values)] if len(values) else values
        return found

    def threads(self, rows: pa.Table) -> Ints:
        """Process and thread of each row as one number."""
        return self(ints(rows, "process")) * _WIDTH + self(ints(rows, "thread"))


def ranges_in(
    tables: Sequence[pa.Table], names: Sequence[pa.ChunkedArray], styles: Sequence[Sequence[str]], numbers: Numbers
) -> Ranges:
    """Rows of several tables as one set; a name of two styles is two names, and codes are in the order of names."""
    texts, text_codes = coded(pa.chunked_array([chunk for column in names for chunk in column.chunks], pa.string()))
    kinds, kind_codes = np.unique(
        np.array([style for column in styles for style in column], dtype=object), return_inverse=True
    )
    both, codes = np.unique(text_codes.astype(np.int64) * max(1, len(kinds)) + kind_codes, return_inverse=True)
    pairs = [(texts[pair // len(kinds)], str(kinds[pair % len(kinds)])) for pair in both.tolist()]
    sequence = [
        ints(table, "sequence") if "sequence" in table.column_names else np.full(len(table), NONE, dtype=np.int64)
        for table in tables
    ]
    return sorted_ranges(
        start=np.concatenate([ints(table, "start") for table in tables]),
        end=np.concatenate([ints(table, "end") for table in tables]),
        thread=np.concatenate([numbers.threads(table) for table in tables]),
        name=codes.astype(np.int32),
        names=tuple(name for name, _ in pairs),
        sequence=np.concatenate(sequence),
        styles=tuple(style for _, style in pairs),
    )


def coded(column: pa.ChunkedArray) -> tuple[tuple[str, ...], Codes]:
    """The different texts in their order, and each row's place among them."""
    coded = column.cast(pa.string()).dictionary_encode().combine_chunks()
    if not len(coded):
        return (), np.empty(0, dtype=np.int32)
    known = np.array(coded.dictionary.to_pylist(), dtype=object)
    by_text = np.argsort(known, kind="stable")
    place = np.empty(len(by_text), dtype=np.int32)
    place[by_text] = np.arange(len(by_text), dtype=np.int32)
    return tuple(known[by_text].tolist()), place[np.asarray(coded.indices, dtype=np.int64)]


def ints(rows: pa.Table, column: str) -> Ints:
    """A column of whole numbers; `NONE` where it is null."""
    values = rows[column]
    return np.asarray((pc.fill_null(values, NONE) if values.null_count else values).to_numpy(), dtype=np.int64)
