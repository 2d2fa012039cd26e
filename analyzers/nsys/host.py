"""The host's side of an export: calls and ranges beside the device work."""

from ..activities import Activities
from ..host import Host
from .calls import read_calls
from .columns import Rejected
from .export import Export
from .nvtx import read_nvtx


def read_host(export: Export, work: Activities, rejected: Rejected) -> Host:
    """The host's side of the device work `work`."""
    return Host(work, read_calls(export, rejected), read_nvtx(export, rejected))
