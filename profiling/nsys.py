"""Nsight Systems from outside: find nsys, run a program under it, export its report and summarise it as CSV.

A nsys that is absent or too old is a ConfigError, found before anything has run. Whatever goes wrong later is one line,
`Captured.problem`. Nothing waits for ever, and no shell is involved.
"""

import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..record.errors import ConfigError

VARIABLE = "STEPSCOPE_NSYS"
"""Names the nsys to use where it is not the one on PATH."""

OLDEST = (2022, 1)
"""Before it, nsys knows neither --capture-range-end nor today's kind of report."""

STATS = {
    "cuda_gpu_kern_sum": "gpukernsum",
    "cuda_gpu_mem_time_sum": "gpumemtimesum",
    "cuda_gpu_mem_size_sum": "gpumemsizesum",
    "cuda_api_sum": "cudaapisum",
    "nvtx_sum": "nvtxsum",
}
"""The reports written as CSV, each with its name of before 2023."""

ANSWER_S = 60.0
"""For --version and --help, which read no report."""
EXPORT_S = 1800.0
STATS_S = 600.0

_GET_IT = (
    "install Nsight Systems (the package nsight-systems-cli of NVIDIA's repository is enough) and put nsys on PATH or "
    f"name it in {VARIABLE}"
)
_CUPTI_REFUSED = r"INSUFFICIENT_PRIVILEGES|ERR_NVGPUCTRPERM"
_REFUSED = rf"{_CUPTI_REFUSED}|perf_event_paranoid|[Pp]ermission denied|[Oo]peration not permitted"
_PERMISSION = (
    "nsys has no permission to record ({}); have an administrator set kernel.perf_event_paranoid to 2 or less, and "
    "NVreg_RestrictProfilingToAdminUsers=0 for the nvidia module"
)
_CSV_HEADER = re.compile(r'"?(Time ?\(%\)|Total ?\()')


@dataclass(frozen=True, kw_only=True)
class Nsys:
    """An nsys that answers."""

    path: str
    version: str
    """Such as `2025.3.1.90`."""
    help: str = ""
    """What `nsys profile --help` prints; empty if nothing."""

    @property
    def discards_environment(self) -> bool:
        """Whether it can leave environment variables out of its report; 2025.1 cannot yet."""
        return "--discard-environment" in self.help


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a process ended."""

    code: int | None
    """None: it was still running after its time and was ended."""
    text: str
    """What it wrote, if that was kept."""
    limit_s: float

    @property
    def failure(self) -> str | None:
        """The end in words; None where it ended well."""
        if self.code is None:
            return f"was still running after {self.limit_s:,.0f} s and was ended"
        if self.code < 0:
            return f"was ended by {signal.Signals(-self.code).name}"
        return f"ended with exit code {self.code}{self.last_words}" if self.code else None

    @property
    def last_words(self) -> str:
        """The last line it wrote, after a colon; empty if there is none."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return f": {lines[-1][:300]}" if lines else ""


@dataclass(frozen=True, kw_only=True)
class Captured:
    """What a pass under nsys left: files that are there, and what went wrong in one line."""

    report: Path | None = None
    sqlite: Path | None = None
    stats: tuple[Path, ...] = ()
    problem: str | None = None


