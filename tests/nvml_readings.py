"""Run by test_sampler.py, in a process of its own: prints NVML readings as JSON, a line for each time asked for.

Arguments: times in ms, separated by commas, then the UUIDs of the devices. The fake library's clock is set to each.
"""

import ctypes
import sys
from contextlib import suppress

import msgspec

from stepscope.profiling.nvml import NvmlSource

source = NvmlSource(sys.argv[2:])
for ms in map(int, sys.argv[1].split(",")):
    with suppress(OSError):  # no driver, real or fake
        ctypes.CDLL("libnvidia-ml.so.1").fake_nvml_set_ms(ctypes.c_long(ms))
    sys.stdout.write(msgspec.json.encode(source.read(ms)).decode() + "\n")
source.close()
