"""Damaged traces of torch.profiler, as `fuzz_cases` takes them; FOLDER has the whole one as whole.json."""

import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

from fuzz_cases import Outcome, outcome, take_cases
from trace_events import AUTOGRAD, GEMM, NCCL, Event, launched, note, op

from stepscope.analyzers.kineto import stream
from stepscope.dashboards.cli import main
from stepscope.dashboards.trace_views import VIEWS

ASKED = (
    [], ["--format", "json"], ["--format", "csv"], ["--top", "0"], ["--by-shape", "--view", "operators"],
    *(["--view", view, "--format", "csv"] for view in VIEWS), ["--perfetto", "OUT", "--force"],
)  # fmt: skip
SHAPES = {"Input Dims": [[64, 32], [32, 96]], "Input type": ["c10::Float8_e4m3fn", "c10::Float8_e4m3fn"]}

ODD_VALUES = (
    "null", "true", "-1", "0", "1e400", "-0.0", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "340282366920938463463374607431768211456", "1e18", "1e-320", "86400000001", "NaN", "Infinity", '"NaN"', '"12"',
    '"1.5e3"', '""', '"\\ud800"', '"\\u0000"', '"<script>"', "[]", "{}", "[[]]", '{"a": 1}', "[1, [2, null], \"x\"]",
    "[" * 2000 + "]" * 2000, '"' + "x" * 3000 + '"', '"C:\\Users\\x"', '"X"', '"B"', '"E"', '"C"', '"M"', '"kernel"',
    '"cpu_op"', '"user_annotation"', '"ProfilerStep#1"', "[-1, 0, 99999999999999999999]", "12345678901234567890.123",
)  # fmt: skip
"""What stands in a value's place."""
SIGNS = b'{}[]",:\\0123456789-.eEuntf \n\r\t\x00\x80\xff'


def write_trace(path: Path, steps: int = 6) -> None:
    """A small trace with an event of every kind, laid out as Kineto lays it out."""
    events: list[Event] = []
    for step in range(steps):
        at, ids = 10_000 * step, 100 * step
        events.append(note(f"ProfilerStep#{step}", at, at + 9_000))
        events.append(note("FSDP::all_gather (layers.0)", at + 10, at + 50))
        events.append(op("aten::linear", at + 100, at + 200, **{"Sequence number": step, "External id": ids} | SHAPES))
        events.append(op("aten::_scaled_mm", at + 110, at + 190, **{"External id": ids + 1} | SHAPES))
        events += launched(GEMM, at + 120, at + 400, at + 900, ids + 1, **{"External id": ids + 1})
        events.append(op("AddmmBackward0", at + 300, at + 400, AUTOGRAD, **{"Sequence number": step}))
        told = {"Collective name": "all_gather", "In msg nelems": 64, "Group size": 2, "dtype": "BFloat16"}
        events += launched(NCCL, at + 320, at + 800, at + 1_500, ids + 2, AUTOGRAD, 9, **told)
        events.append(note("Optimizer.step#AdamW.step", at + 5_000, at + 6_000))
        memory = {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Total Allocated": 512 * (step + 1), "Addr": 7}
        instant = {"ph": "i", "s": "t", "name": "[memory]", "pid": 100, "tid": 100, "ts": at + 130, "args": memory}
        events += [instant, {"ph": "C", "name": "GPU 0", "pid": 0, "ts": at + 140, "args": {"SM": 50}}]
        events += [
            {"ph": mark, "cat": "cpu_op", "name": "old", "pid": 1, "tid": 2, "ts": at + n}
            for n, mark in ((1, "B"), (9, "E"))
        ]
        events += [
            {"ph": mark, "id": ids, "pid": 100, "tid": 100, "ts": at, "cat": "ac2g", "name": "ac2g"} for mark in "sf"
        ]
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_899_345_920}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "baseTimeNanoseconds": 1_750_000_000_000_000_000,
        "traceEvents": [_as_kineto(event) for event in events],
        "traceName": "whole.json",
    }
    path.write_text(json.dumps(document, indent=1))


def _as_kineto(event: Event) -> dict[str, Any]:
    return {"ph": event["ph"]} | event


def damaged(whole: bytes, case: int) -> bytes:
    """The file with damage number `case` done to it."""
    chance = random.Random(case)
    data = bytearray(whole)
    kind = case % 8
    if kind == 0:  # bits, anywhere
        for _ in range(1 + chance.randrange(8)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    elif kind == 1:  # signs that have a meaning
        for _ in range(1 + chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.choice(SIGNS)
    elif kind == 2:  # cut short
        del data[chance.randrange(len(data)) :]
    elif kind in (3, 4):  # values
        for _ in range(1 + chance.randrange(1, 4)):
            data = _with_a_value(data, chance)
    elif kind == 5:  # a stretch that is lost, twice there, or another's
        begin, other = chance.randrange(len(data)), chance.randrange(len(data))
        size = chance.randrange(1, 2000)
        data[begin : begin + chance.choice((0, size))] = data[other : other + size] if chance.random() < 0.7 else b""
    elif kind == 6:  # bytes that are no text
        for _ in range(1 + chance.randrange(4)):
            at = chance.randrange(len(data))
            data[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 6)))
    else:  # packed, and then hurt
        packed = bytearray(gzip.compress(bytes(data), mtime=0))
        if chance.random() < 0.5:
            del packed[chance.randrange(len(packed)) :]
        else:
            packed[chance.randrange(len(packed))] ^= 1 << chance.randrange(8)
        return bytes(packed)
    return bytes(data)


_VALUE = re.compile(rb'(?<=": )("(?:[^"\\]|\\.)*"|-?[\d.eE+-]+|null|\[\]|\{\})')


def _with_a_value(data: bytearray, chance: random.Random) -> bytearray:
    places = [match.span() for match in _VALUE.finditer(data)]
    begin, end = chance.choice(places)
    return data[:begin] + chance.choice(ODD_VALUES).encode() + data[end:]


def asked(case: int, out: Path) -> list[str]:
    """What is asked of a case: every kind of damage meets every question."""
    return [str(out) if word == "OUT" else word for word in ASKED[case // 8 % len(ASKED)]]


def outcome_of(path: Path, case: int) -> tuple[str | None, int]:
    """What is wrong with how the command line takes a case (None where nothing is), and the exit code."""
    stream.BLOCK = 2048 if case % 3 else 4 << 20  # so that damage meets the edges of blocks, too
    return outcome(main, ["trace", str(path), *asked(case, path.with_suffix(".out.json"))])


def taken(folder: Path, first: int) -> Outcome:
    """How a case is taken."""
    whole, path = (folder / "whole.json").read_bytes(), folder / f"case{first}.json"

    def take(case: int) -> tuple[str | None, int]:
        path.write_bytes(damaged(whole, case))
        return outcome_of(path, case)

    return take


if __name__ == "__main__":
    take_cases(taken)
