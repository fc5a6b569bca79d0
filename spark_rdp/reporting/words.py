"""How numbers and metrics are written for people; shared by the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from spark_rdp.planning.plan import HIGHER_IS_BETTER

#: Metrics of one noised value that need no parameter to be named.
_VARIANCES = {
    "average-variance": "average variance",
    "worst-variance": "largest variance",
    "center-variance": "variance at the centre",
    "prior-variance": "variance under the prior",
}


def number(value: float | int | None, digits: int = 4) -> str:
    """A number with about ``digits`` significant digits and thousands separators; whole numbers in full."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if value == int(value) if math.isfinite(value) else False:
        return f"{int(value):,}" if abs(value) < 1e15 else f"{value:.{digits - 1}e}"
    size = abs(value)
    if not 1e-4 <= size < 1e15:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    return f"{value:,.{decimals}f}"


def plain(value: float) -> str:
    """A number as a person would write it: six significant digits at most, without trailing zeros."""
    return f"{int(value):,}" if value == int(value) and abs(value) < 1e15 else f"{value:.6g}"


def budget(epsilon: float, delta: float) -> str:
    """Epsilon, and delta where there is one."""
    return plain(epsilon) if not delta else f"{plain(epsilon)} (delta {plain(delta)})"


def metric_name(spec: str | Mapping[str, Any]) -> str:
    """The name of a metric without its parameter."""
    return spec if isinstance(spec, str) else next(iter(spec))


def metric_label(spec: str | Mapping[str, Any]) -> str:
    """What the value of a metric measures."""
    name = metric_name(spec)
    argument: Any = None if isinstance(spec, str) else spec[name]
    if name in _VARIANCES:
        return _VARIANCES[name]
    if name == "l1":
        return "mean absolute error"
    if name == "l2":
        return "root mean square error"
    if name == "usefulness":
        return f"P(|error| ≤ {plain(argument)})"
    if name == "exact-match":
        return "P(right cell)"
    if name == "mallows":
        return f"Mallows distance of order {plain(argument)}"
    if name == "lp":
        return f"L{plain(argument)} norm of the error"
    if name == "rank_error":
        return "rank error, 95 % within"
    if name == "relative_entropy":
        order = argument.get("order", 1)
        return "Kullback-Leibler divergence" if order == 1 else f"Renyi divergence of order {plain(order)}"
    return f"expected {name} loss" if argument is None else f"expected loss {argument}"


def metric_value(spec: str | Mapping[str, Any], value: float | None) -> str:
    """The value of a metric; a probability gets four decimals."""
    if value is None:
        return "–"
    return f"{value:.4f}" if metric_name(spec) in HIGHER_IS_BETTER else number(value)


def against(spec: str | Mapping[str, Any], rival: float | None, best: float) -> str:
    """How much worse a rival is than the best, in per cent of the best."""
    if rival is None:
        return "not available here"
    if not math.isfinite(rival) or best == 0:
        return "–"
    change = rival / best - 1
    worse = -change if metric_name(spec) in HIGHER_IS_BETTER else change
    if abs(worse) < 5e-4:
        return "same"
    if worse > 10:
        return f"{number(rival / best, 3)} times worse"
    return f"{abs(worse):.1%} {'worse' if worse > 0 else 'better'}"


def ranked(plan: Any) -> list[tuple[str, float | None]]:
    """The mechanisms a plan compared, best first; those without a value last, the chosen one first among equals."""
    sign = -1.0 if metric_name(plan.metric) in HIGHER_IS_BETTER else 1.0

    def place(item: tuple[str, float | None]) -> tuple[bool, float, bool]:
        name, value = item
        return value is None, round(sign * value, 12) if value is not None else 0.0, name != plan.mechanism

    return sorted({plan.mechanism: plan.metric_value, **plan.alternatives}.items(), key=place)
