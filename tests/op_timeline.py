"""Timelines of one rank, written operator by operator, with the kernels that each launches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa

from stepscope.analyzers.timeline import ACTIVITIES, LAUNCHES, OPS, RANGES, Source, Timeline

DTYPES = {"bf16": "c10::BFloat16", "e4m3": "c10::Float8_e4m3fn", "e5m2": "c10::Float8_e5m2", "fp32": "float",
          "uint8": "unsigned char", "e8m0": "c10::Float8_e8m0fnu"}  # fmt: skip
GPU = "NVIDIA H200"


class Ops:
    """Operators in the order in which they are called; each takes 10 ns and what is in it."""

    def __init__(self) -> None:
        self.now = 0
        self._ops: list[dict[str, Any]] = []
        self._launches: list[dict[str, Any]] = []
        self._activities: list[dict[str, Any]] = []
        self._ranges: list[dict[str, Any]] = []

    @contextmanager
    def call(
        self, name: str, shapes: Sequence[Any] = (), dtypes: Sequence[str] = (), *, sequence: int | None = None
    ) -> Iterator[None]:
        """An operator around what is called in the block."""
        row = {"name": name, "start": self.now, "sequence": sequence, "external": len(self._ops), "thread": 1}
        row["shapes"] = msgspec.json.encode(list(shapes)).decode() if shapes else None
        row["dtypes"] = msgspec.json.encode([DTYPES.get(one, one) for one in dtypes]).decode() if dtypes else None
        self._ops.append(row)
        self.now += 5
        yield
        self.now += 5
        row["end"] = self.now

    def leaf(self, name: str, shapes: Sequence[Any] = (), dtypes: Sequence[str] = (), **more: Any) -> None:
        """An operator that calls none."""
        with self.call(name, shapes, dtypes, **more):
            pass

    def kernel(self, name: str, duration: int) -> None:
        """A kernel launched now; kernels run one after another, from 1,000,000 ns on."""
        number = len(self._activities)
        self._launches.append(
            {"start": self.now, "end": self.now + 1, "name": "cudaLaunchKernel", "correlation": number, "thread": 1}
        )
        start = self._activities[-1]["end"] if self._activities else 1_000_000
        self._activities.append(
            {"start": start, "end": start + duration, "name": name, "kind": "kernel", "correlation": number}
            | {"device": 0, "stream": 7}
        )
        self.now += 2

    @contextmanager
    def named(self, name: str) -> Iterator[None]:
        """A range of record_function around the block."""
        row = {"name": name, "start": self.now, "style": "annotation", "thread": 1}
        self._ranges.append(row)
        self.now += 1
        yield
        self.now += 1
        row["end"] = self.now

    def timeline(self, *, gpu: str | None = GPU, world: int = 2) -> Timeline:
        """Everything so far; `gpu` is its device's name."""
        timeline = Timeline(
            sources=(
                Source(
                    rank=0, path="made", format="kineto", world_size=world, device_names={0: gpu} if gpu else {}
                ),
            ),
            ops=_table(self._ops, OPS),
            launches=_table(self._launches, LAUNCHES),
            activities=_table(self._activities, ACTIVITIES),
            ranges=_table(self._ranges, RANGES),
        )  # fmt: skip
        timeline.check()
        return timeline


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    whole = [{"rank": 0, "process": 1} | row for row in rows]
    columns = []
    for field in schema:
        values = [row.get(field.name) for row in whole]
        if pa.types.is_dictionary(field.type):
            columns.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            columns.append(pa.array(values, field.type))
    return pa.table(columns, schema=schema)
