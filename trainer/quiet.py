"""Silence for known noise: lines that torch, torchao and transformers print on every start and that say nothing.

Both parts are due before torch is imported. What the user has set himself stays as it is.
"""

import logging
import os

_VARIABLES = {
    "KINETO_LOG_LEVEL": "99",  # a line on stderr at each start and stop of torch.profiler
    "LOGLEVEL": "CRITICAL",  # loggers of torch's launcher that set their own level
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # "memory block of unknown size" while memory is profiled
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",  # a warning after each fork
}
_LOGGERS = {
    "torchao": logging.ERROR,  # shared libraries for CUDA that a CPU build cannot load
    "torch.utils._pytree": logging.ERROR,
    "torch.distributed.elastic": logging.CRITICAL,  # each failed worker; we say it ourselves
}


def silence_known_noise() -> None:
    """Set what quietens the libraries, for this process and those it starts."""
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    for name, level in _LOGGERS.items():
        logging.getLogger(name).setLevel(level)
