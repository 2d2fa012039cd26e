"""The sums by name: kernels, copies and sets, API calls, calls of the operating system.

They stream through `summarise` and load neither pyarrow nor numpy, unless kernels are told apart by range.
"""

from collections.abc import Callable, Iterable

from .export import Export
from .reports_asked import Asked, Row, largest_first, number, with_share
from .reports_names import kernel_column, operation, operation_names, unversioned
from .summaries import Summary, summarise

_OS_CALL = 27
"""The class of a call of the OS runtime; others mark where its recording began and ended."""
_DURATION = '"end" - start'


def kernel_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """By name. Graphs that were recorded whole are no kernels."""
    return with_share(largest_first(_kernels(export, asked)))


def gpu_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Kernels, copies and sets by name."""
    kernels = [(*row[:-1], "CUDA_KERNEL", row[-1]) for row in _kernels(export, asked)]
    memory = [(*row[:-1], "MEMORY_OPER", row[-1]) for row in _memory(export, asked, _DURATION)]
    return with_share(largest_first(kernels + memory))


def memory_time_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Copies and sets by operation and time."""
    return with_share(largest_first(_memory(export, asked, _DURATION)))


def memory_size_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Copies and sets by operation and bytes, in MB of 10⁶."""
    return [
        (number(total) / 1e6, count, *(number(value) / 1e6 for value in rest), name)
        for total, count, *rest, name in largest_first(_memory(export, asked, "bytes"))
    ]


def api_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """CUDA calls by name."""
    return with_share(_calls(export, asked, "CUPTI_ACTIVITY_KIND_RUNTIME", shown=unversioned))


def os_sum(export: Export, asked: Asked) -> Iterable[Row]:
    """Calls of the OS runtime by name."""
    return with_share(_calls(export, asked, "OSRT_API", of_class=_OS_CALL))


def _kernels(export: Export, asked: Asked) -> list[Row]:
    """Rows of statistics and name."""
    if asked.by_range:
        from .reports_kernels import kernel_rows

        return kernel_rows(export, asked, ())
    table = export.table("CUPTI_ACTIVITY_KIND_KERNEL")
    if table is None:
        return []
    name, where = kernel_column(export, table, asked), asked.part(export.columns(table))
    return _rows(summarise(export, table, name_id=name, value=_DURATION, where=where, at_least=0))


def _memory(export: Export, asked: Asked, value: str) -> list[Row]:
    """Rows of statistics and operation."""
    rows: list[Row] = []
    for kind in ("MEMCPY", "MEMSET"):
        if table := export.table(f"CUPTI_ACTIVITY_KIND_{kind}"):
            where = f'"end" >= start AND {asked.part(export.columns(table))}'
            texts, name = operation_names(export), operation(export, table)
            rows += _rows(summarise(export, table, name_id=name, value=value, where=where, texts=texts))
    return rows


def _calls(
    export: Export, asked: Asked, name: str, *, shown: Callable[[str], str] = str, of_class: int | None = None
) -> list[Row]:
    """Rows of statistics and name; of the rows of a class where the table tells them apart."""
    table = export.table(name)
    if table is None:
        return []
    where = asked.part()
    if of_class is not None and "eventClass" in export.columns(table):
        where += f" AND eventClass = {of_class}"
    found = summarise(export, table, name_id="nameId", value=_DURATION, where=where, at_least=0, shown=shown)
    return _rows(found)


def _rows(found: list[Summary]) -> list[Row]:
    return [(of.total, of.count, of.mean, of.median, of.least, of.most, of.deviation, of.name) for of in found]
