"""The cells of a table on a page: a value, its error bar, and both as a small picture on the scale of the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spark_rdp.reporting.figures import Figure, bins, figure
from spark_rdp.reporting.words import plain

#: A value and the ends of its interval; the value is None where nothing is known of it.
Interval = tuple[Any, Any, Any]


@dataclass(frozen=True)
class Bar:
    """Where 0, a value and the ends of its interval lie in the range of their column, in per cent."""

    zero: float
    low: float
    value: float | None
    high: float

    @property
    def width(self) -> float:
        """The length of the interval."""
        return round(self.high - self.low, 2)


@dataclass(frozen=True)
class Cell:
    """One published value: a figure, or for a histogram one figure and bar height per bin."""

    figures: Sequence[Figure]
    error: str
    error_width: int
    bar: Bar | None
    heights: Sequence[float]


def number_cells(values: Sequence[Interval], within: tuple[float, float] | None = None) -> list[Cell]:
    """The cells of a column of numbers, with their bars on a common scale.

    Args:
        values: As published.
        within: The range the values are known to lie in.
    """
    scale = within or (0.0, 0.0)
    bottom = min([scale[0], *(low for _, low, _ in values)])
    width = max([scale[1], *(high for _, _, high in values)]) - bottom or 1.0
    figures = [_figure(value, within) for value in values]
    longest = max((len(each.error) for each in figures), default=0)  # aligns the values of a column

    def place(end: float) -> float:
        return round(100 * (end - bottom) / width, 2)

    cells = []
    for shown, (value, low, high) in zip(figures, values, strict=True):
        bar = Bar(place(0.0), place(low), None if value is None else place(value), place(high))
        cells.append(Cell([shown], shown.error, longest, bar, ()))
    return cells


def bin_cells(values: Sequence[Interval]) -> list[Cell]:
    """The cells of a column of histograms, with bars of one scale."""
    top = max(1, max(max(value) for value, _, _ in values))
    cells = []
    for value, low, high in values:
        figures, error = bins(value, low, high)
        heights = [round(100 * max(0, count) / top, 1) for count in value]
        cells.append(Cell(figures, error, len(error), None, heights))
    return cells


def _figure(value: Interval, within: tuple[float, float] | None) -> Figure:
    if value[0] is None:
        return Figure("unknown", f"({plain(value[1])} to {plain(value[2])})", True)
    return figure(*value, within)
