"""Work on devices as plain columns: what questions about device time are asked of, whatever recorded it.

A timeline's activities become one, and an export of Nsight Systems too large for a timeline is read straight into one.
Names are codes into a list of labels, so that what a kernel is gets decided once a name and not once a row. Waiting
(`sync`) is no work and is not here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .kinds import COMMUNICATION, kind_of

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.signedinteger]
"""Numbers that are told apart and not reckoned with, in 32 bits where those hold them, else in 64."""
Codes = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
What = Literal["kernel", "memcpy", "memset", "graph"]

NONE = -1
"""In a column of ids: the source does not say."""


class Label(NamedTuple):
    """A name, what carries it, and the kind of work it stands for."""

    name: str
    what: What
    kind: str


def label(name: str, what: What) -> Label:
    """The label of an activity: kernels and whole graphs are sorted by their name, the rest are their own kind."""
    return Label(name, what, kind_of(name) if what in ("kernel", "graph") else what)


@dataclass(frozen=True, kw_only=True)
class Activities:
    """One row an activity, one rank; times in ns, half-open. The order of rows means nothing."""

    start: Ints
    end: Ints
    device: Codes
    stream: Ids
    process: Ids
    correlation: Ids
    """Unique within a process only; `NONE` where not recorded."""
    label: Codes
    labels: tuple[Label, ...]

    def __len__(self) -> int:
        """Rows."""
        return len(self.start)

    def where(self, mask: Mask) -> Self:
        """The rows that `mask` picks, with the same labels."""
        if mask.all():
            return self
        columns = {field.name: getattr(self, field.name)[mask] for field in fields(self) if field.name != "labels"}
        return replace(self, **columns)

    @property
    def duration(self) -> Ints:
        """Nanoseconds of each."""
        return self.end - self.start

    @property
    def is_kernel(self) -> Mask:
        """Kernels and whole graphs."""
        return self._labelled([entry.what in ("kernel", "graph") for entry in self.labels])

    @property
    def is_communication(self) -> Mask:
        """Kernels of NCCL and its kin."""
        return self._labelled([entry.kind == COMMUNICATION for entry in self.labels])

    def _labelled(self, of_label: list[bool]) -> Mask:
        return np.array(of_label, dtype=bool)[self.label] if of_label else np.zeros(len(self), dtype=bool)


def activities_of(rows: pa.Table) -> Activities:
    """A timeline's activities (columns of `timeline.ACTIVITIES`) of one rank."""
    rows = rows.filter(pc.not_equal(rows["kind"].cast(pa.string()), "sync"))
    names, name_codes = _coded(rows["name"])
    whats, what_codes = _coded(rows["kind"])
    both, codes = np.unique(name_codes.astype(np.int64) * max(1, len(whats)) + what_codes, return_inverse=True)
    return Activities(
        start=_ints(rows["start"]),
        end=_ints(rows["end"]),
        device=_ints(rows["device"]).astype(np.int32),
        stream=_ints(rows["stream"]),
        process=_ints(pc.fill_null(rows["process"], NONE)),
        correlation=_ints(pc.fill_null(rows["correlation"], NONE)),
        label=codes.astype(np.int32),
        labels=tuple(label(names[pair // len(whats)], whats[pair % len(whats)]) for pair in both.tolist()),
    )


def distinct(numbers: Ids) -> Ids:
    """The different values, in order; without sorting all of them where they are small."""
    if _are_small(numbers):
        return np.flatnonzero(np.bincount(numbers - NONE)) + NONE
    return np.unique(numbers)


def translated(numbers: Ids, known: Ids, codes: Sequence[int]) -> Codes:
    """For each number the code at its place in `known`, the `distinct` ones."""
    if not len(numbers):
        return np.empty(0, dtype=np.int32)
    if not _are_small(numbers):
        return np.array(codes, dtype=np.int32)[np.searchsorted(known.astype(numbers.dtype), numbers)]
    table = np.empty(int(known[-1]) - NONE + 1, dtype=np.int32)
    table[known - NONE] = codes
    return table[numbers - NONE]


def _are_small(numbers: Ids) -> bool:
    """Whether a table of all numbers up to the largest is small."""
    return bool(len(numbers)) and numbers.min() >= NONE and numbers.max() < 1 << 24


def _coded(column: pa.ChunkedArray) -> tuple[list[str], Codes]:
    coded = column.cast(pa.string()).dictionary_encode().combine_chunks()
    if not len(coded):
        return [], np.empty(0, dtype=np.int32)
    return coded.dictionary.to_pylist(), np.asarray(coded.indices, dtype=np.int32)


def _ints(column: pa.ChunkedArray) -> Ints:
    return np.asarray(column.to_numpy(), dtype=np.int64)
