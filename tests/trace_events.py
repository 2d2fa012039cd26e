"""Small traces for tests: events of torch.profiler in whole µs, and the answers to them."""

import json
from pathlib import Path
from typing import Any

from stepscope.analyzers.kineto.read import read_traces
from stepscope.analyzers.trace_answers import answers
from stepscope.analyzers.trace_result import TraceReport

NCCL, GEMM = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "sm90_xmma_gemm_bf16bf16"
MAIN, AUTOGRAD = 100, 101
Event = dict[str, Any]


def on_host(category: str, name: str, start: int, end: int, thread: int = MAIN, **args: Any) -> Event:
    return {
        "ph": "X", "cat": category, "name": name, "pid": MAIN, "tid": thread,
        "ts": start, "dur": end - start, "args": args,
    }  # fmt: skip


def op(name: str, start: int, end: int, thread: int = MAIN, **args: Any) -> Event:
    return on_host("cpu_op", name, start, end, thread, **args)


def note(name: str, start: int, end: int, thread: int = MAIN, **args: Any) -> Event:
    return on_host("user_annotation", name, start, end, thread, **args)


def call(name: str, start: int, end: int, correlation: int, thread: int = MAIN) -> Event:
    return on_host("cuda_runtime", name, start, end, thread, correlation=correlation)


def kernel(name: str, start: int, end: int, correlation: int, stream: int = 7, **args: Any) -> Event:
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": start, "dur": end - start,
        "args": {"device": 0, "stream": stream, "correlation": correlation} | args,
    }  # fmt: skip


def launched(
    name: str, at: int, start: int, end: int, correlation: int, thread: int = MAIN, stream: int = 7, **args: Any
) -> list[Event]:
    """A kernel with its launch call, 1 µs from `at`."""
    return [
        call("cudaLaunchKernel", at, at + 1, correlation, thread), kernel(name, start, end, correlation, stream, **args)
    ]  # fmt: skip


def written(path: Path, events: list[Event], rank: int = 0, world: int | None = None) -> Path:
    told = {"rank": rank} | ({"world_size": world} if world else {})
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": told}))
    return path


def report_of(folder: Path, *ranks: list[Event], world: int | None = None, by_shape: bool = False) -> TraceReport:
    """The answers to traces, one a rank."""
    paths = [written(folder / f"rank{rank}.json", events, rank, world) for rank, events in enumerate(ranks)]
    return answers(read_traces(paths), by_shape=by_shape)
