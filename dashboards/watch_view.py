"""What `stepscope watch` shows: a screen that is drawn anew, lines, or JSON lines. Nothing is computed here."""

import io
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol, Self

from ..record.units import show_bytes, show_count, show_loss, show_ns, show_pct
from .tables import NO, Column, Table, print_table, print_text, printable, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from ..analyzers.findings import Finding
    from ..analyzers.live import GpuNow, HostNow, Live, LiveRun

BAR, WIDE_BAR = 10, 30
MOST_GPUS = 16
MOST_FINDINGS = 5
_LEVELS = "▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_COLOURS = {"error": "bold red", "warning": "yellow", "info": "dim"}


class View(Protocol):
    """Something that shows looks."""

    def show(self, now: "Live") -> None:
        """Show a look."""

    def __enter__(self) -> Self:
        """The view itself."""

    def __exit__(self, *_: object) -> None:
        """Leave the last look where it stands."""


def view_for(form: str, *, live: bool, once: bool) -> View:
    """What suits the form asked for and stdout; `live`: stdout is a terminal and is to be drawn anew."""
    if form == "json":
        return JsonLines()
    return Screen() if live else Whole() if once else Lines()


class JsonLines:
    """One object a line."""

    def show(self, now: "Live") -> None:
        """Write it."""
        import msgspec

        sys.stdout.write(msgspec.json.encode(now).decode() + "\n")
        sys.stdout.flush()

    def __enter__(self) -> Self:
        """The view itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""


class Whole(JsonLines):
    """The screen as text, once."""

    def show(self, now: "Live") -> None:
        """Write it."""
        draw(now, terminal())


class Lines(JsonLines):
    """For logs: a line where a run has gone on, one for each new finding."""

    def __init__(self) -> None:
        """Nothing said yet."""
        self._said: set[Any] = set()

    def show(self, now: "Live") -> None:
        """Write what is new."""
        for run in now.runs:
            self._say((run.run, run.step, run.state), f"{time.strftime('%H:%M:%S')}  {line(run)}")
            for finding in run.findings:
                self._say((run.run, finding.code, finding.evidence.get("step")), f"{run.run}: {told(finding)}")
        sys.stdout.flush()

    def _say(self, what: Any, text: str) -> None:
        if what not in self._said:
            self._said.add(what)
            sys.stdout.write(printable(text) + "\n")


class Screen:
    """Drawn anew in place, below what the terminal holds already: nothing that was there is lost."""

    def __init__(self) -> None:
        """Nothing is drawn yet."""
        from rich.live import Live as Drawn

        self._console = terminal()
        self._drawn = Drawn(console=self._console, auto_refresh=False, vertical_overflow="crop")

    def show(self, now: "Live") -> None:
        """Draw it over the last."""
        from rich.console import Console
        from rich.text import Text

        text = io.StringIO()
        colours: Any = self._console.color_system
        draw(
            now,
            Console(file=text, width=self._console.width, force_terminal=True, highlight=False, color_system=colours),
        )
        self._drawn.update(Text.from_ansi(text.getvalue()), refresh=True)

    def __enter__(self) -> Self:
        """The view itself."""
        self._drawn.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last look where it stands."""
        self._drawn.stop()


def draw(now: "Live", console: "Console") -> None:
    """One run in full; of several, a table and what to look at."""
    if len(now.runs) == 1:
        for text in one_run(now.runs[0], min(console.width, 120)):
            print_text(text, console)
    else:
        print_table(runs_table(now), console)
    named = len(now.runs) > 1
    for run in now.runs:
        for finding in run.findings[:MOST_FINDINGS]:
            print_text(_coloured(f"{run.run}: " if named else "", finding), console)


def line(run: "LiveRun") -> str:
    """`mxtw-1  step 812 of 2,000  loss 2.3411  412 ms  18,320 tokens/s  12 min 05 s left`; how it ended."""
    parts = [run.run, _step(run), f"loss {show_loss(run.loss)}", f"a step {show_ns(run.step_time_ns)}"]
    parts.append(f"{show_count(run.tokens_per_s)} tokens/s")
    parts.append(f"{show_ns(run.left_ns)} left" if run.running else run.state)
    return "  ".join(parts)


def runs_table(now: "Live") -> Table:
    """A row a run."""
    return Table(
        title=f"{len(now.runs)} runs",
        columns=[
            Column(name="run", heading="run", right=False, fold=True),
            Column(name="state", heading="state", right=False, less=1),
            Column(name="step", heading="step"),
            Column(name="done_pct", heading="done", show=show_pct, less=3),
            Column(name="loss", heading="loss", show=show_loss),
            Column(name="step_time_ns", heading="step time", show=show_ns, less=2),
            Column(name="tokens_per_s", heading="tokens/s", show=show_count),
            Column(name="left", heading="left"),
        ],
        rows=[
            (
                run.run,
                run.state,
                _numbers(run),
                run.done_pct,
                run.loss,
                run.step_time_ns,
                run.tokens_per_s,
                show_ns(run.left_ns) if run.running else NO,
            )
            for run in now.runs
        ],
    )


