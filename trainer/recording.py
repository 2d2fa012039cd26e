"""Which steps torch.profiler records: from the flags to a schedule."""

from dataclasses import replace

from ..profiling.schedule import Schedule
from ..record.errors import ConfigError
from .config import Config


def with_window(config: Config, steps: int) -> Config:
    """Settle when the profiler records; a run too short for what was asked is refused, defaults shrink to fit."""
    if not config.captures:
        return config
    without = "add --no-profile" if config.captures == ["torch"] else "ask for --capture none"
    if config.profile_at is not None:
        return _with_spans(config, steps)
    if config.profile_active is None and config.profile_wait is None and steps <= config.profile_warmup:
        raise ConfigError(
            f"the run has {steps} of --steps or --epochs, which leaves none to record after {config.profile_warmup} of "
            f"profiler warm-up; train longer or {without}"
        )
    left = steps - config.profile_warmup * config.profile_repeat
    active = config.profile_active or max(1, min(3, left // config.profile_repeat - 1))
    spare = left // config.profile_repeat - active
    wait = config.profile_wait if config.profile_wait is not None else max(0, min(5, spare))
    need = (wait + config.profile_warmup + active) * config.profile_repeat
    if need > steps:
        raise ConfigError(
            f"--profile-wait, --profile-warmup and --profile-active need {need} steps in all, and the run "
            f"has {steps}; train longer, record less, or {without}"
        )
    return replace(config, profile_wait=wait, profile_active=active)


def _with_spans(config: Config, steps: int) -> Config:
    """Check --profile-at, which stands in place of the flags that repeat one window."""
    if config.profile_wait is not None or config.profile_active is not None or config.profile_repeat != 1:
        raise ConfigError("--profile-at stands in place of --profile-wait, --profile-active and --profile-repeat")
    last = spans_of(config).last
    if last > steps:
        raise ConfigError(f"--profile-at: step {last} lies beyond the run's {steps} steps")
    return config


def spans_of(config: Config) -> Schedule:
    """The spans of --profile-at. ConfigError where it is none."""
    try:
        return Schedule.at(config.profile_at or "", warmup=config.profile_warmup)
    except ConfigError as error:
        raise ConfigError(f"--profile-at: {error}") from None


def schedule(config: Config, done: int) -> Schedule:
    """When the profiler records, in a run that goes on after `done` steps."""
    if config.profile_at is not None:
        return spans_of(config)
    return Schedule.cycles(
        wait=config.profile_wait or 0,
        warmup=config.profile_warmup,
        active=config.profile_active or 1,
        repeat=config.profile_repeat,
        after=done,
    )
