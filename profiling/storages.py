"""A ledger of tensor storages: every one that operators make, change in size, or let go, and what it is.

Operators are seen by a dispatch mode, FSDP's resizing of gathered weights at the method it calls. What a tensor
subclass makes and drops within one operator is not seen. A failure ends the ledger's part, never the operator.
"""

import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal, NamedTuple, Self

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from .guard import Part

Kind = Literal["rest", "activations", "optimizer", "gradients", "parameters", "fp8"]
_RANK: dict[Kind, int] = {"rest": 0, "activations": 1, "optimizer": 2, "gradients": 3, "parameters": 4, "fp8": 5}
"""A storage that is several things is the one that stands last."""

KINDS = tuple(_RANK)


class Placed(NamedTuple):
    """A storage at an address, as first seen there, in ns since the epoch."""

    address: int
    at_ns: int
    kind: Kind


class Ledger(TorchDispatchMode):
    """While it is entered, storages and their sizes are followed. `at_peak` answers after it is left."""

    def __init__(self, part: Part) -> None:
        """Nothing is known yet; `note` what is there already."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._part = part
        self._numbers: dict[int, tuple[Any, int]] = {}
        """id of a living storage → its weak reference and number."""
        self._bytes: list[int] = []
        self._kinds: list[Kind] = []
        self._places: list[tuple[int, int, int]] = []
        """(address, ns since the epoch, number) of what lies in a device's memory."""
        self._changes: list[tuple[int, int]] = []
        """(number, change in bytes), in order."""
        self._total = self._peak = self._peak_at = 0
        self._stack = ExitStack()

    def note(self, value: Any, kind: Kind) -> None:
        """Every tensor in `value` is of a kind, now and for all its life."""
        if not self._part.works:
            return
        with self._part.guarded():
            for tensor in _plain_tensors(value):
                number = self._number(tensor.untyped_storage())
                kind_of = "fp8" if tensor.dtype.is_floating_point and tensor.dtype.itemsize == 1 else kind
                if _RANK[kind_of] > _RANK[self._kinds[number]]:
                    self._kinds[number] = kind_of

    def at_peak(self) -> dict[Kind, int]:
        """Bytes of each kind at the moment when there were most."""
        held: dict[Kind, int] = dict.fromkeys(_RANK, 0)
        for number, change in self._changes[: self._peak_at]:
            held[self._kinds[number]] += change
        return held

    @property
    def placed(self) -> list[Placed]:
        """Where each storage in a device's memory was, and what it turned out to be."""
        return [Placed(address, at_ns, self._kinds[number]) for address, at_ns, number in self._places]

    @property
    def peak_bytes(self) -> int:
        """The most bytes there were."""
        return self._peak

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and enter what it made."""
        made = func(*args, **(kwargs or {}))
        self.note(made, "rest")
        return made

    def __enter__(self) -> Self:
        """Begin to follow."""
        self._stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._keep, lambda tensor: tensor))
        resize = torch.UntypedStorage.resize_

        def resized(storage: Any, *args: Any) -> Any:
            done = resize(storage, *args)
            if self._part.works:
                with self._part.guarded():
                    number = self._number(storage)
                    self._changed(number, storage.nbytes())
                    self._place(storage, number)
            return done

        torch.UntypedStorage.resize_ = resized  # type: ignore[method-assign,assignment]
        self._stack.callback(setattr, torch.UntypedStorage, "resize_", resize)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        """Follow no more."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._stack.close()

    def _keep(self, tensor: torch.Tensor) -> torch.Tensor:
        self.note(tensor, "activations")
        return tensor

    def _number(self, storage: Any) -> int:
        known = self._numbers.get(id(storage))
        if known and known[0]() is storage:
            return known[1]
        number, place = len(self._bytes), id(storage)
        self._bytes.append(0)
        self._kinds.append("rest")

        def gone(reference: Any) -> None:
            self._changed(number, 0)
            if (known := self._numbers.get(place)) and known[0] is reference:
                del self._numbers[place]

        self._numbers[place] = (weakref.ref(storage, gone), number)
        self._changed(number, storage.nbytes())
        self._place(storage, number)
        return number

    def _place(self, storage: Any, number: int) -> None:
        if storage.device.type != "cpu" and storage.nbytes():
            self._places.append((storage.data_ptr(), time.time_ns(), number))

    def _changed(self, number: int, size: int) -> None:
        change = size - self._bytes[number]
        if not change:
            return
        self._bytes[number] = size
        self._total += change
        self._changes.append((number, change))
        if self._total > self._peak:
            self._peak, self._peak_at = self._total, len(self._changes)


def _plain_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors with memory of their own in a value: those inside DTensors and other wrappers too."""
    for leaf in tree_leaves(value):
        if isinstance(leaf, DTensor):
            yield from _plain_tensors(leaf._local_tensor)
        elif is_traceable_wrapper_subclass(leaf):
            for name in leaf.__tensor_flatten__()[0]:
                yield from _plain_tensors(getattr(leaf, name))
        elif isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided and leaf.device.type != "meta":
            yield leaf
