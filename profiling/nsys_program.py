"""A program of anyone's under Nsight Systems: the program stays its own, and what nsys made of it is told at the end.

nsys starts the program through a relay, so that its input, output, exit code and signals are untouched by nsys, whose
own words go to a log. If nsys ends before the program has begun, the program is run without it.
"""

import subprocess
from dataclasses import replace

from ..record.run import RunDir
from .children import signals_left, sigterm_as_ctrl_c, wait_for_program
from .nsys import Captured, Nsys, Ran, end, finish, profile_command
from .nsys_note import log_path
from .relay import Relay

START_S = 120.0
"""nsys has this long to start the program."""
WRITE_S = 1800.0
"""And this long to write its report once the program has ended."""


class ProgramUnderNsys:
    """First `run`, then `finish`."""

    def __init__(
        self, run: RunDir, nsys: Nsys, *, window: bool = False, graph_nodes: bool = False, memory: bool = False
    ) -> None:
        """With `window` only what the program puts between cudaProfilerStart and -Stop is recorded."""
        self._nsys, self._stem, self._log, self._window = nsys, run.nsys_stem(0), log_path(run), window
        self._words = profile_command(nsys, self._stem, window=window, graph_nodes=graph_nodes, memory=memory)
        self._child: subprocess.Popen[bytes] | None = None
        self._failed: Ran | None = None
        """How nsys ended, where that was before the program began."""
        self._code: int | None = None
        self._alone = False
        self._stopped = 0
        """The signal that came before the program began; 0 for none."""

    def run(self, program: list[str]) -> int:
        """Run the program to its end, under nsys if that can be; answer its exit code, as `wait_for` does."""
        try:
            with Relay() as relay, signals_left(to=lambda signum: self._send(relay, signum)):
                if self._start(relay.command(program)) and self._begun(relay):
                    self._code = relay.exit_code()
                    return self._ran().code or 0 if self._code is None else self._code
        except OSError as error:
            self._failed = Ran(code=127, text=f"has no way to the program ({error.strerror})", limit_s=0)
        if self._stopped:
            return 128 + self._stopped
        self._alone = True
        return wait_for_program(program)

    def finish(self) -> Captured:
        """Wait for nsys's report, export and summarise it. Ctrl-C and SIGTERM end that; the report is kept."""
        try:
            with sigterm_as_ctrl_c():
                ran = self._ran()
                captured = finish(self._nsys, self._stem, ran)
        except KeyboardInterrupt:
            if self._child:
                end(self._child)
            report = self._stem.with_name(self._stem.name + ".nsys-rep")
            kept = report if report.is_file() else None
            return Captured(report=kept, problem="stopped before nsys was done with its report")
        problem = captured.problem
        if problem and self._alone:
            problem += "; the program ran without nsys"
        elif problem and self._window and captured.report is None and not ran.failure:
            problem += "; with --nsys-window the program itself has to call cudaProfilerStart"
        return replace(captured, problem=problem)

    def _start(self, program: list[str]) -> bool:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._log.open("wb") as log:
                self._child = subprocess.Popen(
                    [*self._words, *program], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
        except OSError as error:
            self._failed = Ran(code=127, text=f"does not start ({error.strerror})", limit_s=0)
        return self._child is not None

    def _begun(self, relay: Relay) -> bool:
        child = self._child
        assert child is not None
        if relay.begun(limit_s=START_S, hope=lambda: child.poll() is None):
            return True
        code = child.poll()
        if code is None:
            end(child)
        self._failed = Ran(code=code, text=self._said(), limit_s=START_S)
        return False

    def _ran(self) -> Ran:
        """How nsys ended; with the program's own exit code it ended well."""
        if self._failed or self._child is None:
            return self._failed or Ran(code=127, text="has not been started", limit_s=0)
        code: int | None = None
        try:
            code = self._child.wait(WRITE_S)
        except subprocess.TimeoutExpired:
            end(self._child)
        return Ran(code=0 if code is not None and code == self._code else code, text=self._said(), limit_s=WRITE_S)

    def _said(self) -> str:
        return self._log.read_text(errors="replace") if self._log.is_file() else ""

    def _send(self, relay: Relay, signum: int) -> None:
        if not relay.send(signum):
            self._stopped = signum
            if self._child:
                self._child.terminate()
