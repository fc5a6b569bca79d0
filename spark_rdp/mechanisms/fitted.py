"""The fitted mechanism: a window over a few hundred cells whose outputs were optimised.

Solutions of the linear programme over all unbiased mechanisms (`planning.limits`) favour, for each input, a run of
outputs of one fixed total probability. So let a window of fixed width slide over equally likely cells and give each
cell its own output. Privacy is the window's, whatever the outputs are. The mean output grows with the window's place,
so every input has a place that makes it unbiased. What is left to choose is the width and the outputs
(`planning.fitting`); the best choice comes within 1 % of the limit of the programme.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from spark_rdp.mechanisms.exact import log_ratio
from spark_rdp.mechanisms.local import exponent_for, in_units
from spark_rdp.mechanisms.window import WORD, Window, window_threshold

_OUTPUT_BITS = 24
#: Entries of the table that finds the window's place.
_GUIDE = 1024


@dataclass(frozen=True)
class Fitted(Window):
    """A window over cells with outputs of their own.

    Args:
        lower, upper: The range, in the unit of the value.
        exponent: Base-2 logarithm of the granularity.
        step: Cells the window covers.
        threshold: Probability, out of 2**64, of drawing from the window rather than from all cells.
        levels: The lattice integer of each cell; not decreasing, far enough apart to reach both ends of the range.
    """

    name: ClassVar[str] = "fitted"
    lower: float
    upper: float
    exponent: int
    step: int
    threshold: int
    levels: tuple[int, ...]
    cells: int = field(init=False, repr=False, compare=False)
    _table: np.ndarray = field(init=False, repr=False, compare=False)
    _knots: np.ndarray = field(init=False, repr=False, compare=False)
    _rates: np.ndarray = field(init=False, repr=False, compare=False)
    _guide: np.ndarray = field(init=False, repr=False, compare=False)
    _steps: int = field(init=False, repr=False, compare=False)
    _sums: tuple[np.ndarray, np.ndarray] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        table = np.array(self.levels, dtype=np.int64)
        object.__setattr__(self, "cells", len(table))
        object.__setattr__(self, "_table", table)
        width = Fraction(self.upper) - Fraction(self.lower)
        shares = [(mean * Fraction(2) ** self.exponent - Fraction(self.lower)) / width for mean in self.means()]
        if np.any(np.diff(table) < 0) or not shares[0] <= 0 < 1 <= shares[-1]:
            raise ValueError("the outputs must not decrease and must reach both ends of the range")
        knots = np.array([float(share) for share in shares])
        gaps = np.diff(knots)
        rates = np.divide(1.0, gaps, out=np.zeros_like(gaps), where=gaps > 0)
        guide = np.searchsorted(knots[1:-1], np.arange(_GUIDE + 1) / _GUIDE, side="right")
        object.__setattr__(self, "_knots", knots)
        object.__setattr__(self, "_rates", rates)
        object.__setattr__(self, "_guide", guide[:-1])
        object.__setattr__(self, "_steps", int(np.diff(guide).max()))
        centred = table - float(self._middle)
        sums = tuple(np.concatenate([[0.0], np.cumsum(centred**power)]) for power in (1, 2))
        object.__setattr__(self, "_sums", sums)

    @classmethod
    def of_shape(cls, epsilon: float, lower: float, upper: float, step: int, shape: np.ndarray) -> Fitted:
        """The mechanism of a budget, with outputs of a given shape.

        Args:
            epsilon: The budget; `loss` is at most this, exactly.
            lower, upper: The range.
            step: Cells the window covers.
            shape: Outputs of the cells, not decreasing, for the range [-1/2, 1/2]; stretched a little where rounding
                to the lattice would otherwise leave an end of the range out of reach.
        """
        width, middle = upper - lower, lower / 2 + upper / 2
        exponent = exponent_for(
            float(shape[-1] - shape[0]) * width,
            2**_OUTPUT_BITS,
            max(abs(lower), abs(upper)) + float(abs(shape).max()) * width,
        )
        threshold = window_threshold(epsilon, len(shape), step)
        scaled = shape * np.ldexp(width, -exponent)
        centre = in_units(middle, exponent)
        stretch = 1.0
        for attempt in range(200):
            levels = tuple(round(centre + Fraction(float(level))) for level in scaled * stretch)
            try:
                return cls(float(lower), float(upper), exponent, step, threshold, levels)
            except ValueError:
                stretch *= 1 + 2.0 ** (attempt / 4 - _OUTPUT_BITS)
        raise ValueError("the shape does not reach both ends of the range")

    def parameters(self) -> dict[str, Any]:
        names = ("lower", "upper", "exponent", "step", "threshold")
        return {**{name: getattr(self, name) for name in names}, "levels": list(self.levels)}

    @classmethod
    def rebuild(cls, levels: list[int], **others: Any) -> Fitted:
        """The mechanism of its `parameters`."""
        return cls(levels=tuple(levels), **others)

    @property
    def _middle(self) -> int:
        return int(self.levels[0] + self.levels[-1]) // 2

    def means(self) -> list[Fraction]:
        """The exact mean output, in lattice units, for each start of the window."""
        sums = [0]
        for level in self.levels:
            sums.append(sums[-1] + level)
        rest = Fraction((WORD - self.threshold) * sums[-1], WORD * self.cells)
        inside = Fraction(self.threshold, WORD * self.step)
        return [rest + inside * (end - begin) for begin, end in zip(sums, sums[self.step :], strict=False)]

    def place(self, values: np.ndarray) -> np.ndarray:
        share = (values - self.lower) * (1.0 / (self.upper - self.lower))
        start = self._guide[np.minimum((share * _GUIDE).astype(np.int64), _GUIDE - 1)]
        last = len(self._rates) - 1
        for _ in range(self._steps):
            start += (share >= self._knots[start + 1]) & (start < last)
        part = (share - self._knots[start]) * self._rates[start]
        return start + np.clip(part, 0.0, 1.0)

    def outputs(self, drawn: np.ndarray) -> np.ndarray:
        return self._table[drawn]

    def cells_between(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = self.lattice.to_values(self._table)
        return np.searchsorted(values, low, side="left"), np.searchsorted(values, high, side="right")

    def loss(self) -> float:
        """The loss of the outputs: cells with one output count as one."""
        worst = Fraction(1)
        rest = Fraction(WORD - self.threshold, self.cells)
        inside = Fraction(self.threshold, self.step)
        last = self.cells - self.step
        _, first, counts = np.unique(self._table, return_index=True, return_counts=True)
        for begin, count in zip(first.tolist(), counts.tolist(), strict=True):
            end = begin + count
            most = min(count, self.step)
            least = min(max(min(end, start + self.step) - max(begin, start), 0) for start in (0, last))
            worst = max(worst, (rest * count + inside * most) / (rest * count + inside * least))
        return log_ratio(worst)

    def _moment(self, x: np.ndarray, power: int) -> np.ndarray:
        """A moment of the output about the middle level, in lattice units."""
        sums = self._sums[power - 1]
        start, share = self._starts(x)
        after = np.minimum(start + 1, self.cells - self.step)
        inside = (1 - share) * (sums[start + self.step] - sums[start]) + share * (sums[after + self.step] - sums[after])
        return self.weight * inside / self.step + (1 - self.weight) * sums[-1] / self.cells

    def mean_output(self, x: np.ndarray) -> np.ndarray:
        return np.ldexp(self._moment(x, 1) + self._middle, self.exponent)

    def variance(self, x: np.ndarray) -> np.ndarray:
        return np.ldexp(self._moment(x, 2) - self._moment(x, 1) ** 2, 2 * self.exponent)
