"""Critical errors of a GPU (XID), as the driver tells them: one set of events a device, asked without waiting."""

from contextlib import suppress

import pynvml

from .nvml_calls import Handles

_AT_ONCE = 64
"""Most events taken in one go, should a device pour them out."""


class XidWatch:
    """One device's."""

    def __init__(self, device: Handles) -> None:
        """NVMLError where the driver tells of no such events."""
        self._events = pynvml.nvmlEventSetCreate()
        try:
            pynvml.nvmlDeviceRegisterEvents(device.gpu, pynvml.nvmlEventTypeXidCriticalError, self._events)
        except pynvml.NVMLError:
            self.close()
            raise

    def read(self) -> list[int]:
        """The XIDs since the last call."""
        found: list[int] = []
        try:
            while len(found) < _AT_ONCE:
                found.append(int(pynvml.nvmlEventSetWait_v2(self._events, 0).eventData))
        except pynvml.NVMLError_Timeout:
            pass  # there is none left
        except pynvml.NVMLError:
            if not found:  # else it is raised again next time, after what has been found
                raise
        return found

    def close(self) -> None:
        """Ask no more."""
        with suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(self._events)
