"""What a run says at its start and its end: what it is, what its numbers are good for, where it is, what comes next."""

from shlex import quote

from ..record.errors import TraceError
from ..record.manifest import Manifest, Outcome
from ..record.run import RunDir
from ..record.units import show_count, show_loss, show_pct


def opening_words(manifest: Manifest, run: RunDir) -> str:
    """One or two lines."""
    world, config = manifest.world, manifest.config
    machine = manifest.devices[0].name if manifest.devices[0].kind == "cuda" else "CPU"
    length = _counted(config["steps"], "step") if config["steps"] else _counted(config["epochs"], "epoch")
    line = (
        f"{manifest.recipe.name}: {config['model']} on {world.size} × {machine} ({world.backend}), "
        f"{length}, in {run.path}"
    )
    if manifest.emulated:
        line += (
            f"\nFP8 is emulated ({manifest.emulated_why}): losses are those of FP8, times say nothing about its speed"
        )
    return line


def _counted(number: float, what: str) -> str:
    return f"{number:g} {what}" if number == 1 else f"{number:.12g} {what}s"


def precision_words(manifest: Manifest) -> str:
    """Which linear layers compute in FP8, and why the others don't; nothing for a recipe without FP8."""
    if not manifest.recipe.is_float8:
        return ""
    kept: dict[str, int] = {}
    for linear in manifest.linear_layers:
        if linear.why:
            kept[linear.why] = kept.get(linear.why, 0) + 1
    count = len(manifest.linear_layers)
    rest = ", ".join(f"{layers} in bf16 by {why}" for why, layers in kept.items())
    return f"{count - sum(kept.values())} of {count} linear layers compute in FP8" + (f"; {rest}" if rest else "")


def longer_words(planned: int | None, steps: int, done: int) -> str:
    """What going on with another number of steps does."""
    return (
        f"planned for {planned} steps, the run now goes to {steps}: from step {done + 1} on the learning rate is that "
        "of the new length"
    )


def closing_words(run: RunDir, outcome: Outcome, *, hints: bool, torchrun: bool = False) -> str:
    """How it ended and the commands that look at it, as whole lines; `torchrun` launched it, and is to again."""
    if outcome.state == "interrupted":
        line = f"{outcome.message}; what was recorded until then is in {run.path}\n"
        program = "torchrun … -m stepscope.trainer" if torchrun else "profile-train"
        again = f"{program} --resume {quote(str(run.path))}"
        return line + (next_lines([again]) if run.checkpoints.is_dir() else "")
    return _result(run) + "\n" + (next_lines(_next_commands(run)) if hints else "")


def next_lines(commands: list[str]) -> str:
    """Commands under the heading `next:`, as whole lines."""
    return "next:\n" + "".join(f"  {command}\n" for command in commands)


def _result(run: RunDir) -> str:
    try:
        steps = run.steps().get(0, [])
    except TraceError:
        steps = []
    if not steps:
        return f"finished; the run is in {run.path}"
    line = f"{show_count(len(steps))} steps, loss {show_loss(steps[0].loss)} → {show_loss(steps[-1].loss)}"
    last = steps[-1]
    if last.eval_loss is not None and last.eval_accuracy is not None:
        line += f", on held-out examples {show_loss(last.eval_loss)} (accuracy {show_pct(last.eval_accuracy * 100)})"
    return line


def _next_commands(run: RunDir) -> list[str]:
    parent = quote(str(run.path.parent))
    commands = [
        f"tensorboard --logdir {parent}",
        f"stepscope compare {parent}",
        f"stepscope report {parent} -o report.html",
    ]
    if run.traces():
        commands.insert(0, f"stepscope trace {quote(str(run.path))}")
    return commands
