"""`torchrun … -m stepscope.trainer …`: the same as `profile-train`, started by torchrun."""

import sys

from .command import main

sys.exit(main())
