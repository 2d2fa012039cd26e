"""Ranges named after a model's modules, for both profilers: `model.layers.0.mlp` around its forward pass.

Backward work needs no range of its own: traces link each of its operators to the forward operator that caused it by
autograd's sequence number, and that one lies in the module's range. A forward pass that activation checkpointing
repeats appears again, on autograd's thread.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self

from torch import nn

from .ranges import region


class ModuleRanges:
    """Names the ranges while its context is open; outside of it a model has no hooks of ours and costs nothing.

    Not for compiled modules: a hook inside a compiled call breaks its graph and changes what is measured.
    """

    def __init__(self, model: nn.Module, *, depth: int | None = None) -> None:
        """`depth` is how many names deep to go: 1 for `model`, 3 for `model.layers.0`; None for all."""
        self._modules = {
            name: module
            for name, module in model.named_modules()
            if name and (depth is None or name.count(".") < depth) and not isinstance(module, nn.ModuleList)
        }
        self._handles: list[Any] = []
        self._open: dict[str, list[AbstractContextManager[None]]] = {name: [] for name in self._modules}

    def __enter__(self) -> Self:
        """Hook every module."""
        for name, module in self._modules.items():
            self._handles += [
                module.register_forward_pre_hook(self._opener(name)),
                module.register_forward_hook(self._closer(name), always_call=True),
            ]
        return self

    def __exit__(self, *_: object) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _opener(self, name: str) -> Callable[..., None]:
        def opened(*_: Any) -> None:
            range_ = region(name)
            range_.__enter__()
            self._open[name].append(range_)

        return opened

    def _closer(self, name: str) -> Callable[..., None]:
        def closed(*_: Any) -> None:
            if self._open[name]:
                self._open[name].pop().__exit__(None, None, None)

        return closed
