"""Collectives as the trace tells of them: what was sent, by which algorithm, and how fast the links ran.

torch.profiler writes sizes, type and process group beside c10d's operators, and newer versions beside NCCL's kernels
too. Algorithm and protocol stand in the names of NCCL's kernels where they differ by it (`…_RING_LL`).

Bandwidths are those of nccl-tests: algorithm bandwidth = S / t, S being what one rank ends up with (all-gather) or
hands in (all others); bus bandwidth = that times 2(n−1)/n for all-reduce, (n−1)/n for all-gather, reduce-scatter and
all-to-all, 1 for the rest, with n ranks in the group. t is the kernel's time, which holds the waiting for ranks that
come late: both are lower bounds of what the links did.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from .activities import NONE, Activities, Ints
from .collectives import OTHER, Names, collective_names, collective_of
from .host import Host
from .host_columns import Numbers, ints
from .nesting import nearest
from .projection import owners

_ALGORITHM = re.compile(r"_(RING|TREE|NVLS(?:_TREE)?|COLLNET(?:_DIRECT|_CHAIN)?|PAT)_(LL128|LL|SIMPLE)(?![A-Z0-9])")
_SIZES = (
    (1, r"float8|fp8|u?int8|byte|char|bool"),
    (2, r"bfloat16|float16|half|u?int16|short"),
    (8, r"double|float64|u?int64|long|complexfloat|complex64"),
    (4, r"float|u?int32|int"),
)
"""Bytes of an element → pattern over the type's lower-cased name, tried in this order."""
RECORDED = "record_param_comms"


class CommunicationTime(msgspec.Struct, frozen=True, kw_only=True):
    """All collectives alike in everything that is told of them."""

    collective: str
    algorithm: str | None
    """Such as `RING`; None where the kernel's name does not say, as newer NCCL's do not."""
    protocol: str | None
    """`LL`, `LL128` or `SIMPLE`."""
    dtype: str | None
    group: str | None
    """Name of the process group."""
    group_size: int | None
    count: int
    total_ns: int
    median_ns: float
    min_ns: int
    bytes: int | None
    """What one rank handed in, summed; None unless it is known of each."""
    alg_bytes_per_s: float | None
    bus_bytes_per_s: float | None
    """None also where the group's size is not known."""


class Told(NamedTuple):
    """What a trace tells of one collective; None for what it does not."""

    collective: str | None
    dtype: str | None
    group: str | None
    group_size: int | None
    given: int | None
    taken: int | None


_NOTHING = Told(None, None, None, None, None, None)


def told_of(host: Host, rows: pa.Table, numbers: Numbers) -> list[Told]:
    """What is told of each activity as a collective; `rows` are the rank's, as in `timeline.COLLECTIVES`."""
    found = [_NOTHING] * len(host.work)
    if not len(rows):
        return found
    told = _rows(rows)
    kernels = {key: at for at, key in enumerate(_pairs(rows, "device", "correlation")) if NONE not in key}
    keys = list(zip(host.work.device.tolist(), host.work.correlation.tolist(), strict=True))
    by_call = _calls_of(host, rows, numbers)
    for at in np.flatnonzero(host.work.is_communication).tolist():
        row = kernels.get(keys[at], by_call.get(at))
        if row is not None:
            found[at] = told[row]
    return found


def _calls_of(host: Host, rows: pa.Table, numbers: Numbers) -> dict[int, int]:
    """Activity → the row of the collective's call on the host that launched it (or that it is, without a GPU)."""
    if host.ranges is None or host.nested is None:
        return {}
    ranges = host.ranges.push_pop
    on_host = np.flatnonzero(ints(rows, "device") == NONE)
    at_host = rows.take(on_host)
    texts = at_host["name"].cast(pa.string()).to_pylist()
    where = zip(numbers.threads(at_host).tolist(), ints(at_host, "start").tolist(), texts, strict=True)
    place = dict(zip(where, on_host.tolist(), strict=True))
    names = set(texts)
    told = np.array([name in names for name in ranges.names], dtype=bool)[ranges.name]
    owned = owners(host.asked, ranges, host.nested).direct
    around = nearest(host.nested.parent, told)
    found = {}
    for at in np.flatnonzero(host.work.is_communication & (owned >= 0)).tolist():
        row = int(around[owned[at]])
        while row >= 0:
            key = (int(ranges.thread[row]), int(ranges.start[row]), ranges.names[ranges.name[row]])
            if key in place and (at not in found or key[2] == RECORDED):
                found[at] = place[key]
            above = int(host.nested.parent[row])
            row = int(around[above]) if above >= 0 else NONE
    return found


