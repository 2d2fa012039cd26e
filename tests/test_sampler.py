"""Telemetry: the real pynvml binding over a fake driver library, the host through psutil, and the sampler's thread."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from stepscope.profiling.host import HostSource
from stepscope.profiling.sampler import Sampler
from stepscope.record.telemetry import GpuSample, HostSample, Sample, SamplerNote, Unavailable, read_telemetry

GIB = 1 << 30


class FakeDriver:
    """Builds the fake library and reads through it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def build(self, *flags: str) -> None:
        source = Path(__file__).with_name("fake_nvml.c")
        library = self.folder / "libnvidia-ml.so.1"
        name = "-Wl,-soname,libnvidia-ml.so.1"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", name, *flags, "-o", library, source], check=True)

    def readings(self, scenario: str, *, times: str = "0", uuids: tuple[str, ...] = ("GPU-fake-0",)) -> list[Sample]:
        rules = self.folder / "scenario.txt"
        rules.write_text(scenario)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML_SCENARIO": str(rules)}
        script = Path(__file__).with_name("nvml_readings.py")
        done = subprocess.run(
            [sys.executable, script, times, *uuids], env=environment, capture_output=True, text=True, check=True
        )
        samples: list[Sample] = []
        for line in done.stdout.splitlines():
            samples += msgspec.json.decode(line, type=list[Sample])
        return samples


