"""The fake NVIDIA library, built and read through by the real binding."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from stepscope.record.telemetry import Sample

MS = 1_000_000

H200 = """
0 * memory_total 150754820096
0 * memory_reserved 600000000
0 * memory_used 40000000000
0 * utilization 87
0 * power 612345
0 * energy 1000
0 * temperature 61
0 * sm_clock 1980
0 * memory_clock 3201
0 * throttle_reasons 4
0 * pcie_tx 111
0 * pcie_rx 222
0 * nvlink_tx 3
0 * nvlink_rx 4
0 * ecc_corrected 5
0 * ecc_uncorrected 6
0 * gpm.support 1
0 * gpm.2 90000
0 * gpm.3 25500
0 * gpm.5 44400
0 * gpm.10 61250
"""
"""A scenario: every counter that an H200 has."""


class FakeDriver:
    """Builds the fake library and reads through it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, *flags: str) -> None:
        source = Path(__file__).with_name("fake_nvml.c")
        library = self.folder / "libnvidia-ml.so.1"
        name = "-Wl,-soname,libnvidia-ml.so.1"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", name, *flags, "-o", library, source], check=True)

    def environment(self, scenario: str) -> dict[str, str]:
        rules = self.folder / "scenario.txt"
        rules.write_text(scenario)
        return {**os.environ, "LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML_SCENARIO": str(rules)}

    def answer(self, code: str, scenario: str, **variables: str) -> Any:
        """What a program prints as JSON on a machine with this driver."""
        program = f"import json; {code}"
        environment = {**self.environment(scenario), **variables}
        done = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=True)
        return msgspec.json.decode(done.stdout)

    def readings(self, scenario: str, *, times: str = "0", uuids: tuple[str, ...] = ("GPU-fake-0",)) -> list[Sample]:
        script = Path(__file__).with_name("nvml_readings.py")
        done = subprocess.run(
            [sys.executable, script, times, str(os.getpid()), *uuids],
            env=self.environment(scenario),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        samples: list[Sample] = []
        for line in done.stdout.splitlines():
            samples += msgspec.json.decode(line, type=list[Sample])
        return samples
