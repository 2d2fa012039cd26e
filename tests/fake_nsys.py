"""A stand-in for NVIDIA's nsys, which cannot be had here: command line, files, exit codes and messages as documented.

`$FAKE_NSYS` names a way to fail. The report it writes is a few bytes with a real report's first four; the export is a
real SQLite database of schema 3.24 with two kernels, a copy, two API calls and an NVTX range.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

SCENARIO = os.environ.get("FAKE_NSYS", "")
VERSIONS = {"too_old": "2021.3.2.4-027534f", "old_names": "2022.4.2.1-df9881f", "old_environment": "2025.1.1.65-1"}
VERSION = VERSIONS.get(SCENARIO, "2025.6.1.190-256136231234v0")
SWITCHES = {
    "--cpuctxsw", "--capture-range-end", "--flush-on-cudaprofilerstop", "--kill", "--discard-environment",
    "--cuda-graph-trace", "--cuda-memory-usage",
}  # fmt: skip
NEW_NAMES = {
    "cuda_gpu_kern_sum": "gpukernsum",
    "cuda_gpu_mem_time_sum": "gpumemtimesum",
    "cuda_gpu_mem_size_sum": "gpumemsizesum",
    "cuda_api_sum": "cudaapisum",
    "nvtx_sum": "nvtxsum",
}
TIMES = "Time (%),Total Time (ns),{},Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),{}"
TABLES = {
    "cuda_gpu_kern_sum": TIMES.format("Instances", "Name") + "\n100.0,5000,2,2500.0,2500.0,2000,3000,707.1,gemm\n",
    "cuda_gpu_mem_time_sum": TIMES.format("Count", "Operation")
    + "\n100.0,400,1,400.0,400.0,400,400,0.0,[CUDA memcpy Host-to-Device]\n",
    "cuda_gpu_mem_size_sum": "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
    "1.000,1,1.000,1.000,1.000,1.000,0.000,[CUDA memcpy Host-to-Device]\n",
    "cuda_api_sum": TIMES.format("Num Calls", "Name") + "\n100.0,300,2,150.0,150.0,100,200,70.7,cudaLaunchKernel\n",
}
SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER,
  registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER,
  blockZ INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, graphNodeId INTEGER, graphId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
  contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
  globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER,
  graphNodeId INTEGER, copyCount INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
  globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
  callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
  category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER,
  domainId INTEGER, uint64Value INTEGER, binaryData TEXT);
"""


def main(words: list[str]) -> int:
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command == "--version":
        if SCENARIO == "version_hangs":
            time.sleep(600)
        sys.stdout.write(f"NVIDIA Nsight Systems version {VERSION}\n")
        return 0
    return {"profile": profile, "export": export, "stats": stats}[command](rest)


def refuse(option: str) -> int:
    sys.stderr.write(f"unrecognised option '{option}'\n\nusage: nsys profile [<args>] [application] [<app args>]\n")
    return 1


def known_switches() -> set[str]:
    return SWITCHES - ({"--discard-environment"} if SCENARIO == "old_environment" else set())


def profile(words: list[str]) -> int:
    if words == ["--help"]:
        sys.stdout.write(
            "usage: nsys profile [<args>]\n" + "".join(f"\t{name}=\n" for name in sorted(known_switches()))
        )
        return 0
    given: dict[str, str] = {}
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, equals, value = word.partition("=")
        if SCENARIO == "refuses_an_option" and name == "--cpuctxsw":
            return refuse(word)
        if name in known_switches() and equals:
            given[name] = value
        elif name in ("-t", "-s", "-c", "-f", "-o"):
            given[name] = words.pop(0)
        else:
            return refuse(word)
    report = Path(given["-o"].replace("%%", "%") + ".nsys-rep")
    code = record(given, report, words)
    if SCENARIO == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    return code


