"""Run by torchrun from test_trainer_recipes.py: trains every recipe on two ranks, writes each rank's losses as JSON."""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from stepscope.trainer.build import build
from stepscope.trainer.clock import StepClock
from stepscope.trainer.config import Config
from stepscope.trainer.hardware import probe
from stepscope.trainer.loop import optimizer_step
from stepscope.trainer.place import place, process_group
from stepscope.trainer.quiet import silence_known_noise
from stepscope.trainer.resolve import resolved
from stepscope.trainer.stopping import StopRequest

STEPS = 4
_SMALL = Config(model="pico", steps=STEPS, seq_len=128, eval_samples=0, profile=False)
CASES = {
    "bf16": _SMALL,
    "bf16, whole": replace(_SMALL, wrap="whole"),
    "bf16, accumulated": replace(_SMALL, micro_batch=1, accumulation=2),
    "bf16, recomputed": replace(_SMALL, activation_checkpointing=True),
    "tensorwise": replace(_SMALL, recipe="tensorwise"),
    "rowwise": replace(_SMALL, recipe="rowwise"),
    "rowwise_with_gw_hp": replace(_SMALL, recipe="rowwise_with_gw_hp"),
    "mxtw": replace(_SMALL, recipe="mxtw"),
    "mxfp8": replace(_SMALL, recipe="mxfp8"),
    "bf16, fp32 masters": replace(_SMALL, master_dtype="fp32", reduce_dtype="fp32"),
    "bf16, kept gathered": replace(_SMALL, reshard_after_forward=False),
    "mxtw, bf16 gather": replace(_SMALL, recipe="mxtw", fp8_all_gather=False),
}


def losses(config: Config, data: Path) -> list[float]:
    """The losses of the case's steps on this rank."""
    hardware, here = probe(), place(os.environ)
    job = build(resolved(replace(config, data=data), hardware, os.environ), here, hardware).job
    stop = StopRequest()
    return [optimizer_step(job, StepClock(here.device), step, stop).loss for step in range(1, STEPS + 1)]


if __name__ == "__main__":
    silence_known_noise()
    here = place(os.environ)
    with process_group(here):
        found = {name: losses(config, Path(sys.argv[1])) for name, config in CASES.items()}
    Path(sys.argv[2], f"rank{here.rank}.json").write_text(json.dumps(found))
    # A dozen models' process groups are torn down at exit in no order, and now and then a thread of gloo's is still on.
    os._exit(0)
