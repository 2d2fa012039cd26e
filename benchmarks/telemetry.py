"""What the telemetry sampler costs: CPU seconds of its thread for each second of a run, in percent of one core.

    python benchmarks/telemetry.py [SECONDS] [GPUS] [PERIOD]

Reads the fake driver of the tests (a C compiler is needed), so what a real driver's calls take comes on top; and the
host, with as many processes as this machine has. Prints the share with and without GPUs, and bytes a second.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from stepscope.profiling.sampler import Sampler
from stepscope.record.telemetry import GpuSample, SamplerNote, read_telemetry

TESTS = Path(__file__).parent.parent / "tests"


def measure(folder: Path, seconds: float, gpus: int, period_s: float) -> str:
    """One run of the sampler, and what it cost."""
    path = folder / f"telemetry.{gpus}.jsonl"
    with Sampler(path, period_s, [f"GPU-fake-{gpu}" for gpu in range(gpus)]):
        time.sleep(seconds)
    samples = read_telemetry(path)
    note = samples[-1]
    if not isinstance(note, SamplerNote) or note.cpu_s is None:
        sys.exit("the sampler has not come to its end")
    read = sum(isinstance(sample, GpuSample) for sample in samples)
    share, size = 100 * note.cpu_s / seconds, path.stat().st_size / seconds
    return (
        f"{gpus} GPUs every {period_s:g} s for {seconds:g} s: {note.cpu_s:.4f} s of CPU, {share:.3f} % of one core; "
        f"{note.samples} rounds, {read} GPU readings, {size:.0f} bytes a second"
    )


def main() -> None:
    """Build the fake driver, start anew where it is found, and measure."""
    seconds, gpus, period_s = (float(word) for word in (sys.argv[1:] + ["60", "8", "1"][len(sys.argv) - 1 :])[:3])
    if "FAKE_NVML_EPOCH" not in os.environ:
        sys.path.insert(0, str(TESTS))
        from fake_driver import H200, FakeDriver

        with tempfile.TemporaryDirectory() as folder:
            driver = FakeDriver(Path(folder))
            driver.build("-O2")
            environment = driver.environment(H200 + f"0 * gpus {gpus:.0f}\n")
            environment["FAKE_NVML_EPOCH"] = str(Path(folder) / "epoch")
            sys.exit(subprocess.run([sys.executable, *sys.argv], env=environment).returncode)
    folder = Path(os.environ["FAKE_NVML_EPOCH"]).parent
    print(f"{len(psutil.pids())} processes on this machine")
    for count in (0, int(gpus)):
        print(measure(folder, seconds, count, period_s))


if __name__ == "__main__":
    main()
