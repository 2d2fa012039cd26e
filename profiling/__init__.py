"""Capture: `stepscope.profiling.capture` records a loop of one's own; the other modules are its parts."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .own_loop import capture

__all__ = ["capture"]


def __getattr__(name: str) -> Any:
    """`capture` on first use: it needs torch, and most of what imports this package does not."""
    if name == "capture":
        from .own_loop import capture

        return capture
    raise AttributeError(f"module {__name__} has no attribute {name}")
