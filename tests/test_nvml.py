"""GPU readings: the real pynvml binding over a fake driver library."""

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_driver import H200, MS, FakeDriver

from stepscope.record.telemetry import GpuSample, Sample, Unavailable, XidEvent


def gpus(samples: list[Sample]) -> list[GpuSample]:
    return [sample for sample in samples if isinstance(sample, GpuSample)]


def missing(samples: list[Sample]) -> list[tuple[int, str, str, int | None]]:
    """(ms, counter, reason, device) of all that has been told to be unavailable."""
    return [(s.t_ns // MS, s.counter, s.reason, s.device) for s in samples if isinstance(s, Unavailable)]


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
            pcie_tx_bytes=111,
            pcie_rx_bytes=222,
            nvlink_tx_bytes=3 * 1024,
            nvlink_rx_bytes=4 * 1024,
            process_bytes={},
            ecc_corrected=5,
            ecc_uncorrected=6,
        )
    ]


def test_devices_are_numbered_as_cuda_numbers_them_not_as_nvml_does(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    scenario = H200 + "0 0 utilization 10\n0 1 utilization 30\n"
    found = fake_driver.readings(scenario, uuids=("GPU-fake-1", "GPU-fake-0"))
    assert [(sample.device, sample.utilization_pct) for sample in gpus(found)] == [(0, 30), (1, 10)]


def test_an_unsupported_counter_is_named_once_and_is_none_ever_after(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200 + "0 0 err.power 3\n", times="0,1000,2000")
    assert missing(found) == [(0, "power", "NVML: Not Supported", 0)]
    assert [sample.power_mw for sample in gpus(found)] == [None, None, None]
    assert [sample.utilization_pct for sample in gpus(found)] == [87, 87, 87]


def test_a_field_among_others_that_is_not_supported_leaves_the_others(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200 + "0 0 err.nvlink_tx 3\n0 0 err.nvlink_rx 3\n", times="0,1000")
    reason = "NVML: Not Supported"
    assert missing(found) == [(0, "nvlink_tx_bytes", reason, 0), (0, "nvlink_rx_bytes", reason, 0)]
    assert [(s.pcie_tx_bytes, s.nvlink_tx_bytes) for s in gpus(found)] == [(111, None), (111, None)]


def test_a_passing_error_costs_one_reading_only(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    scenario = H200 + "1000 0 err.utilization 999\n2000 0 err.utilization 0\n"
    found = fake_driver.readings(scenario, times="0,1000,2000")
    assert [sample.utilization_pct for sample in gpus(found)] == [87, None, 87]
    assert missing(found) == []


def test_an_error_that_stays_is_told_at_the_third_reading_and_the_counter_is_still_asked(
    fake_driver: FakeDriver,
) -> None:
    fake_driver.build()
    scenario = H200 + "0 0 err.utilization 999\n4000 0 err.utilization 0\n"
    found = fake_driver.readings(scenario, times="0,1000,2000,3000,4000")
    assert missing(found) == [(2000, "utilization", "NVML: Unknown Error", 0)]
    assert [sample.utilization_pct for sample in gpus(found)] == [None, None, None, None, 87]


def test_a_lost_gpu_is_named_with_its_time_and_the_others_go_on(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(
        H200 + "1000 1 err.* 15\n", times="0,1000,2000", uuids=("GPU-fake-0", "GPU-fake-1", "GPU-fake-2")
    )
    assert missing(found) == [(1000, "gpu", "NVML: GPU is lost", 1)]
    assert [sample.device for sample in gpus(found)] == [0, 1, 2, 0, 2, 0, 2]


def test_the_critical_error_that_loses_a_gpu_is_recorded_before_its_loss(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200 + "500 0 xid 13\n900 0 xid 79\n900 0 err.* 15\n", times="0,1000,2000")
    assert found[1:] == [
        XidEvent(t_ns=1000 * MS, device=0, xid=13),
        XidEvent(t_ns=1000 * MS, device=0, xid=79),
        Unavailable(t_ns=1000 * MS, counter="gpu", reason="NVML: GPU is lost", device=0),
    ]


def test_critical_errors_from_before_the_run_are_not_its_own(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200 + "500 0 xid 13\n1500 0 xid 31\n", times="1000,2000")
    assert [sample.xid for sample in found if isinstance(sample, XidEvent)] == [31]


def test_gpm_values_are_means_over_the_time_between_two_readings(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    scenario = H200 + "1250 0 gpm.5 84400\n"  # in the second interval: 44.4 % for 250 ms, then 84.4 % for 750 ms
    found = gpus(fake_driver.readings(scenario, times="0,1000,2000"))
    assert [(s.gpm_interval_ns, s.sm_active_pct, s.tensor_active_pct) for s in found] == [
        (None, None, None),
        (1000 * MS, 90.0, 44.4),
        (1000 * MS, 90.0, 74.4),
    ]
    assert (found[1].sm_occupancy_pct, found[1].dram_bandwidth_pct) == (25.5, 61.25)


def test_two_readings_within_100_ms_are_no_pair_and_the_next_mean_is_from_the_first(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = gpus(fake_driver.readings(H200 + "1050 0 gpm.2 0\n", times="1000,1060,1200"))
    assert [(s.gpm_interval_ns, s.sm_active_pct) for s in found] == [(None, None), (None, None), (200 * MS, 22.5)]


def test_a_gpu_without_gpm_says_so_once(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200 + "0 0 gpm.support 0\n", times="0,1000")
    assert missing(found) == [(0, "gpm", "NVML: Not Supported", 0)]


def test_a_gpm_metric_that_the_gpu_lacks_leaves_the_others(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200.replace("0 * gpm.5 44400\n", ""), times="0,1000,2000")
    assert missing(found) == [(1000, "tensor_active_pct", "NVML: Not Supported", 0)]
    assert [(s.sm_active_pct, s.tensor_active_pct) for s in gpus(found)] == [(None, None), (90.0, None), (90.0, None)]


def test_dear_counters_are_read_no_more_than_every_30_s(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = gpus(fake_driver.readings(H200, times="0,1000,29999,30000,31000,60500"))
    assert [sample.ecc_corrected for sample in found] == [5, None, None, 5, None, 5]


@pytest.fixture
def child() -> Iterator[int]:
    """The id of a process that this one has started."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


def test_memory_by_process_is_of_the_jobs_own_processes(fake_driver: FakeDriver, child: int) -> None:
    fake_driver.build()
    scenario = H200 + f"0 0 process.{child} 7000\n0 1 process.{child} 8000\n0 0 process.1 9000\n"
    found = fake_driver.readings(scenario, uuids=("GPU-fake-0", "GPU-fake-1", "GPU-fake-2"))
    assert [sample.process_bytes for sample in gpus(found)] == [{child: 7000}, {child: 8000}, {}]


def test_process_ids_from_outside_the_container_are_told_not_taken_for_an_idle_gpu(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200 + "0 0 process.99999999 9000\n", times="0,30000")
    reason = "NVML: it names processes that are not to be seen from inside this container"
    assert missing(found) == [(0, "processes", reason, 0)]
    assert [sample.process_bytes for sample in gpus(found)] == [None, None]


def test_a_driver_that_does_not_tell_memory_by_process_is_told(fake_driver: FakeDriver, child: int) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200 + f"0 0 process.{child} -1\n")
    assert missing(found) == [(0, "processes", "NVML: the driver does not tell memory by process", 0)]
    assert gpus(found)[0].process_bytes is None


MIG = H200 + "0 0.1 memory_total 10000\n0 0.1 memory_used 4000\n0 0 power 5\n0 0.1 gpm.2 33000\n0 0 err.memory 4\n"


@pytest.mark.parametrize("uuid", ["MIG-fake-0-1", "GPU-fake-0-1"])
def test_a_mig_instance_has_memory_and_means_of_its_own_and_the_rest_is_its_gpus(
    fake_driver: FakeDriver, uuid: str
) -> None:
    fake_driver.build()
    found = fake_driver.readings(MIG, times="0,1000", uuids=(uuid,))
    assert missing(found) == [(0, "utilization", "NVML: Not Supported", 0)]
    second = gpus(found)[1]
    assert (second.mig, second.utilization_pct, second.power_mw) == (True, None, 5)
    assert (second.memory_used_bytes, second.memory_total_bytes, second.sm_active_pct) == (4000, 10_000, 33.0)


def test_a_slow_call_is_seen_in_the_readings_that_it_made_late(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    scenario = H200 + "1000 1 delay.utilization 20000\n"
    uuids = ("GPU-fake-0", "GPU-fake-1", "GPU-fake-2")
    found = gpus(fake_driver.readings(scenario, times="0,1000", uuids=uuids))
    assert [sample.late_ns for sample in found] == [None, None, None, None, 20 * MS, 20 * MS]


def test_what_takes_long_is_read_after_the_rest_of_every_gpu(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200 + "0 * delay.processes 9000\n", uuids=("GPU-fake-0", "GPU-fake-1"))
    assert [sample.late_ns for sample in gpus(found)] == [None, None]


def test_a_gpu_that_nvml_does_not_know_is_named(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    found = fake_driver.readings(H200, uuids=("GPU-elsewhere", "GPU-fake-0"))
    assert missing(found[:1]) == [(0, "gpu", "NVML: Not Found", 0)]
    assert [sample.device for sample in gpus(found)] == [1]


def test_an_older_driver_is_read_with_the_calls_that_it_has(fake_driver: FakeDriver, child: int) -> None:
    fake_driver.build("-DOLD_DRIVER")
    found = fake_driver.readings(H200 + f"0 0 process.{child} 7000\n")
    reason = "NVML: Function Not Found"
    assert missing(found) == [(0, "memory", reason, 0), (0, "traffic", reason, 0), (0, "gpm", reason, 0)]
    [reading] = gpus(found)
    assert (reading.temperature_c, reading.throttle_reasons, reading.memory_used_bytes) == (61, 4, None)
    assert (reading.process_bytes, reading.ecc_uncorrected) == ({child: 7000}, 6)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(9, "Driver Not Loaded"), (18, "RM has detected an NVML/RM version mismatch."), (999, "Unknown Error")],
)
def test_a_driver_that_does_not_start_is_one_line(fake_driver: FakeDriver, code: int, reason: str) -> None:
    fake_driver.build()
    found = fake_driver.readings(f"0 * err.init {code}\n", times="0,1000")
    assert missing(found) == [(0, "gpu", f"NVML: {reason}", None)]
    assert len(found) == 1


def test_a_machine_without_a_driver_is_one_line(tmp_path: Path) -> None:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        found = FakeDriver(tmp_path).readings("", times="0,1000")
        assert missing(found) == [(0, "gpu", "NVML: NVML Shared Library Not Found", None)]
    else:
        pytest.skip("this machine has an NVIDIA driver")
