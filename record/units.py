"""How numbers are shown, the same in every view; `None` is always `not measured`.

Bytes are binary (GiB = 2³⁰) in our own views; the nsys-compatible reports keep nsys' MB = 10⁶.
"""

NOT_MEASURED = "not measured"

_ROUNDS_UP = 0.9995
"""A value this near to the next unit would round to 1000 of its own."""


def show_ns(value: float | None) -> str:
    """A duration with three significant digits or more: `834 ns`, `12.3 µs`, `4.56 ms`, `1.23 s`, `2 min 05 s`."""
    if value is None:
        return NOT_MEASURED
    size = abs(value)
    if size >= 120e9:
        minutes, seconds = divmod(round(size / 1e9), 60)
        return f"{'-' if value < 0 else ''}{minutes} min {seconds:02d} s"
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if size >= scale * _ROUNDS_UP:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{value:.0f} ns"


def show_bytes(value: float | None) -> str:
    """`512 B`, `1.50 KiB`, `3.25 GiB`."""
    if value is None:
        return NOT_MEASURED
    for scale, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= scale * _ROUNDS_UP:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{value:.0f} B"


def show_rate(bytes_per_s: float | None) -> str:
    """`3.25 GiB/s`."""
    return NOT_MEASURED if bytes_per_s is None else f"{show_bytes(bytes_per_s)}/s"


def show_pct(value: float | None, *, signed: bool = False) -> str:
    """One decimal: `12.3 %`; with `signed`, `+12.3 %`."""
    if value is None:
        return NOT_MEASURED
    return f"{value:+.1f} %" if signed else f"{value:.1f} %"


def show_count(value: float | None) -> str:
    """An integer in groups of three: `18,320`."""
    return NOT_MEASURED if value is None else f"{value:,.0f}"


def show_loss(value: float | None) -> str:
    """Four decimals."""
    return NOT_MEASURED if value is None else f"{value:.4f}"


def _three_digits(value: float) -> str:
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
