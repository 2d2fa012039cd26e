"""Which GPUs `stepscope capture` and the doctor see: the real pynvml binding over a fake driver library."""

import pytest
from fake_driver import H200, FakeDriver

CODE = (
    "import os; from stepscope.profiling.gpus import visible_gpus; devices, uuids = visible_gpus(os.environ); "
    "print(json.dumps([uuids, [device.memory_bytes for device in devices]]))"
)
TWO = H200 + "0 * gpus 2\n"
REVERSED = TWO + "0 0 pci_bus 9\n0 1 pci_bus 3\n"
TWO_KINDS = TWO + "0 1 model 7\n"
CUT = TWO + "0 0.1 memory_total 10000\n0 0 err.memory 4\n"
ZERO, ONE = "GPU-fake-0", "GPU-fake-1"


@pytest.mark.parametrize(
    ("scenario", "visible", "order", "uuids"),
    [
        (TWO, None, None, [ZERO, ONE]),
        (TWO, "1", None, [ONE]),
        (TWO, "1,0", None, [ONE, ZERO]),
        (TWO, "1,7,0", None, [ONE]),
        (TWO, "", None, []),
        (TWO, "-1", None, []),
        (TWO, "GPU-fake-1", None, [ONE]),
        (TWO, "GPU-fake-", None, []),
        (REVERSED, None, None, [ONE, ZERO]),
        (REVERSED, "0", None, [ONE]),
        (TWO_KINDS, "1", None, [ZERO, ONE]),
        (TWO_KINDS, "1", "PCI_BUS_ID", [ONE]),
        (TWO_KINDS, "GPU-fake-1", None, [ONE]),
        (CUT, "MIG-fake-0-1", None, ["MIG-fake-0-1"]),
        (CUT, "MIG-fake-9-9", None, []),
    ],
)
def test_gpus_are_those_that_cuda_visible_devices_leaves(
    fake_driver: FakeDriver, scenario: str, visible: str | None, order: str | None, uuids: list[str]
) -> None:
    fake_driver.build()
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    variables |= {} if order is None else {"CUDA_DEVICE_ORDER": order}
    code = "import os; os.environ.pop('CUDA_VISIBLE_DEVICES', 0); " + CODE if visible is None else CODE
    assert fake_driver.answer(code, scenario, **variables)[0] == uuids


def test_memory_is_of_the_instance_and_a_gpu_that_does_not_tell_its_own_is_still_there(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    assert fake_driver.answer(CODE, CUT, CUDA_VISIBLE_DEVICES="MIG-fake-0-1")[1] == [10_000]
    assert fake_driver.answer(CODE, CUT, CUDA_VISIBLE_DEVICES="0,1")[1] == [None, 150_754_820_096]


def test_the_doctor_reads_every_gpu_and_counter_through_the_driver(fake_driver: FakeDriver) -> None:
    fake_driver.build()
    code = "from stepscope.profiling.machine import Machine; print(json.dumps(Machine().nvml()))"
    scenario = TWO + "0 1 capability 806\n0 1 model 3090\n0 1 gpm.support 0\n0 1 err.energy 3\n0 1 err.memory 4\n"
    driver, error, _, (first, second) = fake_driver.answer(code, scenario)
    assert (driver, error) == ("999.0-fake", None)
    counters = ["utilization", "memory", "power", "energy", "temperature", "sm_clock", "memory_clock"]
    counters += ["throttle_reasons", "traffic", "ecc", "gpm", "processes"]
    assert first == ["NVIDIA Fake", 150_754_820_096, [9, 0], counters, {}]
    lacking = {"energy": "Not Supported", "memory": "Insufficient Permissions", "gpm": "Not Supported"}
    others = [name for name in counters if name not in lacking]
    assert second == ["NVIDIA Fake 3090", None, [8, 6], others, lacking]