@pytest.fixture
def fake_driver(tmp_path: Path) -> FakeDriver:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to build the fake NVML library with")
    return FakeDriver(tmp_path)


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
"""


def test_a_gpu_reading_has_every_counter_in_its_unit(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    assert fake_driver.readings(H200) == [
        GpuSample(
            t_ns=0,
            device=0,
            utilization_pct=87,
            memory_used_bytes=40_000_000_000,
            memory_reserved_bytes=600_000_000,
            memory_total_bytes=150_754_820_096,
            power_mw=612_345,
            energy_mj=1000,
            temperature_c=61,
            sm_clock_mhz=1980,
            memory_clock_mhz=3201,
            throttle_reasons=4,
        )
    ]


def test_devices_are_numbered_as_cuda_numbers_them_not_as_nvml_does(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    scenario = "0 0 utilization 10\n0 3 utilization 30\n"
    found = fake_driver.readings(scenario, uuids=("GPU-fake-3", "GPU-fake-0"))
    assert [(s.device, s.utilization_pct) for s in found if isinstance(s, GpuSample)] == [(0, 30), (1, 10)]


def test_an_unsupported_counter_is_named_once_and_is_none_ever_after(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200 + "0 0 err.power 3\n", times="0,1000,2000")
    assert [s for s in found if isinstance(s, Unavailable)] == [
        Unavailable(t_ns=0, counter="power", reason="NVML: Not Supported", device=0)
    ]
    readings = [s for s in found if isinstance(s, GpuSample)]
    assert [reading.power_mw for reading in readings] == [None, None, None]
    assert [reading.utilization_pct for reading in readings] == [87, 87, 87]


def test_a_passing_error_costs_one_reading_only(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    scenario = H200 + "1000 0 err.utilization 999\n2000 0 err.utilization 0\n"
    found = fake_driver.readings(scenario, times="0,1000,2000")
    assert [s.utilization_pct for s in found if isinstance(s, GpuSample)] == [87, None, 87]
    assert not [s for s in found if isinstance(s, Unavailable)]


def test_a_lost_gpu_is_named_and_the_others_go_on(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(
        H200 + "1000 1 err.* 15\n", times="0,1000,2000", uuids=("GPU-fake-0", "GPU-fake-1", "GPU-fake-2")
    )
    assert [s for s in found if isinstance(s, Unavailable)] == [
        Unavailable(t_ns=1000, counter="gpu", reason="NVML: GPU is lost", device=1)
    ]
    assert [s.device for s in found if isinstance(s, GpuSample)] == [0, 1, 2, 0, 2, 0, 2]


def test_a_gpu_that_nvml_does_not_know_is_named(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200, uuids=("GPU-elsewhere", "GPU-fake-0"))
    assert found[0] == Unavailable(t_ns=found[0].t_ns, counter="gpu", reason="NVML: Not Found", device=0)
    assert [s.device for s in found if isinstance(s, GpuSample)] == [1]


def test_an_older_driver_is_read_with_the_calls_that_it_has(fake_driver: FakeDriver) -> None:
    fake_driver.build("-DOLD_DRIVER")
    found = fake_driver.readings(H200)
    assert [(s.counter, s.reason) for s in found if isinstance(s, Unavailable)] == [
        ("memory", "NVML: Function Not Found")
    ]
    reading = found[-1]
    assert isinstance(reading, GpuSample)
    assert (reading.temperature_c, reading.throttle_reasons, reading.memory_used_bytes) == (61, 4, None)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "Driver Not Loaded"), (18, "RM has detected an NVML/RM version mismatch."), (999, "Unknown Error")],
)
def test_a_driver_that_does_not_start_is_one_line(fake_driver: FakeDriver, code: int, reason: str) -> None:
    fake_driver.build()
    found = fake_driver.readings(f"0 * err.init {code}\n", times="0,1000")
    assert found == [Unavailable(t_ns=found[0].t_ns, counter="gpu", reason=f"NVML: {reason}")]


def test_a_machine_without_a_driver_is_one_line(tmp_path: Path) -> None:
    try:
        import ctypes

        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        found = FakeDriver(tmp_path).readings("", times="0,1000")
        assert found == [Unavailable(t_ns=found[0].t_ns, counter="gpu", reason="NVML: NVML Shared Library Not Found")]
    else:
        pytest.skip("this machine has an NVIDIA driver")


def test_the_host_reading_counts_this_process_and_its_children() -> None:
    source = HostSource()
    with subprocess.Popen([sys.executable, "-c", "x = bytearray(200 << 20); print(1, flush=True); input()"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # fmt: skip
        assert child.stdout
        child.stdout.readline()
        [with_child] = source.read(5)
        own = psutil.Process().memory_info().rss
        child.communicate(b"\n")
    assert isinstance(with_child, HostSample)
    assert with_child.t_ns == 5
    assert with_child.job_rss_bytes
    assert 150 << 20 < with_child.job_rss_bytes - own < 400 << 20
    assert with_child.memory_total_bytes == psutil.virtual_memory().total


def test_the_first_host_reading_has_no_cpu_share_because_it_ends_no_interval() -> None:
    source = HostSource()
    first, second = source.read(0)[0], source.read(1)[0]
    assert isinstance(first, HostSample)
    assert isinstance(second, HostSample)
    assert first.cpu_pct is None
    assert second.cpu_pct is not None
    assert 0 <= second.cpu_pct <= 100


def test_the_sampler_reads_at_once_on_its_grid_and_on_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.node0.jsonl"
    with Sampler(path, 0.2):
        time.sleep(0.7)
    samples = read_telemetry(path)
    first, last = samples[0], samples[-1]
    assert first == SamplerNote(t_ns=first.t_ns, source="host", period_s=0.2)
    readings = [sample for sample in samples if isinstance(sample, HostSample)]
    assert isinstance(last, SamplerNote)
    assert last.samples == len(readings)
    assert 3 <= len(readings) <= 5, "at most at 0, 0.2, 0.4, 0.6 s, and one more on the way out"
    assert last.cpu_s is not None


def test_a_telemetry_file_that_cannot_be_written_ends_the_sampling_not_the_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Sampler(tmp_path / "absent" / "telemetry.jsonl", 0.1):
        time.sleep(0.05)
    [record] = caplog.records
    assert "telemetry ends here, training goes on: FileNotFoundError" in record.getMessage()
