"""What the environment says of this process: whether it is one rank of a job, and who launched it."""

from collections.abc import Mapping

from ..record.errors import ConfigError, UserError

RUN_FOLDER = "STEPSCOPE_RUN_FOLDER"
"""The variable by which our own launcher tells its workers the run's folder."""


def is_worker(environment: Mapping[str, str]) -> bool:
    """Whether some launcher has started this process as one rank of a job; ConfigError where no numbers say which."""
    if not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        return False
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"):
        if not environment.get(name, "0").isdecimal():
            raise ConfigError(
                f"{name} is {environment[name]!r} in the environment, where a launcher puts a number; start it with "
                "torchrun, or unset RANK and WORLD_SIZE"
            )
    return True


def says_for_node(environment: Mapping[str, str]) -> bool:
    """Whether this process says what every rank of its machine would: a misuse of the one command line."""
    launched = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys()
    local_rank = environment.get("LOCAL_RANK", "0")
    return not (launched and local_rank.isdecimal() and int(local_rank) > 0)


class CommonError(UserError):
    """A mistake that every rank meets at the same point: one rank a node says it."""
