"""Published values with their error bars, as people read them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

#: Digits of the error bar that are worth reading.
ERROR_DIGITS = 2
MOST_DECIMALS = 9


@dataclass(frozen=True)
class Figure:
    """A value with its interval, rounded to what the noise leaves readable.

    Attributes:
        text: The value.
        error: The error bar, ``± 12``; or the interval where it is not symmetric.
        drowned: The noise is as large as the value, or for a value that is known to lie in a range, leaves half of the
            range or more open. A function of published numbers only.
    """

    text: str
    error: str
    drowned: bool


def figure(value: float, low: float, high: float, within: tuple[float, float] | None = None) -> Figure:
    """Word one value and its interval.

    Args:
        value, low, high: As published.
        within: The range the value is known to lie in (a mean).
    """
    up, down = high - value, value - low
    half = max(up, down)
    decimals = _decimals(half, whole=all(isinstance(x, int) for x in (value, low, high)))
    symmetric = abs(up - down) <= 0.5 * 10.0**-decimals + 1e-9 * half
    error = f"± {half:,.{decimals}f}" if symmetric else f"({_signed(low, decimals)} to {_signed(high, decimals)})"
    drowned = low < 0 < high if within is None else high - low >= (within[1] - within[0]) / 2
    return Figure(_signed(value, decimals), error, drowned)


def bins(values: list[int], low: list[int], high: list[int]) -> tuple[list[Figure], str]:
    """Word the counts of a histogram and their common error bar."""
    figures = [figure(*each) for each in zip(values, low, high, strict=True)]
    errors = {each.error for each in figures}
    return figures, errors.pop() if len(errors) == 1 else ""


def _decimals(half: float, whole: bool) -> int:
    """Decimals that show ERROR_DIGITS digits of the error bar."""
    if whole or half <= 0 or not math.isfinite(half):
        return 0
    return min(max(0, ERROR_DIGITS - 1 - math.floor(math.log10(half))), MOST_DECIMALS)


def _signed(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    text = text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
    return text.replace("-", "−")


def is_bins(value: Any) -> bool:
    """Whether a published value is the list of a histogram."""
    return isinstance(value, (list, tuple))
