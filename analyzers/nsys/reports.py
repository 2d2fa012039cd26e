"""The reports of `nsys stats`, under their official names, with its columns, order and rounding.

duration = end − start in whole ns. Time (%) is a row's share of the listed rows. Medians are the mean of the two middle
values, deviations the sample's (n − 1; 0 for a single one). MB = 10⁶ bytes. Sums are by total, largest first, then by
name; traces by start. What public sources leave open is said in docs/analyze-nsys.md.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from importlib import import_module

from ...record.errors import ConfigError
from ...record.units import NOT_MEASURED
from .export import Export
from .reports_asked import PUSH_POP, START_END, Asked, Need, Row, Source, Value

__all__ = ["REPORTS", "Asked", "Report", "ReportColumn", "Row", "Value", "report"]


@dataclass(frozen=True, kw_only=True)
class ReportColumn:
    """A column as nsys heads it; `decimals` None = as it is."""

    heading: str
    decimals: int | None = None
    none: str = ""
    """What a table shows where there is no value; CSV is empty there, JSON null."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One report, and the arguments it is asked with (`:base`)."""

    name: str
    old_names: tuple[str, ...]
    """Those of before 2023."""
    title: str
    columns: tuple[ReportColumn, ...]
    needs: tuple[Need, ...]
    answer: str
    """module.function; loaded when it is asked for, because most need pyarrow, which is slow to load."""
    takes: tuple[str, ...] = ()
    """The arguments it understands; one that ends in `=` takes a number."""
    arguments: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name with the arguments, as nsys puts it into file names."""
        return "_".join((self.name, *self.arguments))

    def lacks(self, export: Export) -> str | None:
        """What an export that cannot answer does not contain, in the words of `nsys stats`; None where it can."""
        return next((need.words for need in self.needs if not need.is_met(export)), None)

    def stream(self, export: Export, asked: Asked) -> Iterable[Row] | None:
        """The rows, a list where they are few; None where the export lacks what they need."""
        if self.lacks(export):
            return None
        module, _, function = self.answer.partition(".")
        answer: Callable[[Export, Asked], Iterable[Row]] = getattr(import_module(f".{module}", __package__), function)
        return answer(export, self._bound(asked))

    def rows(self, export: Export, asked: Asked | None = None) -> list[Row] | None:
        """All rows; None where the export lacks what they need."""
        found = self.stream(export, asked or Asked())
        return None if found is None else list(found)

    def _bound(self, asked: Asked) -> Asked:
        for argument in self.arguments:
            match argument.partition("="):
                case ("base" | "mangled") as name, _, _:
                    asked = replace(asked, kernel_name=name)
                case "nvtx-name", _, _:
                    asked = replace(asked, by_range=True)
                case "nsys-throughput", _, _:
                    asked = replace(asked, as_nsys=True)
                case "rows", _, number:
                    asked = replace(asked, limit=int(number))
        return asked


def report(name: str) -> Report:
    """The report called `name` (today's name, or that of before 2023), with its arguments.

    ConfigError lists the reports there are, or the arguments of this one.
    """
    called, *arguments = name.split(":")
    for known in REPORTS:
        if called in (known.name, *known.old_names):
            for argument in arguments:
                _check(known, argument)
            return replace(known, arguments=tuple(arguments))
    raise ConfigError(
        f"--report: there is no report {called!r}; choose from {', '.join(known.name for known in REPORTS)}"
    )


def todays_name(name: str) -> str:
    """Today's name of a report that goes by one of before 2023; any other name as it is."""
    return next((known.name for known in REPORTS if name in known.old_names), name)


def _check(known: Report, argument: str) -> None:
    word, equals, number = argument.partition("=")
    if word + equals in known.takes and (number.isdigit() if equals else True):
        return
    takes = f"it takes {', '.join(f':{word}' for word in known.takes)}" if known.takes else "it takes none"
    raise ConfigError(f"--report: {known.name} has no argument {argument!r}; {takes}")


def _cupti(*kinds: str) -> tuple[Source, ...]:
    return tuple(Source(table=f"CUPTI_ACTIVITY_KIND_{kind}") for kind in kinds)


def _nvtx(words: str, *styles: int) -> Need:
    rows = f'eventType IN ({", ".join(map(str, styles))}) AND "end" IS NOT NULL'
    return Need(sources=(Source(table="NVTX_EVENTS", columns=("eventType", "end"), rows=rows),), words=words)


_KERNELS = Need(sources=_cupti("KERNEL"), words="CUDA kernel data")
_MEMORY = Need(sources=_cupti("MEMCPY", "MEMSET"), words="GPU memory data")
_GPU = Need(sources=_cupti("KERNEL", "MEMCPY", "MEMSET"), words="CUDA kernel and GPU memory data")
_LAUNCHED = Need(sources=_cupti("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"), words="CUDA kernel and GPU memory data")
_CALLS = Need(sources=_cupti("RUNTIME"), words="CUDA trace data")
_RANGES = _nvtx("NV Tools Extension (NVTX) data", PUSH_POP, START_END)
_PUSH_POP = _nvtx("NV Tools Extension (NVTX) push/pop ranges", PUSH_POP)
_START_END = _nvtx("NV Tools Extension (NVTX) start/end ranges", START_END)
_OS_CALLS = Need(sources=(Source(table="OSRT_API"),), words="OS Runtime trace data")
_UNIFIED = Need(
    sources=(
        Source(table="CUPTI_ACTIVITY_KIND_MEMCPY", columns=("virtualAddress", "copyKind"), rows="copyKind IN (11, 12)"),
        Source(table="CUDA_UM_CPU_PAGE_FAULT_EVENTS"),
        Source(table="CUDA_UM_GPU_PAGE_FAULT_EVENTS"),
    ),
    words="CUDA Unified Memory transfers and page faults",
)


def _columns(headings: str, *, none: str = "") -> tuple[ReportColumn, ...]:
    """Columns of headings with `|` between them; ` .1` after one is its number of decimals."""
    found = []
    for heading in headings.split("|"):
        text, _, decimals = heading.strip().partition(" .")
        found.append(ReportColumn(heading=text, decimals=int(decimals) if decimals else None, none=none))
    return tuple(found)


def _spread(before: str = "", unit: str = "ns") -> str:
    """Headings of mean, median, least, most and deviation."""
    tenths, whole = (" .1", "") if unit == "ns" else (" .3", " .3")
    words = (("Avg", tenths), ("Med", tenths), ("Min", whole), ("Max", whole), ("StdDev", tenths))
    return " | ".join(f"{before}{word} ({unit}){decimals}" for word, decimals in words)


def _sum(count: str, names: str) -> tuple[ReportColumn, ...]:
    return _columns(f"Time (%) .1 | Total Time (ns) | {count} | {_spread()} | {names}")


_NAMED = ("base", "mangled")
_NAMED_IN_RANGES = ("nvtx-name", *_NAMED)

REPORTS: tuple[Report, ...] = (
    Report(
        name="cuda_gpu_kern_sum",
        old_names=("gpukernsum",),
        title="CUDA GPU Kernel Summary",
        columns=_sum("Instances", "Name"),
        needs=(_KERNELS,),
        answer="reports_sums.kernel_sum",
        takes=_NAMED_IN_RANGES,
    ),
    Report(
        name="cuda_gpu_mem_time_sum",
        old_names=("gpumemtimesum",),
        title="CUDA GPU MemOps Summary (by Time)",
        columns=_sum("Count", "Operation"),
        needs=(_MEMORY,),
        answer="reports_sums.memory_time_sum",
    ),
    Report(
        name="cuda_gpu_mem_size_sum",
        old_names=("gpumemsizesum",),
        title="CUDA GPU MemOps Summary (by Size)",
        columns=_columns(f"Total (MB) .3 | Count | {_spread(unit='MB')} | Operation"),
        needs=(_MEMORY,),
        answer="reports_sums.memory_size_sum",
    ),
    Report(
        name="cuda_api_sum",
        old_names=("cudaapisum",),
        title="CUDA API Summary",
        columns=_sum("Num Calls", "Name"),
        needs=(_CALLS,),
        answer="reports_sums.api_sum",
    ),
    Report(
        name="nvtx_sum",
        old_names=("nvtxsum",),
        title="NVTX Range Summary",
        columns=_sum("Instances", "Style | Range"),
        needs=(_RANGES,),
        answer="reports_ranges.range_sum",
    ),
    Report(
        name="osrt_sum",
        old_names=("osrtsum",),
        title="OS Runtime Summary",
        columns=_sum("Num Calls", "Name"),
        needs=(_OS_CALLS,),
        answer="reports_sums.os_sum",
    ),
    Report(
        name="um_sum",
        old_names=("unifiedmemory", "umsum"),
        title="Unified Memory Analysis Summary",
        columns=_columns(
            "Virtual Address | HtoD Migration Size (MB) .3 | DtoH Migration Size (MB) .3 | "
            "CPU Page Faults | GPU PageFaults | Migration Throughput (MB/s) .3",
            none=NOT_MEASURED,
        ),
        needs=(_UNIFIED,),
        answer="reports_unified.unified_memory_sum",
        takes=("rows=",),
    ),
    Report(
        name="cuda_gpu_kern_gb_sum",
        old_names=("gpukerngbsum",),
        title="CUDA GPU Kernel/Grid/Block Summary",
        columns=_sum("Instances", "GridXYZ | BlockXYZ | Name"),
        needs=(_KERNELS,),
        answer="reports_kernels.kernel_grid_sum",
        takes=_NAMED_IN_RANGES,
    ),
    Report(
        name="cuda_gpu_sum",
        old_names=("gpusum",),
        title="CUDA GPU Summary (Kernels/MemOps)",
        columns=_sum("Instances", "Category | Operation"),
        needs=(_GPU,),
        answer="reports_sums.gpu_sum",
        takes=_NAMED_IN_RANGES,
    ),
    Report(
        name="cuda_gpu_trace",
        old_names=("gputrace",),
        title="CUDA GPU Trace",
        columns=_columns(
            "Start (ns) | Duration (ns) | CorrId | GrdX | GrdY | GrdZ | BlkX | BlkY | BlkZ | Reg/Trd | "
            "StcSMem (MB) .3 | DymSMem (MB) .3 | Bytes (MB) .3 | Throughput (MB/s) .3 | SrcMemKd | "
            "DstMemKd | Device | Ctx | GreenCtx | Strm | Name"
        ),
        needs=(_GPU,),
        answer="reports_traces.gpu_trace",
        takes=(*_NAMED_IN_RANGES, "nsys-throughput"),
    ),
    Report(
        name="cuda_api_trace",
        old_names=("cudaapitrace",),
        title="CUDA API Trace",
        columns=_columns("Start (ns) | Duration (ns) | Name | Result | CorrID | Pid | Tid | T-Pri | Thread Name"),
        needs=(_CALLS,),
        answer="reports_traces.api_trace",
    ),
    Report(
        name="cuda_kern_exec_sum",
        old_names=("kernexecsum",),
        title="CUDA Kernel Launch & Exec Time Summary",
        columns=_columns(
            f"PID | TID | DevId | Count | QCount | {' | '.join(_spread(phase) for phase in 'TAQK')} | "
            "API Name | Kernel Name"
        ),
        needs=(_KERNELS, _CALLS),
        answer="reports_executions.execution_sum",
        takes=_NAMED_IN_RANGES,
    ),
    Report(
        name="cuda_kern_exec_trace",
        old_names=("kernexectrace",),
        title="CUDA Kernel Launch & Exec Time Trace",
        columns=_columns(
            "API Start (ns) | API Dur (ns) | Queue Start (ns) | Queue Dur (ns) | Kernel Start (ns) | "
            "Kernel Dur (ns) | Total Dur (ns) | PID | TID | DevId | API Function | GridXYZ | BlockXYZ | "
            "Kernel Name"
        ),
        needs=(_KERNELS, _CALLS),
        answer="reports_executions.execution_trace",
        takes=_NAMED_IN_RANGES,
    ),
    Report(
        name="nvtx_pushpop_sum",
        old_names=("nvtxppsum",),
        title="NVTX Push/Pop Range Summary",
        columns=_sum("Instances", "Range"),
        needs=(_PUSH_POP,),
        answer="reports_ranges.push_pop_sum",
    ),
    Report(
        name="nvtx_pushpop_trace",
        old_names=("nvtxpptrace",),
        title="NVTX Push/Pop Range Trace",
        columns=_columns(
            "Start (ns) | End (ns) | Duration (ns) | DurChild (ns) | DurNonChild (ns) | Name | PID | TID | "
            "Lvl | NumChild | RangeId | ParentId | RangeStack | NameTree"
        ),
        needs=(_PUSH_POP,),
        answer="reports_ranges.push_pop_trace",
    ),
    Report(
        name="nvtx_startend_sum",
        old_names=("nvtxsesum", "nvtxsssum"),
        title="NVTX Start/End Range Summary",
        columns=_sum("Instances", "Range"),
        needs=(_START_END,),
        answer="reports_ranges.start_end_sum",
    ),
    Report(
        name="nvtx_kern_sum",
        old_names=("nvtxkernsum",),
        title="NVTX Range Kernel Summary",
        columns=_columns(
            f"NVTX Range | Style | PID | TID | NVTX Inst | Kern Inst | Total Time (ns) | {_spread()} | Kernel Name"
        ),
        needs=(_RANGES, _KERNELS, _CALLS),
        answer="reports_projections.kernels_by_range",
        takes=_NAMED,
    ),
    Report(
        name="nvtx_gpu_proj_sum",
        old_names=("nvtxgpuprojsum",),
        title="NVTX GPU Projection Summary",
        columns=_columns(
            "Range | Style | Total Proj Time (ns) | Total Range Time (ns) | Range Instances | "
            f"{_spread('Proj ')} | Total GPU Ops | Avg GPU Ops .1 | Avg Range Lvl .1 | Avg Num Child .1"
        ),
        needs=(_RANGES, _LAUNCHED, _CALLS),
        answer="reports_projections.projection_sum",
    ),
    Report(
        name="nvtx_gpu_proj_trace",
        old_names=("nvtxgpuproj",),
        title="NVTX GPU Projection Trace",
        columns=_columns(
            "Name | Projected Start (ns) | Projected Duration (ns) | Orig Start (ns) | Orig Duration (ns) | "
            "Style | PID | TID | NumGPUOps | Lvl | NumChild | RangeId | ParentId | RangeStack"
        ),
        needs=(_RANGES, _LAUNCHED, _CALLS),
        answer="reports_projections.projection_trace",
    ),
)
"""All of them, in the order in which they are listed."""
