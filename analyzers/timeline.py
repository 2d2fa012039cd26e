"""The Timeline: what Kineto traces of any version become. Exports of nsys, which are larger, stay columns (`nsys`).

Seven Arrow tables. Times are int64 nanoseconds since the source's own origin (`origin_ns` says which Unix time that is,
where known), intervals are half-open [start, end). Names are dictionary-encoded strings. A column that the source does
not have is null, never zero.
"""

from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from .findings import Finding

_NAME = pa.dictionary(pa.int32(), pa.string())

ACTIVITIES = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("device", pa.int32(), nullable=False),
        pa.field("stream", pa.int64(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("kind", _NAME, nullable=False),  # kernel, memcpy, memset, graph, sync
        pa.field("name", _NAME, nullable=False),
        pa.field("correlation", pa.int64()),  # unique within (rank, process) only
        pa.field("process", pa.int64()),
        pa.field("graph", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("external", pa.int64()),  # External id of the operator that launched it
    ]
)
"""Work on a device. `sync` rows (stream, event, context synchronisation) are no work and count in no sum."""

LAUNCHES = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("process", pa.int64(), nullable=False),
        pa.field("thread", pa.int64(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("name", _NAME, nullable=False),
        pa.field("correlation", pa.int64()),
    ]
)
"""CUDA or HIP API calls on the host."""

RANGES = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("process", pa.int64(), nullable=False),
        pa.field("thread", pa.int64(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("name", _NAME, nullable=False),
        pa.field("style", _NAME, nullable=False),  # pushpop, startend, annotation, step, module
    ]
)
"""Named spans on the host: NVTX ranges, record_function annotations, ProfilerStep, calls of nn.Modules."""

OPS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("process", pa.int64(), nullable=False),
        pa.field("thread", pa.int64(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("name", _NAME, nullable=False),
        pa.field("shapes", _NAME),  # input shapes as JSON text
        pa.field("dtypes", _NAME),  # input types as JSON text
        pa.field("sequence", pa.int64()),  # autograd sequence number
        pa.field("external", pa.int64()),  # External id: links an operator to its launches
    ]
)
"""CPU operators."""

COLLECTIVES = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("device", pa.int32()),  # of a kernel; null for calls on the host
        pa.field("process", pa.int64()),  # of a call on the host, as is its thread
        pa.field("thread", pa.int64()),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field("name", _NAME, nullable=False),
        pa.field("collective", _NAME),  # as the source calls it
        pa.field("group", _NAME),  # the process group's name
        pa.field("group_size", pa.int64()),
        pa.field("dtype", _NAME),
        pa.field("in_elements", pa.int64()),  # what one rank hands in
        pa.field("out_elements", pa.int64()),
        pa.field("correlation", pa.int64()),  # of a kernel
    ]
)
"""What the source says of collectives, beside the kernels, operators and ranges that they are."""

MEMORY = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("device", pa.int32(), nullable=False),  # −1 = host
        pa.field("time", pa.int64(), nullable=False),
        pa.field("delta_bytes", pa.int64(), nullable=False),
        pa.field("allocated_bytes", pa.int64()),
        pa.field("reserved_bytes", pa.int64()),
    ]
)
"""Allocations (positive) and releases (negative)."""

COUNTERS = pa.schema(
    [
        pa.field("rank", pa.int32(), nullable=False),
        pa.field("device", pa.int32()),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("name", _NAME, nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
"""Sampled values: GPU metrics, NVML rows of nsys, Chrome counter events."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where one rank's part of a timeline came from."""

    rank: int
    path: str
    format: str
    """Such as `kineto`."""
    origin_ns: int | None = None
    """Unix time of the timeline's zero, where the source says."""
    device_names: dict[int, str] = field(default_factory=dict)
    world_size: int | None = None


def _empty(schema: pa.Schema) -> pa.Table:
    return schema.empty_table()


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """Everything one or several traces recorded, and what the readers had to say about them."""

    sources: tuple[Source, ...]
    activities: pa.Table = field(default_factory=lambda: _empty(ACTIVITIES))
    launches: pa.Table = field(default_factory=lambda: _empty(LAUNCHES))
    ranges: pa.Table = field(default_factory=lambda: _empty(RANGES))
    ops: pa.Table = field(default_factory=lambda: _empty(OPS))
    collectives: pa.Table = field(default_factory=lambda: _empty(COLLECTIVES))
    memory: pa.Table = field(default_factory=lambda: _empty(MEMORY))
    counters: pa.Table = field(default_factory=lambda: _empty(COUNTERS))
    findings: tuple[Finding, ...] = ()

    def of_rank(self, rank: int) -> "Timeline":
        """The part of one rank, without findings."""
        if len(self.sources) == 1 and self.sources[0].rank == rank:
            return self
        tables = {name: (table := getattr(self, name)).filter(pc.equal(table["rank"], rank)) for name in SCHEMAS}
        return Timeline(sources=tuple(source for source in self.sources if source.rank == rank), **tables)

    def check(self) -> None:
        """Assert the invariants: exact schemas, no nulls where none may be, no interval ending before it starts."""
        for name, schema in SCHEMAS.items():
            table: pa.Table = getattr(self, name)
            assert table.schema.equals(schema), f"{name}: schema is\n{table.schema}\nnot\n{schema}"
            for column in schema:
                if not column.nullable:
                    assert table[column.name].null_count == 0, f"{name}.{column.name} has nulls"
            if "end" in schema.names and len(table):
                assert pc.all(pc.greater_equal(table["end"], table["start"])).as_py(), f"{name}: end before start"
        known = {source.rank for source in self.sources}
        for name in SCHEMAS:
            ranks = set(pc.unique(getattr(self, name)["rank"]).to_pylist())
            assert ranks <= known, f"{name}: ranks {sorted(ranks - known)} have no source"


SCHEMAS: dict[str, pa.Schema] = {
    "activities": ACTIVITIES,
    "launches": LAUNCHES,
    "ranges": RANGES,
    "ops": OPS,
    "collectives": COLLECTIVES,
    "memory": MEMORY,
    "counters": COUNTERS,
}


def merge(timelines: list[Timeline]) -> Timeline:
    """One timeline of several (of different ranks); each part keeps its own origin."""
    return Timeline(
        sources=tuple(source for part in timelines for source in part.sources),
        findings=tuple(finding for part in timelines for finding in part.findings),
        **{
            name: pa.concat_tables([getattr(part, name) for part in timelines]).unify_dictionaries()
            if timelines
            else _empty(schema)
            for name, schema in SCHEMAS.items()
        },
    )
