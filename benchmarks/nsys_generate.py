"""A generated export of Nsight Systems (nsys 2025.1, schema 3.17.2), as large as asked, the same for a seed.

    python benchmarks/nsys_generate.py OUT.sqlite [--kernels 3000000] [--ranges 200000] [--seed 1]

One process trains on one device: steps > forward, backward > 24 layers > operators as nested NVTX ranges, the layers of
the backward pass on autograd's thread. Every kernel has its launch; compute runs on stream 7, every 60th kernel is a
collective on stream 20. Kernels of a stream run one after the other and none starts before its launch.
"""

import argparse
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]

PID = 4242
GLOBAL_PID = (1 << 56) | (PID << 24)
MAIN, AUTOGRAD = GLOBAL_PID | PID, GLOBAL_PID | (PID + 77)
LAYERS, OPERATORS, COLLECTIVE_EVERY = 24, 8, 60
GAP_NS, CHUNK = 6_000, 200_000

_SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE ANALYSIS_DETAILS (globalVid INTEGER NOT NULL, duration INTEGER NOT NULL, startTime INTEGER NOT NULL,
    stopTime INTEGER NOT NULL);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT,
    isDiscrete INTEGER, l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER,
    smCount INTEGER, pwGpuId INTEGER, uuid TEXT, luid INTEGER, chipName TEXT, cuDevice INTEGER, ctxswDevPath TEXT,
    ctrlDevPath TEXT, revision INTEGER, nodeMask INTEGER, constantMemory INTEGER, maxIPC INTEGER,
    maxRegistersPerBlock INTEGER, maxShmemPerBlock INTEGER, maxShmemPerBlockOptin INTEGER, maxShmemPerSm INTEGER,
    maxRegistersPerSm INTEGER, threadsPerWarp INTEGER, asyncEngines INTEGER, maxWarpsPerSm INTEGER,
    maxBlocksPerSm INTEGER, maxThreadsPerBlock INTEGER, maxBlockDimX INTEGER, maxBlockDimY INTEGER,
    maxBlockDimZ INTEGER, maxGridDimX INTEGER, maxGridDimY INTEGER, maxGridDimZ INTEGER, computeMajor INTEGER,
    computeMinor INTEGER, smMajor INTEGER, smMinor INTEGER);
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER NOT NULL, pid INTEGER NOT NULL, uuid TEXT,
    numMultiprocessors INTEGER);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
    launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
    gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
    blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL,
    localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL,
    sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
    callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
    domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER,
    int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT);
