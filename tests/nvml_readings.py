"""Run by tests in a process of its own: prints NVML readings as JSON, a line for each time asked for.

Arguments: times in ms, separated by commas, the launcher's process id, then the UUIDs of the devices. The fake
library's clock is set to each time; it is also the clock that the readings are stamped with.
"""

import ctypes
import sys

import msgspec

from stepscope.profiling.job import Job
from stepscope.profiling.nvml import NvmlSource

try:
    driver = ctypes.CDLL("libnvidia-ml.so.1")
    driver.fake_nvml_us.restype = ctypes.c_longlong
except OSError:  # none, real or fake
    driver = None


def now() -> int:
    return driver.fake_nvml_us() * 1000 if driver else 0


times = [int(ms) for ms in sys.argv[1].split(",")]
source = NvmlSource(sys.argv[3:], Job(int(sys.argv[2])), now)
for ms in times:
    if driver:
        driver.fake_nvml_set_ms(ctypes.c_long(ms))
    sys.stdout.write(msgspec.json.encode(source.read(ms * 1_000_000)).decode() + "\n")
source.close()
if driver and driver.fake_nvml_held():
    sys.exit("samples or sets of events have not been freed")