def find_nsys(environment: Mapping[str, str]) -> Nsys:
    """The nsys that $STEPSCOPE_NSYS names, or that PATH has. ConfigError where there is none that can be used."""
    asked = environment.get(VARIABLE)
    path = shutil.which(asked or "nsys", path=environment.get("PATH"))
    if path is None:
        where = f"{VARIABLE} names {asked}, which is no program" if asked else "there is no nsys here"
        raise ConfigError(f"{where}; {_GET_IT}")
    told = _call([path, "--version"], ANSWER_S)
    found = re.search(r"(\d{4})\.(\d+)(?:\.\d+)*", told.text)
    if told.code or found is None:
        why = told.failure or "does not tell its version" + told.last_words
        raise ConfigError(f"nsys --version {why}; {_GET_IT}")
    if (int(found[1]), int(found[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ConfigError(f"this nsys is of version {found[0]}, and {oldest} or newer is needed; {_GET_IT}")
    return Nsys(path=path, version=found[0], help=_call([path, "profile", "--help"], ANSWER_S).text)


def nsys_asked(environment: Mapping[str, str]) -> Nsys:
    """The same for `--capture nsys`, which the ConfigError names."""
    try:
        return find_nsys(environment)
    except ConfigError as error:
        raise ConfigError(f"--capture nsys: {error}; or leave nsys out of --capture") from None


def profile_command(
    nsys: Nsys, stem: Path, *, window: bool, graph_nodes: bool = False, memory: bool = False
) -> list[str]:
    """The words that go before a program's own. The report is `stem` with .nsys-rep, an earlier one overwritten.

    With `window` only what lies between cudaProfilerStart and -Stop is recorded, and the program goes on after it;
    without, the whole program is.
    """
    words = [nsys.path, "profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none"]
    if window:
        words += ["-c", "cudaProfilerApi", "--capture-range-end=stop", "--flush-on-cudaprofilerstop=true"]
    words += ["--kill=none"]
    words += ["--discard-environment=true"] if nsys.discards_environment else []
    words += ["--cuda-graph-trace=node"] if graph_nodes else []
    words += ["--cuda-memory-usage=true"] if memory else []
    return [*words, "-f", "true", "-o", str(stem).replace("%", "%%")]


def run_under(
    command: Sequence[str],
    *,
    limit_s: float | None,
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run a whole command line to its end; its output goes to `log`, or where ours goes.

    After `limit_s`, or where an exception (a signal's, say) ends the wait, it is ended with all that it has started.
    OSError where it does not start.
    """
    with (log or Path("/dev/null")).open("wb") as file:
        output = file if log else None
        child = subprocess.Popen(
            command, stdout=output, stderr=output, stdin=subprocess.DEVNULL if log else None,
            env=environment, start_new_session=log is not None,
        )  # fmt: skip
        code: int | None = None
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if code is None:
                end(child)
    return Ran(code=code, text=log.read_text(errors="replace") if log else "", limit_s=limit_s or 0)


def files_of(stem: Path) -> list[Path]:
    """Every file that a capture with this stem may have left."""
    return [_with(stem, ".nsys-rep"), _with(stem, ".sqlite"), *(_with(stem, f"_{name}.csv") for name in STATS)]


def finish(nsys: Nsys, stem: Path, ran: Ran, *, export_s: float = EXPORT_S, stats_s: float = STATS_S) -> Captured:
    """Export the report that the pass `ran` left at `stem` and summarise it, beside it, as far as that goes."""
    report, sqlite = _with(stem, ".nsys-rep"), _with(stem, ".sqlite")
    if not report.is_file() or not report.stat().st_size:
        return Captured(problem=_why_no_report(nsys, ran))
    problem = None
    if refused := re.search(_CUPTI_REFUSED, ran.text):
        problem = _PERMISSION.format(refused[0])
    elif ran.failure:
        problem = f"nsys {ran.failure}; its report may lack something"
    words = [nsys.path, "export", "--type", "sqlite", "--force-overwrite=true", "--output", str(sqlite), str(report)]
    exported = _call(words, export_s)
    if exported.failure or not _is_sqlite(sqlite):
        sqlite.unlink(missing_ok=True)
        why = exported.failure or "wrote no database" + exported.last_words
        way = f"the report is kept; try again: nsys export --type sqlite {report.name}"
        return Captured(report=report, problem=problem or f"nsys export {why}; {way}")
    made, lacking = _summaries(nsys, stem, sqlite, stats_s)
    return Captured(report=report, sqlite=sqlite, stats=made, problem=problem or lacking)


def _why_no_report(nsys: Nsys, ran: Ran) -> str:
    if option := re.search(r"(?:unrecognised|unrecognized|unknown) option[^\n]*", ran.text):
        return f"nsys {nsys.version} refused its command line ({option[0].strip()}); another version may take it"
    if refused := re.search(_REFUSED, ran.text):
        return _PERMISSION.format(refused[0])
    if "No space left on device" in ran.text:
        return "nsys wrote no report: the disk is full; make room there and in nsys's TMPDIR"
    if ran.failure:
        return f"nsys {ran.failure}; it wrote no report"
    return f"nsys ended well and wrote no report{ran.last_words}"


def _summaries(nsys: Nsys, stem: Path, sqlite: Path, limit_s: float) -> tuple[tuple[Path, ...], str | None]:
    """The CSV files that `nsys stats` could fill, and the first failure. A report without data is no failure."""
    made: list[Path] = []
    for names in STATS.items():
        ran = Ran(code=0, text="", limit_s=limit_s)
        for name in names:
            ran = _call([nsys.path, "stats", "-r", name, "-f", "csv", "-o", "-", str(sqlite)], limit_s)
            if (table := csv_part(ran.text)) is not None or ran.code is None or "SKIPPED:" in ran.text:
                break
        if table is not None:
            path = _with(stem, f"_{names[0]}.csv")
            path.write_text(table, encoding="utf-8")
            made.append(path)
        elif "SKIPPED:" not in ran.text:
            why = ran.failure or "answers without a table" + ran.last_words
            return tuple(made), f"nsys stats -r {names[0]} {why}; analyze-nsys {sqlite.name} needs no nsys"
    return tuple(made), None


def csv_part(text: str) -> str | None:
    """The table in what `nsys stats` prints: from its heading to the next empty line; None where there is none."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if _CSV_HEADER.match(line)), None)
    if start is None:
        return None
    end = next((number for number in range(start, len(lines)) if not lines[number].strip()), len(lines))
    return "\n".join(lines[start:end]) + "\n"


def _with(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)


def _is_sqlite(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(16) == b"SQLite format 3\x00"


def _call(words: list[str], limit_s: float) -> Ran:
    """Run nsys for an answer; one that does not start is a failure like another."""
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return Ran(code=127, text=f"does not start ({error.strerror})", limit_s=limit_s)
    code: int | None = None
    text = ""
    try:
        text = child.communicate(timeout=limit_s)[0]
        code = child.returncode
    except subprocess.TimeoutExpired:
        pass
    finally:
        if code is None:
            end(child)
    return Ran(code=code, text=text, limit_s=limit_s)


def end(child: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """End a process and all that it has started."""
    import psutil  # the doctor, which only asks for versions here, works without

    try:
        family = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        family = []
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    child.wait()
    if child.stdout:
        child.stdout.close()
