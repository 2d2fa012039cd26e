"""CPU operators by self time: an operator's time less that of the operators it called on the same thread."""

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa


class OperatorTime(msgspec.Struct, frozen=True, kw_only=True):
    """All calls of one operator."""

    name: str
    count: int
    total_ns: int
    """With what it called; an operator that calls itself counts twice."""
    self_ns: int


def operator_times(ops: pa.Table) -> list[OperatorTime]:
    """Operators of one rank, largest self time first, then by name. `ops` has the columns of `timeline.OPS`."""
    starts, ends = ops["start"].to_numpy(), ops["end"].to_numpy()
    threads = ops["thread"].to_numpy()
    processes = ops["process"].to_numpy()
    self_ns = ends - starts
    # Parents before children: earlier start first and, of those that start together, the longer one.
    order = np.lexsort((-ends, starts, threads, processes))
    stack: list[int] = []
    where: tuple[int, int] | None = None
    for row in order.tolist():
        here = (processes[row], threads[row])
        if here != where:
            stack, where = [], here
        while stack and ends[stack[-1]] <= starts[row]:
            stack.pop()
        if stack:
            # What overruns its caller counts against it only as far as it lies inside.
            self_ns[stack[-1]] -= min(ends[row], ends[stack[-1]]) - starts[row]
        stack.append(row)
    return _summed(ops["name"].cast(pa.string()).to_pylist(), ends - starts, self_ns)


def _summed(names: list[str], total_ns: npt.NDArray[np.int64], self_ns: npt.NDArray[np.int64]) -> list[OperatorTime]:
    sums: dict[str, list[int]] = {}
    for name, whole, alone in zip(names, total_ns.tolist(), self_ns.tolist(), strict=True):
        entry = sums.setdefault(name, [0, 0, 0])
        entry[0] += 1
        entry[1] += whole
        entry[2] += alone
    rows = [OperatorTime(name=name, count=c, total_ns=t, self_ns=s) for name, (c, t, s) in sums.items()]
    return sorted(rows, key=lambda row: (-row.self_ns, row.name))
