"""CPU operators as calls within one another: the few that tell what was multiplied in which precision.

A trace has millions of operators; the names and dtypes that matter are looked for in its dictionaries, so that only
their rows are ever touched.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .activities import Codes, Mask
from .attention import ATTENTION

GEMMS = frozenset(
    {
        *("aten::mm", "aten::addmm", "aten::_addmm_activation", "aten::bmm", "aten::baddbmm", "aten::addbmm"),
        *("aten::_scaled_mm", "aten::_scaled_mm_v2", "mkldnn::_linear_pointwise"),
    }
)
FLOAT8_CAST = "_ToFloat8ConstrFunc"
"""torchao's cast of a tensor to FP8: its data, and the scale."""
SUBCLASS = "PythonSubclass"
"""A tensor subclass computes the operator that it lies in."""
FORWARD = frozenset({"aten::linear", "aten::matmul"})
"""Called by forward passes only: within a backward function they are a forward pass that is computed again."""
_BACKWARD = re.compile(r"^(?!autograd::engine).*Backward\d*$")
_OTHERS = re.compile(
    r"all_?gather|all_?reduce|^Torch-Compiled Region|^aten::(?:amax|max|exp2|div|pad|_foreach_norm)$", re.IGNORECASE
)


@dataclass(slots=True, eq=False)
class Call:
    """One operator's call. `parent` is the innermost of the calls here that it lies in."""

    name: str
    start: int
    end: int
    thread: tuple[int, int]
    """Process and thread."""
    shapes: list[Any]
    """Of each argument its shape, a tuple, or what else stands there."""
    dtypes: list[str]
    """Of each argument, in short such as `bf16`, or as it is written; empty where it has none."""
    sequence: int | None
    parent: "Call | None" = None
    children: list["Call"] = field(default_factory=list)

    @property
    def is_backward(self) -> bool:
        """Whether it is a backward function of autograd."""
        return bool(_BACKWARD.match(self.name))

    @property
    def is_compiled(self) -> bool:
        """Whether it lies in code that torch.compile has made, where other operators are fused out of sight."""
        return any("Compiled" in outer.name for outer in self.around())

    @property
    def is_gemm(self) -> bool:
        """Whether it multiplies matrices itself, or has another operator do it."""
        return self.name in GEMMS

    @property
    def is_innermost_gemm(self) -> bool:
        """Whether it multiplies matrices itself."""
        return self.name in GEMMS and not (self.children and any(inner.is_gemm for inner in self.within()))

    def around(self) -> Iterator["Call"]:
        """The calls that it lies in, the innermost first."""
        call = self.parent
        while call is not None:
            yield call
            call = call.parent

    def within(self) -> Iterator["Call"]:
        """All calls that lie in it, in order of their start."""
        left = self.children[::-1]
        while left:
            call = left.pop()
            yield call
            left += call.children[::-1]

    def shape(self, argument: int) -> tuple[int, ...] | None:
        """The shape of a tensor argument; None where there is none, or the trace has no shapes."""
        dims = self.shapes[argument] if argument < len(self.shapes) else None
        return dims if isinstance(dims, tuple) else None

    def dtype(self, argument: int) -> str:
        """The dtype of an argument in short, such as `bf16`, or as it is written; empty where it has none."""
        return self.dtypes[argument] if argument < len(self.dtypes) else ""


_SHORT = {
    "c10::bfloat16": "bf16",
    "c10::half": "fp16",
    "float": "fp32",
    "double": "fp64",
    "c10::float8_e4m3fn": "e4m3",
    "c10::float8_e4m3fnuz": "e4m3",
    "c10::float8_e5m2": "e5m2",
    "c10::float8_e5m2fnuz": "e5m2",
    "c10::float8_e8m0fnu": "e8m0",
    "unsigned char": "uint8",
}
DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "fp64": 8, "e4m3": 1, "e5m2": 1, "e8m0": 1, "uint8": 1}
FLOAT8 = ("e4m3", "e5m2")


def calls_of(ops: pa.Table) -> list[Call]:
    """The calls of one rank that matter, by thread and start. `ops` has the columns of `timeline.OPS`."""
    picked = ops.filter(pa.array(_relevant(ops)))
    start, end = picked["start"].to_numpy(), picked["end"].to_numpy()
    process, thread = picked["process"].to_numpy(), picked["thread"].to_numpy()
    external = pc.fill_null(
        picked["external"], -1
    ).to_numpy()  # of two that begin and end together, the caller is first
    order = np.lexsort((external, -end, start, thread, process))
    picked = picked.take(pa.array(order))
    shapes, dtypes = _decoded(picked["shapes"], _shape), _decoded(picked["dtypes"], _short)
    columns = (_texts(picked["name"]), start[order].tolist(), end[order].tolist(), process[order].tolist())
    rest = (thread[order].tolist(), shapes, dtypes, picked["sequence"].to_pylist())
    calls: list[Call] = []
    stack: list[Call] = []
    for name, begin, until, of_process, of_thread, shape, dtype, sequence in zip(*columns, *rest, strict=True):
        call = Call(name, begin, until, (of_process, of_thread), shape, dtype, sequence)
        while stack and (stack[-1].thread != call.thread or stack[-1].end <= begin):
            stack.pop()
        if stack:
            call.parent = stack[-1]
            stack[-1].children.append(call)
        calls.append(call)
        stack.append(call)
    return calls


def _relevant(ops: pa.Table) -> Mask:
    names, name = _coded(ops["name"])
    known = set(names)
    functions = {one for one in known if one and f"{one}Backward" in known}
    always = {*GEMMS, *FORWARD, *ATTENTION, *functions, FLOAT8_CAST, SUBCLASS}
    by_name = np.array(
        [one in always or bool(_BACKWARD.match(one) or _OTHERS.search(one)) for one in names], dtype=bool
    )
    dtypes, dtype = _coded(ops["dtypes"])
    eight_bits = np.array(["Float8" in one for one in dtypes], dtype=bool)
    mask: Mask = by_name[name] | eight_bits[dtype]
    return mask


def _coded(column: pa.ChunkedArray) -> tuple[list[str], Codes]:
    """The texts that occur, the empty one first, and which of them each row has; null counts as the empty one."""
    coded = column.unify_dictionaries().combine_chunks()
    if not len(coded):
        return [""], np.zeros(0, dtype=np.int32)
    return ["", *coded.dictionary.to_pylist()], np.asarray(pc.fill_null(pc.add(coded.indices, 1), 0), dtype=np.int32)


def _texts(column: pa.ChunkedArray) -> list[Any]:
    texts: list[Any] = column.cast(pa.string()).to_pylist()
    return texts


def _decoded(column: pa.ChunkedArray, meant: Callable[[Any], Any]) -> list[list[Any]]:
    """The JSON arrays of a column, each value as `meant`; rows of the same text share one."""
    texts = _texts(column)
    known = {text: [meant(value) for value in _json(text)] for text in set(texts)}
    return [known[text] for text in texts]


def _shape(value: Any) -> Any:
    is_shape = isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)
    return tuple(value) if is_shape else value


def _short(value: Any) -> str:
    return _SHORT.get(value.lower(), value) if isinstance(value, str) else ""


def _json(text: str | None) -> list[Any]:
    if not text:
        return []
    value = msgspec.json.decode(text)
    return value if isinstance(value, list) else []
