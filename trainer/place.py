"""A rank's place in the job, from the variables that torchrun (or our launcher) sets, and its process group."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist


class Place(NamedTuple):
    """Which rank this is and what it computes on."""

    rank: int
    local_rank: int
    world: int
    local_world: int
    node: int
    device: torch.device

    @property
    def nodes(self) -> int:
        """Machines in the job."""
        return max(1, self.world // self.local_world)

    @property
    def backend(self) -> str:
        """The process group's backend."""
        return "nccl" if self.device.type == "cuda" else "gloo"


def place(environment: Mapping[str, str]) -> Place:
    """This process's place."""
    rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    local_rank = int(environment.get("LOCAL_RANK", 0))
    local_world = int(environment.get("LOCAL_WORLD_SIZE", world))
    return Place(
        rank=rank,
        local_rank=local_rank,
        world=world,
        local_world=local_world,
        node=int(environment.get("GROUP_RANK", rank // local_world)),
        device=torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu"),
    )


@contextmanager
def process_group(here: Place) -> Iterator[None]:
    """The process group of all ranks, left in good order; after a failure it is abandoned with the process."""
    if here.device.type == "cuda":
        torch.cuda.set_device(here.device)
    minutes = 10 if here.device.type == "cuda" else 5
    dist.init_process_group(here.backend, timeout=timedelta(minutes=minutes))
    yield
    dist.destroy_process_group()


def same_everywhere(text: str | None) -> str:
    """The first rank's `text` on every rank."""
    told = [text]
    dist.broadcast_object_list(told)
    return told[0] or ""


def ranks_without(fact: bool) -> list[int]:  # noqa: FBT001 - a rank's answer, not a switch
    """The ranks on which `fact` does not hold, on every rank."""
    answers = [fact] * dist.get_world_size()
    dist.all_gather_object(answers, fact)
    return [rank for rank, answer in enumerate(answers) if not answer]