def record(given: dict[str, str], report: Path, program: list[str]) -> int:
    """Run the program as nsys would, write the report, and answer the program's exit code."""
    if SCENARIO == "no_permission":
        sys.stderr.write("Cannot open perf events: Operation not permitted (perf_event_paranoid is 4)\n")
        return 1
    if SCENARIO == "hangs":
        time.sleep(600)
    code = subprocess.run(program, check=False).returncode
    if given.get("-c") == "cudaProfilerApi" and given.get("--capture-range-end") != "stop":
        return 143  # the default: the session ends, and the program with it
    if SCENARIO in ("killed", "no_report"):
        sys.stdout.write("Generated:\n    No reports were generated\n")
        return code
    if SCENARIO == "no_cupti_permission":
        sys.stderr.write("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: CUDA tracing is not available\n")
    sys.stdout.write(f"Generating '/tmp/nsys-report-4279.qdstrm'\nGenerated:\n    {report}\n")
    report.write_bytes(b"NVID" + b"stand-in")
    return 3 if SCENARIO == "fails_at_the_end" else code


def export(words: list[str]) -> int:
    if words[:3] != ["--type", "sqlite", "--force-overwrite=true"] or words[3] != "--output":
        return refuse(words[0])
    if SCENARIO == "export_hangs":
        time.sleep(600)
    if SCENARIO == "export_fails":
        sys.stderr.write("Importer error status: Import failed with unexpected exception\n")
        return 1
    output, report = Path(words[4]), Path(words[5])
    if not report.read_bytes().startswith(b"NVID"):
        return 1
    output.unlink(missing_ok=True)
    fill(output)
    return 0


def fill(path: Path) -> None:
    process = 4242 << 24
    names = {1: "gemm", 2: "cudaLaunchKernel", 3: "void gemm<float>(int)"}
    with sqlite3.connect(path) as database:
        database.executescript(SCHEMA)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", names.items())
        facts = {"EXPORT_SCHEMA_VERSION": "3.24.1", "EXPORT_PRODUCT_VERSION": VERSION.partition("-")[0]}
        database.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", facts.items())
        database.execute("INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'HTOD', 'Host-to-Device')")
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1764720000000000000, '', '', 0)")
        for number, (start, end) in enumerate([(2000, 4000), (5000, 8000)]):
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 0, 7, ?, ?, 3, 1, 3, 32, 1, 1, 1, 128, 1, "
                "1, 0, 0, NULL, NULL)",
                (start, end, number, process),
            )
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 2, 0, NULL)",
                (start - 1000, start - 900 + 100 * number, process | 4242, number),
            )
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (8500, 8900, 0, 1, 0, 7, 9, ?, 1000000, 1, 0, 2, NULL, 1)",
            (process,),
        )
        database.execute(
            "INSERT INTO NVTX_EVENTS VALUES (900, 9000, 59, NULL, NULL, NULL, 'step', ?, NULL, NULL, 0, NULL, NULL)",
            (process | 4242,),
        )
    database.close()


def stats(words: list[str]) -> int:
    if words[0] != "-r" or words[2:6] != ["-f", "csv", "-o", "-"]:
        return refuse(words[0])
    name, file = words[1], words[6]
    if SCENARIO == "stats_fails":
        sys.stderr.write("ERROR: the SQLite file could not be read\n")
        return 1
    known = {old: new for new, old in NEW_NAMES.items()} if SCENARIO == "old_names" else {new: new for new in NEW_NAMES}
    if name not in known:
        sys.stderr.write(f"ERROR: Report '{name}' could not be found\n")
        return 1
    sys.stdout.write(
        f"NOTICE: Existing SQLite export found: {file}\n"
        f"        It is assumed file was previously exported from: {Path(file).with_suffix('.nsys-rep')}\n"
        "        Consider using --force-export=true if needed.\n\n"
        f"Processing [{file}] with [/opt/nvidia/nsight-systems/reports/{name}.py]... \n"
    )
    table = TABLES.get(known[name])
    sys.stdout.write(f"{table}\n" if table else f"SKIPPED: {file} does not contain NV Tools Extension (NVTX) data.\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
