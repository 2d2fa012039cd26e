"""What others do with the same trace of torch.profiler.

    python benchmarks/kineto_peers.py decode|breakdown TRACE.json

`decode` is the floor: every event decoded by msgspec into a typed struct, block by block, and let go; it prints their
number. `breakdown` is HolisticTraceAnalysis' kernel breakdown (traceinsight 0.6.1): name and total in µs, a line a
kernel.
"""

import sys
from pathlib import Path

BLOCK = 4 << 20
AFTER_AN_EVENT = b"\n  },\n"
"""As Kineto writes it, and `kineto_generate.py`."""


def decode(path: Path) -> None:
    """Count the events, decoded with the fields that a kernel summary needs."""
    import msgspec

    class Args(msgspec.Struct):
        device: int | None = None
        stream: int | None = None
        correlation: int | None = None
        external: int | None = msgspec.field(name="External id", default=None)

    class Event(msgspec.Struct):
        ph: str
        name: str = ""
        cat: str = ""
        pid: int | str = 0
        tid: int | str = 0
        ts: float = 0
        dur: float = 0
        args: Args | None = None

    decoder = msgspec.json.Decoder(list[Event])
    count = 0
    with path.open("rb") as file:
        held = file.read(BLOCK)
        held = held[held.index(b"[", held.index(b'"traceEvents"')) + 1 :]
        while more := file.read(BLOCK):
            held += more
            cut = held.rindex(AFTER_AN_EVENT) + len(AFTER_AN_EVENT)
            count += len(decoder.decode(b"[" + held[:cut].rstrip(b",\n") + b"]"))
            held = held[cut:]
        count += len(decoder.decode(b"[" + held[: held.rindex(b"]")] + b"]"))
    print(count)


def breakdown(path: Path) -> None:
    """The kernels' totals."""
    from hta.trace_analysis import TraceAnalysis  # type: ignore[import-not-found]

    analysis = TraceAnalysis(trace_files={0: str(path)}, trace_dir="")
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=1000)
    for name, total in zip(kernels["name"], kernels["sum (us)"], strict=True):
        print(f"{total}\t{name}")


if __name__ == "__main__":
    {"decode": decode, "breakdown": breakdown}[sys.argv[1]](Path(sys.argv[2]))