def _rows(rows: pa.Table) -> list[Told]:
    texts = [rows[name].cast(pa.string()).to_pylist() for name in ("collective", "dtype", "group")]
    whole = [rows[name].to_pylist() for name in ("group_size", "in_elements", "out_elements")]
    texts[1] = [dtype and dtype.removeprefix("c10::") for dtype in texts[1]]
    return [Told(*row) for row in zip(*texts, *whole, strict=True)]


def _pairs(rows: pa.Table, *columns: str) -> list[tuple[int, ...]]:
    return list(zip(*(ints(rows, column).tolist() for column in columns), strict=True))


def names_told(work: Activities, told: Sequence[Told]) -> Names:
    """The collective of each activity: as the trace tells, else as its kernel's name does."""
    found = collective_names(work)
    for at, entry in enumerate(told):
        if entry.collective is not None and (name := collective_of(entry.collective)) != OTHER:
            found[at] = name
    return found


def bytes_given(told: Sequence[Told]) -> Ints:
    """What each activity's rank handed in; `NONE` where it is not known."""
    return np.array([_bytes(entry.given, entry.dtype) if entry.given is not None else NONE for entry in told], np.int64)


def _bytes(elements: int, dtype: str | None) -> int:
    size = element_bytes(dtype)
    return elements * size if size is not None else NONE


def element_bytes(dtype: str | None) -> int | None:
    """Bytes of an element of a type as c10d or torch name it; None for an unknown one."""
    lowered = (dtype or "").lower().replace(" ", "").removeprefix("c10::")
    return next((size for size, pattern in _SIZES if re.match(pattern, lowered.removeprefix("unsigned"))), None)


def communication_times(work: Activities, called: Names, told: Sequence[Told]) -> list[CommunicationTime]:
    """Largest time first; `called` is the collective of each activity."""
    rows: dict[tuple[str, str | None, str | None, str | None, str | None, int | None], list[int]] = {}
    for at in np.flatnonzero(work.is_communication).tolist():
        name, entry = work.labels[work.label[at]].name, told[at]
        how = _ALGORITHM.search(name)
        key = (
            str(called[at]),
            how[1] if how else None,
            how[2] if how else None,
            entry.dtype,
            entry.group,
            entry.group_size,
        )
        rows.setdefault(key, []).append(at)
    found = []
    for key, mine in rows.items():
        collective, algorithm, protocol, dtype, group, group_size = key
        durations = work.duration[mine]
        given, moved = _volume(collective, [told[at] for at in mine])
        total_ns = int(durations.sum())
        rate = moved * 1e9 / total_ns if moved is not None and total_ns else None
        found.append(
            CommunicationTime(
                collective=collective,
                algorithm=algorithm,
                protocol=protocol,
                dtype=dtype,
                group=group,
                group_size=group_size,
                count=len(mine),
                total_ns=total_ns,
                median_ns=float(np.median(durations)),
                min_ns=int(durations.min()),
                bytes=given,
                alg_bytes_per_s=rate,
                bus_bytes_per_s=rate * bus_factor(collective, group_size) if rate is not None and group_size else None,
            )
        )
    return sorted(found, key=lambda row: (-row.total_ns, row.collective, row.dtype or "", row.group or ""))


def _volume(collective: str, told: Sequence[Told]) -> tuple[int | None, int | None]:
    """Bytes handed in, and S of the bandwidths; None where it is not known of each."""
    given, moved = 0, 0
    whole = True
    for entry in told:
        size = element_bytes(entry.dtype)
        if size is None or entry.given is None:
            return None, None
        given += entry.given * size
        if collective != "AllGather":
            moved += entry.given * size
        elif entry.taken is not None:
            moved += entry.taken * size
        elif entry.group_size is not None:
            moved += entry.given * entry.group_size * size
        else:
            whole = False
    return given, moved if whole else None


def bus_factor(collective: str, ranks: int) -> float:
    """What nccl-tests multiply algorithm bandwidth by to get bus bandwidth."""
    if collective == "AllReduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in ("AllGather", "ReduceScatter", "AllToAll") else 1.0