def one_run(run: "LiveRun", width: int) -> list[Any]:
    """The screen of a run, line by line, in 80 columns or more."""
    from rich.text import Text

    kind = f"{run.recipe}, FP8 emulated" if run.emulated else run.recipe
    about = printable(f"   {kind}   {run.model} on {run.ranks} × {run.device}")
    head = Text.assemble((printable(run.run), "bold"), about)
    return [head, _progress(run, width), "", *_training(run), "", *_speed(run), "", *_machine(run)]


def _progress(run: "LiveRun", width: int) -> str:
    end = f"{show_ns(run.left_ns)} left" if run.running else run.state
    percent = show_pct(run.done_pct) if run.done_pct is not None else ""
    words = [part for part in (_step(run), percent, end) if part]
    room = min(WIDE_BAR, width - len("   ".join(words)) - 3)
    drawn = [bar(run.done_pct, room)] if run.done_pct is not None and room >= BAR else []
    return "   ".join([words[0], *drawn, *words[1:]])


def _training(run: "LiveRun") -> list[str]:
    rows = [_row("loss", show_loss(run.loss), spark(run.loss_course))]
    if run.eval_loss is not None:
        accuracy = "" if run.eval_accuracy_pct is None else f"accuracy {show_pct(run.eval_accuracy_pct)}, "
        rows.append(_row("eval loss", show_loss(run.eval_loss), f"{accuracy}at step {run.eval_step:,}"))
    if run.grad_norm is not None:
        rate = "" if run.lr is None else f"learning rate {run.lr:.3g}"
        rows.append(_row("grad norm", f"{run.grad_norm:.3g}", rate))
    return rows


def _speed(run: "LiveRun") -> list[str]:
    tail = "" if run.step_time_p95_ns is None else f"p95 {show_ns(run.step_time_p95_ns)}, of {run.recent_steps} steps"
    rows = [
        _row("tokens/s", show_count(run.tokens_per_s), run.missing.get("tokens_per_s", "")),
        _row("step time", show_ns(run.step_time_ns), tail or run.missing.get("step_time_ns", "")),
    ]
    rows += [
        _row(f"  {phase.name}", show_ns(phase.time_ns), f"{bar(phase.of_step_pct)} {show_pct(phase.of_step_pct)}")
        for phase in run.phases
    ]
    if run.since_last_step_ns is not None:
        rows.append(_row("last step", f"{show_ns(run.since_last_step_ns)}", "ago"))
    return rows


def _machine(run: "LiveRun") -> list[str]:
    rows = [_row("peak memory", show_bytes(run.peak_memory_bytes), "")]
    rows += [_gpu(gpu) for gpu in run.gpus[:MOST_GPUS]]
    if len(run.gpus) > MOST_GPUS:
        rows.append(f"and {len(run.gpus) - MOST_GPUS} GPUs more")
    if "gpus" in run.missing:
        rows.append(_row("GPUs", show_pct(None), run.missing["gpus"]))
    return rows + ([] if run.gpus else [_host(host) for host in run.hosts])


def _gpu(gpu: "GpuNow") -> str:
    name = f"GPU {gpu.device}" if not gpu.node else f"GPU {gpu.node}:{gpu.device}"
    power = "" if gpu.power_w is None else f"  {gpu.power_w:.0f} W"
    heat = "" if gpu.temperature_c is None else f"  {gpu.temperature_c} °C"
    return f"{name:<8} {_barred(gpu.utilization_pct)}  memory {_memory(gpu)}{power}{heat}"


def _host(host: "HostNow") -> str:
    return f"{f'CPUs {host.node}':<8} {_barred(host.cpu_pct)}  memory {_memory(host)}"


def _memory(machine: "GpuNow | HostNow") -> str:
    used = show_bytes(machine.memory_used_bytes)
    whole = "" if machine.memory_total_bytes is None else f" of {show_bytes(machine.memory_total_bytes)}"
    return f"{bar(machine.memory_used_pct)} {used}{whole}"


def _barred(pct: float | None) -> str:
    return f"{bar(pct)} {show_pct(pct):>7}"


def _step(run: "LiveRun") -> str:
    return f"step {_numbers(run)}"


def _numbers(run: "LiveRun") -> str:
    planned = "" if run.steps is None else f" of {run.steps:,}"
    return f"{'–' if run.step is None else format(run.step, ',')}{planned}"


def _row(name: str, value: str, more: str) -> str:
    return f"{name:<12}{value:>12}   {more}".rstrip()


def _coloured(before: str, finding: "Finding") -> Any:
    from rich.text import Text

    return Text(printable(before + told(finding)), style=_COLOURS[finding.severity])


def told(finding: "Finding") -> str:
    """`warning: …`."""
    return f"{finding.severity}: {finding.text}"


def bar(pct: float | None, width: int = BAR) -> str:
    """A bar of `pct` of `width` characters, to an eighth of one; blank where it is not measured."""
    eighths = round(8 * width * min(max(pct or 0.0, 0.0), 100.0) / 100)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width, "░" if pct is not None else " ")


def spark(values: list[float]) -> str:
    """The course of values as blocks from the least to the most."""
    if not values:
        return ""
    least, most = min(values), max(values)
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[round(top * (value - least) / (most - least)) if most > least else 0] for value in values)