"""
_KERNEL = f"""INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, NULL, ?, ?, {GLOBAL_PID}, ?, ?, ?, 1, 0, 128,
    ?, 1, 1, 256, 1, 1, 1024, 49152, 0, 95813632, ?, 102400, NULL, 0)"""
_LAUNCH = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 1, ?, ?, ?, 0, NULL)"
_RANGE = """INSERT INTO NVTX_EVENTS VALUES
    (?, ?, 59, NULL, NULL, NULL, ?, ?, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"""


class Asked(NamedTuple):
    """What the command line asks for."""

    kernels: int
    ranges: int
    seed: int


class Kernels(NamedTuple):
    """The columns that differ from row to row, each of length n; times in ns."""

    launch_start: Longs
    launch_end: Longs
    start: Longs
    end: Longs
    kind: Longs
    """Which of `names()`."""


def names() -> list[tuple[str, str]]:
    """(demangled, short) of 96 kernels; the last 4 are collectives."""
    made = []
    for tile in ("64x64", "128x64", "128x128", "256x128"):
        for layout in ("NNT", "TNT", "NTN"):
            for kind in ("F8", "BF16"):
                short = f"nvjet_{kind.lower()}_{tile}_{layout}"
                made.append((f"sm90_xmma_gemm_{kind}_tilesize{tile}_{layout}_{short}_cublas", short))
    for function in ("CUDAFunctor_add", "BinaryFunctor", "exp_kernel_cuda", "direct_copy", "pow_tensor", "sigmoid"):
        for width in (1, 2, 4, 8):
            for dtype in ("float", "c10::BFloat16"):
                template = f"(int){width}, at::native::{function}<{dtype}>, std::array<char *, (unsigned long)3>"
                made.append((f"void at::native::vectorized_elementwise_kernel<{template}>(int, T2, T3)", function))
    made += [(f"triton_red_fused__to_copy_amax_{number}", f"triton_red_fused_{number}") for number in range(20)]
    for collective in ("AllGather_RING_LL", "ReduceScatter_Sum_bf16_RING_LL", "AllReduce_Sum_f32_TREE_LL", "Broadcast"):
        made.append((f"ncclDevKernel_{collective}(ncclDevKernelArgsStorage<(unsigned long)4096>)", collective))
    return made


def main() -> None:
    """Write the export."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--kernels", type=int, default=3_000_000)
    parser.add_argument("--ranges", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    if told.kernels < len(_blocks(Asked(told.kernels, told.ranges, told.seed))):
        parser.error("--kernels: every innermost range needs one")
    if told.out.exists():
        sys.exit(f"{told.out}: exists")
    write(told.out, Asked(told.kernels, told.ranges, told.seed))
    print(f"{told.out}: {told.out.stat().st_size:,} bytes")


def write(path: Path, asked: Asked) -> None:
    """Write an export to `path`, which must not exist."""
    kernels = _kernels(asked)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;" + _SCHEMA)
        database.execute("BEGIN")
        _facts(database, asked, int(max(kernels.end.max(), kernels.launch_end.max())))
        bounds = _blocks(asked)
        _rows(database, kernels, bounds)
        database.executemany(_RANGE, _ranges(kernels, bounds, asked.ranges))
        database.execute("COMMIT")


def _kernels(asked: Asked) -> Kernels:
    random = np.random.default_rng(asked.seed)
    count, known = asked.kernels, len(names())
    kind = random.integers(0, known - 4, count)
    collective = np.arange(count) % COLLECTIVE_EVERY == COLLECTIVE_EVERY - 1
    kind[collective] = random.integers(known - 4, known, int(collective.sum()))
    usual = np.exp(random.normal(8.2, 0.9, known))  # about 1 to 20 µs
    length = usual[kind] * np.exp(random.normal(0, 0.15, count))
    length = np.maximum(32, (length / 32).astype(np.int64) * 32)  # a GPU's clock ticks every 32 ns
    length -= random.random(count) < 0.25  # and its ends are rounded
    launch_start = 1_000_000_000 + np.arange(count) * GAP_NS + random.integers(0, 1_000, count)
    launch_end = launch_start + random.integers(2_000, 4_500, count)
    start = np.empty(count, np.int64)
    for on in (collective, ~collective):
        start[on] = _one_after_the_other(launch_end[on], length[on])
    return Kernels(launch_start, launch_end, start, start + length, kind)


def _one_after_the_other(ready: Longs, length: Longs) -> Longs:
    """When each starts, if none may before it is ready nor before the one in front has ended."""
    before = np.cumsum(length) - length
    return before + np.maximum.accumulate(ready - before)


def _blocks(asked: Asked) -> Longs:
    """The launches of each innermost range: block i has those from [i] to [i + 1]."""
    per_step = 3 + 2 * LAYERS * (1 + OPERATORS)
    steps = max(1, -(-asked.ranges // per_step))
    return np.linspace(0, asked.kernels, steps * 2 * LAYERS * OPERATORS + 1).astype(np.int64)


def _rows(database: sqlite3.Connection, kernels: Kernels, bounds: Longs) -> None:
    count, known = len(kernels.kind), len(names())
    of_pass = np.searchsorted(bounds, np.arange(count), side="right") - 1
    backward = of_pass // (LAYERS * OPERATORS) % 2 == 1
    stream = np.where(kernels.kind >= known - 4, 20, 7)
    name, short, mangled = (1 + kernels.kind + known * part for part in range(3))
    call = np.where(kernels.kind % 3 == 0, 3 * known + 1, 3 * known + 2)
    correlation = np.arange(1, count + 1)
    grid = 1 + kernels.kind * 7 % 132
    columns = (kernels.start, kernels.end, stream, correlation, name, short, mangled, grid, correlation)
    for chunk in _chunks(*columns):
        database.executemany(_KERNEL, chunk)
    thread = np.where(backward, AUTOGRAD, MAIN)
    for chunk in _chunks(kernels.launch_start, kernels.launch_end, thread, correlation, call):
        database.executemany(_LAUNCH, chunk)


def _chunks(*columns: Longs) -> Iterator[Iterator[tuple[int, ...]]]:
    for start in range(0, len(columns[0]), CHUNK):
        yield zip(*(column[start : start + CHUNK].tolist() for column in columns), strict=True)


def _ranges(kernels: Kernels, bounds: Longs, wanted: int) -> list[tuple[int, int, str, int]]:
    """The ranges in order of their start, the outer before the inner, cut at `wanted`."""

    def span(first: int, last: int, inset: int) -> tuple[int, int]:
        return int(kernels.launch_start[bounds[first]]) - inset, int(kernels.launch_end[bounds[last] - 1]) + inset

    found: list[tuple[int, int, str, int]] = []
    of_pass, layers = LAYERS * OPERATORS, range(LAYERS)
    for step in range((len(bounds) - 1) // (2 * of_pass)):
        base = step * 2 * of_pass
        found.append((*span(base, base + 2 * of_pass, 400), f"step {step}", MAIN))
        for number, (label, thread) in enumerate((("forward", MAIN), ("backward", AUTOGRAD))):
            first = base + number * of_pass
            found.append((*span(first, first + of_pass, 300), label, MAIN))
            for layer in layers:
                inner = first + layer * OPERATORS
                found.append((*span(inner, inner + OPERATORS, 200), f"layers.{layer} ({label})", thread))
                for operator in range(OPERATORS):
                    leaf = inner + operator
                    found.append((*span(leaf, leaf + 1, 100), f"aten::op{operator}", thread))
    return found[:wanted]


def _facts(database: sqlite3.Connection, asked: Asked, stop: int) -> None:
    known = names()
    texts = [demangled for demangled, _ in known] + [short for _, short in known]
    texts += [f"_Z{len(short)}{short}v" for _, short in known]
    texts += ["cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060", "python", "pt_autograd_0"]
    database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(texts, start=1))
    facts = {
        "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
        "EXPORT_PRODUCT_VERSION": "2025.1.1.65",
        "EXPORT_SCHEMA_VERSION": "3.17.2",
        "GENERATED": f"{asked.kernels} kernels, {asked.ranges} ranges, seed {asked.seed}",
    }
    database.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", facts.items())
    database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1750000000000000000, NULL, NULL)")
    database.execute("INSERT INTO ANALYSIS_DETAILS VALUES (?, ?, 0, ?)", (1 << 56, stop, stop))
    database.execute("INSERT INTO PROCESSES VALUES (?, ?, 'python')", (GLOBAL_PID, PID))
    threads = [(len(texts) - 1, 0, MAIN), (len(texts), 0, AUTOGRAD)]
    database.executemany("INSERT INTO ThreadNames VALUES (?, ?, ?)", threads)
    columns = "vmId, id, name, busLocation, totalMemory, memoryBandwidth, clockRate, smCount, chipName, cuDevice"
    device = "0, 0, 'NVIDIA H200', '0000:18:00.0', 150110011392, 4814848000000, 1980000000, 132, 'GH100', 0"
    more, of_more = "computeMajor, computeMinor, smMajor, smMinor", "9, 0, 9, 0"
    database.execute(f"INSERT INTO TARGET_INFO_GPU ({columns}, {more}) VALUES ({device}, {of_more})")
    database.execute("INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (0, 0, ?, NULL, 132)", (PID,))
    labels = ["Unknown", "Host-to-Device", "Device-to-Host"]
    rows = [(number, None, label) for number, label in enumerate(labels)]
    database.executemany("INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (?, ?, ?)", rows)


if __name__ == "__main__":
    main()
