"""`torchrun … -m stepscope.trainer …`: the same as `profile-train`, started by torchrun."""

import os
import signal
import sys

if "RANK" in os.environ:  # a worker that is stopped before it listens ends without a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from .command import main

sys.exit(main())
