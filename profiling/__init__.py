"""Capture: `stepscope.profiling.capture` records a loop of one's own; the other modules are its parts."""

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .own_loop import capture

__all__ = ["capture"]

if __name__ == "profiling":  # the root of a clone is on sys.path: Python 3.15's own package must stay to be had
    __path__ = [str(Path(sysconfig.get_path("stdlib")) / __name__)]


def __getattr__(name: str) -> Any:
    """`capture` on first use: it needs torch, and most of what imports this package does not."""
    if name == "capture":
        from .own_loop import capture

        return capture
    raise AttributeError(f"module {__name__} has no attribute {name}")
