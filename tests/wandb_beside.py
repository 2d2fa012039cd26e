"""Run by test_study_columns.py: W&B, offline, and our sampler side by side on the fake driver.

Arguments: folder, seconds between W&B's readings, seconds in all. Prints W&B's readings, `[Unix s, {key: value}]`, as
JSON lines; ours are in the folder's telemetry.jsonl.
"""

import json
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import wandb
from wandb.proto import wandb_internal_pb2

from stepscope.profiling.sampler import Sampler

folder = Path(sys.argv[1])


def records(log: bytes) -> Iterator[bytes]:
    """What a .wandb file holds: LevelDB's log format after seven bytes, in blocks of 32 KiB."""
    at, whole = 7, b""
    while at + 7 <= len(log):
        left = 32768 - at % 32768
        _, length, kind = struct.unpack_from("<IHB", log, at) if left >= 7 else (0, 0, 0)
        if kind == 0:
            at += left
            continue
        part = log[at + 7 : at + 7 + length]
        whole = whole + part if kind in (3, 4) else part
        at += 7 + length
        if kind in (1, 4):
            yield whole


settings = wandb.Settings(x_stats_sampling_interval=float(sys.argv[2]), console="off", silent=True)
run = wandb.init(mode="offline", project="beside", dir=folder, settings=settings)
for _ in range(6000):  # W&B starts the driver first: the scenario begins with its first reading
    if (folder / "epoch").exists():
        break
    time.sleep(0.01)
else:
    sys.exit("W&B has not started NVML")
with Sampler(folder / "telemetry.jsonl", 0.2, ("GPU-fake-0", "GPU-fake-1")):
    time.sleep(float(sys.argv[3]))
run.finish()
wandb.teardown()  # else its file may not be whole yet
[written] = folder.glob("wandb/offline-run-*/*.wandb")
for data in records(written.read_bytes()):
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    if record.WhichOneof("record_type") == "stats":
        stamp = record.stats.timestamp
        values = {item.key: json.loads(item.value_json) for item in record.stats.item}
        sys.stdout.write(json.dumps([stamp.seconds + stamp.nanos / 1e9, values]) + "\n")
