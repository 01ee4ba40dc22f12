"""Numbers as people read them."""

import math
from collections.abc import Sequence

from silodp.models.metrics import get_metric

_SAME_BUDGET = 0.02
MINUS = "\N{MINUS SIGN}"


def measured(value: float | None, metric: str) -> str:
    """A test metric in the metric's own format."""
    return get_metric(metric).text(value)


def plus_minus(mean: float | None, spread: float | None, metric: str) -> str:
    """A mean with its spread over seeds, where there is one."""
    return get_metric(metric).plus_minus(mean, spread)


def of_hundred(chance: float) -> str:
    """A chance as a number of 100, rounded up: it is an upper bound and stays one."""
    value = 100 * chance
    digits = 0 if value in (0, 100) else max(0, 2 - math.floor(math.log10(max(value, 1e-4))))
    digits = 4 if value > 99.9 else digits
    return f"{math.ceil(value * 10**digits - 1e-9) / 10**digits:g}"


def one_budget(epsilons: Sequence[float]) -> bool:
    """Whether these are one budget: noise is calibrated to a little below what was requested."""
    low, high = min(epsilons), max(epsilons)
    return low == high or (math.isfinite(high) and high - low <= _SAME_BUDGET * high)


def budget(epsilon: float) -> str:
    """An epsilon, rounded: noise is calibrated to a little below the requested budget."""
    return "none" if math.isinf(epsilon) else f"{epsilon:.3g}"


def small(value: float) -> str:
    """A delta: 0.0001 or 1e-05."""
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Seconds in words, such as 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
