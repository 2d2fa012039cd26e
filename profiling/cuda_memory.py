"""The peak in a snapshot of CUDA's caching allocator, in parts by what the ledger knows of the addresses.

A snapshot (`torch.cuda.memory._snapshot()`) has the blocks that are there at its end and the history that led to them;
walked backwards, that gives what was there at every moment, the peak among them.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .storages import KINDS, Kind, Placed


class Block(NamedTuple):
    """Memory handed out by the allocator, from one moment to another."""

    address: int
    size: int
    since_ns: int
    """0 for a block that was there before the history began."""
    until_ns: int


class Peak(NamedTuple):
    """The moment of a history when most was handed out."""

    bytes: int
    kinds: dict[Kind, int]
    """Bytes of each kind; they sum to `bytes`."""


def peak_in(snapshot: Mapping[str, Any], device: int, placed: Sequence[Placed], *, end_ns: int) -> Peak:
    """The peak on a device. A block that no tensor of the ledger lay in counts as the rest."""
    by_address: dict[int, list[tuple[int, Kind]]] = {}
    for one in sorted(placed, key=lambda one: one.at_ns):
        by_address.setdefault(one.address, []).append((one.at_ns, one.kind))
    kinds: dict[Kind, int] = dict.fromkeys(KINDS, 0)
    blocks = blocks_at_peak(snapshot, device, end_ns=end_ns)
    for block in blocks:
        kinds[_kind(block, by_address.get(block.address, []))] += block.size
    return Peak(sum(block.size for block in blocks), kinds)


def blocks_at_peak(snapshot: Mapping[str, Any], device: int, *, end_ns: int) -> list[Block]:
    """The blocks that were handed out at the moment when they had most bytes in all."""
    there: dict[int, Block] = {}
    for segment in snapshot["segments"]:
        if segment["device"] != device:
            continue
        for address, block in _addressed(segment):
            if block["state"] != "inactive":
                there[address] = Block(address, block["size"], 0, end_ns)
    history = [entry for entry in snapshot["device_traces"][device] if entry["action"] in ("alloc", "free_completed")]
    total = most = sum(block.size for block in there.values())
    after = len(history)
    for index in range(len(history) - 1, -1, -1):
        entry = history[index]
        total += -entry["size"] if entry["action"] == "alloc" else entry["size"]
        if total > most:
            most, after = total, index
    return _back_to(there, history, after)


def _back_to(there: dict[int, Block], history: list[Any], after: int) -> list[Block]:
    """The blocks before `history[after]`, from those at its end; each with the time that it was taken."""
    for entry in reversed(history[after:]):
        address = entry["addr"]
        if entry["action"] == "alloc":
            there.pop(address, None)
        else:
            there[address] = Block(address, entry["size"], 0, entry["time_us"] * 1000)
    for entry in history[:after]:
        if entry["action"] == "alloc" and entry["addr"] in there:
            there[entry["addr"]] = there[entry["addr"]]._replace(since_ns=entry["time_us"] * 1000)
    return list(there.values())


def _addressed(segment: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """A segment's blocks with their addresses, which older versions of PyTorch leave to be counted."""
    address, found = segment["address"], []
    for block in segment["blocks"]:
        found.append((block.get("address", address), block))
        address += block["size"]
    return found


def _kind(block: Block, placed: list[tuple[int, Kind]]) -> Kind:
    """What lay in a block: the first tensor at its address within its life."""
    index = bisect_left(placed, block.since_ns, key=lambda one: one[0])
    if index < len(placed) and placed[index][0] <= block.until_ns:
        return placed[index][1]
    return "rest"
