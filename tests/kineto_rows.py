"""Small traces of torch.profiler written as events, and the rows that reading gives."""

import json
from pathlib import Path
from typing import Any

from stepscope.analyzers.timeline import Timeline


def written(path: Path, events: list[dict[str, Any]], **facts: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events} | facts))
    return path


def kernel(ts: Any, dur: Any, name: str = "k", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": args}


def rows(timeline: Timeline, table: str = "activities") -> list[dict[str, Any]]:
    timeline.check()
    found: list[dict[str, Any]] = getattr(timeline, table).to_pylist()
    return found
