"""What the environment says of this process: whether it is one rank of a job, and who launched it."""

from collections.abc import Mapping

from ..record.errors import UserError

RUN_FOLDER = "STEPSCOPE_RUN_FOLDER"
"""The variable by which our own launcher tells its workers the run's folder."""


def is_worker(environment: Mapping[str, str]) -> bool:
    """Whether some launcher has started this process as one rank of a job."""
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys()


class CommonError(UserError):
    """A mistake that every rank meets at the same point: one rank a node says it."""
