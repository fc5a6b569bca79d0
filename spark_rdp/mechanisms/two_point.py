"""The two-point mechanism: one of two outputs, one beyond each end of the range."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from spark_rdp.mechanisms.exact import exp_below, log_ratio
from spark_rdp.mechanisms.local import Local, exponent_for, in_units
from spark_rdp.mechanisms.window import WORD
from spark_rdp.randomness import Bits

_OUTPUT_BITS = 40


@dataclass(frozen=True)
class TwoPoint(Local):
    """Output ``high`` with a probability linear in the input, else ``low``.

    The probability is a 64-bit threshold between ``least`` and ``most``, whatever the input: the loss is exact.

    Args:
        lower, upper: The range, in the unit of the value.
        exponent: Base-2 logarithm of the granularity.
        low, high: The two lattice integers.

    Use `TwoPoint.fit` to get one for a budget.

    Source: Duchi, Jordan, Wainwright 2018; mathematics, section 4.
    """

    name: ClassVar[str] = "duchi"
    lower: float
    upper: float
    exponent: int
    low: int
    high: int
    _least: int = field(init=False, repr=False, compare=False)
    _most: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        width = self.high - self.low
        begin, end = ((in_units(bound, self.exponent) - self.low) / width for bound in (self.lower, self.upper))
        if not 0 < begin < end < 1:
            raise ValueError("the outputs must lie outside the range")
        # Rounded towards each other: both ratios shrink.
        object.__setattr__(self, "_least", math.ceil(begin * WORD))
        object.__setattr__(self, "_most", max(math.floor(end * WORD), self._least))

    @classmethod
    def fit(cls, epsilon: float, lower: float, upper: float, exponent: int | None = None) -> TwoPoint:
        """The mechanism of a budget; its outputs are rounded away from the range, which can only lower the loss."""
        gain = exp_below(epsilon) - 1
        margin = (Fraction(upper) - Fraction(lower)) / gain  # from each end of the range to the output beyond it
        if exponent is None:
            length = upper - lower + 2 * float(margin)
            exponent = exponent_for(length, 2**_OUTPUT_BITS, max(abs(lower), abs(upper)) + length)
        unit = Fraction(2) ** exponent
        low = math.floor((Fraction(lower) - margin) / unit)
        high = math.ceil((Fraction(upper) + margin) / unit)
        return cls(float(lower), float(upper), exponent, low, high)

    def parameters(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if not name.startswith("_")}

    def loss(self) -> float:
        up = Fraction(self._most, self._least)
        down = Fraction(WORD - self._least, WORD - self._most)
        return log_ratio(max(up, down))

    @property
    def support(self) -> tuple[int, int]:
        return self.low, self.high

    def _thresholds(self, values: np.ndarray) -> np.ndarray:
        """The probability of ``high`` for clamped values, out of 2**64."""
        span = self._most - self._least
        share = (values - self.lower) * (1.0 / (self.upper - self.lower))
        above = (share * np.nextafter(float(span), 0.0)).astype(np.uint64)
        return np.uint64(self._least) + np.minimum(above, np.uint64(span))

    def draw(self, values: np.ndarray, bits: Bits, lane: int, rows: np.ndarray | None = None) -> np.ndarray:
        return np.where(bits.words(lane, 1, rows)[:, 0] < self._thresholds(values), self.high, self.low)

    def _chance(self, x: np.ndarray) -> np.ndarray:
        return self._thresholds(self.clamp(np.atleast_1d(x))).astype(np.float64) / WORD

    def mean_output(self, x: np.ndarray) -> np.ndarray:
        middle = self.low / 2 + self.high / 2
        return np.ldexp(middle + (self.high - self.low) * (self._chance(x) - 0.5), self.exponent)

    def variance(self, x: np.ndarray) -> np.ndarray:
        chance = self._chance(x)
        return chance * (1 - chance) * np.ldexp(float(self.high - self.low), self.exponent) ** 2

    def usefulness(self, x: np.ndarray, gamma: float) -> np.ndarray:
        inputs = self.clamp(np.atleast_1d(x))
        low, high = self.lattice.to_values(np.array([self.low, self.high]))
        chance = self._chance(inputs)
        return (inputs - low <= gamma) * (1 - chance) + (high - inputs <= gamma) * chance

    def cumulative(self, x: np.ndarray, integers: np.ndarray) -> np.ndarray:
        chance, cells = self._chance(x)[:, None], np.asarray(integers)
        return (cells >= self.low) * (1 - chance) + (cells >= self.high) * chance

    def pmf(self, x: float, integers: np.ndarray) -> np.ndarray:
        chance = self._chance(np.array([x]))[0]
        cells = np.asarray(integers)
        return (cells == self.high) * chance + (cells == self.low) * (1 - chance)
