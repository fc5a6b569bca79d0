"""What every local mechanism offers: one bounded value in, one unbiased noised value out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np

from spark_rdp.lattice import Lattice
from spark_rdp.randomness import Bits

#: Rows drawn at a time: enough that calls of NumPy cost little, few enough that arrays stay in the cache.
BLOCK = 16384
#: Published lattice integers stay below this where the support is bounded, so that doubles hold them exactly.
EXACT = 2**53
_SMALLEST_EXPONENT = -1000


class Local(ABC):
    """Noise for one value in [lower, upper], the neighbour of every other value in it.

    The output is a lattice integer k and stands for ``k * 2**exponent``. The set of possible outputs is the same for
    every input; inputs are clamped first. The mean of the output is the clamped input.

    Attributes:
        lower, upper: The range, in the unit of the value.
        exponent: Base-2 logarithm of the granularity.
    """

    lower: float
    upper: float
    exponent: int

    @property
    @abstractmethod
    def name(self) -> str:
        """What kind of mechanism it is."""

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """What, with `name`, rebuilds the mechanism; JSON-able and exact."""

    @abstractmethod
    def loss(self) -> float:
        """The privacy loss: the largest ln P(k | x) / P(k | x'), from the thresholds drawn with."""

    @property
    @abstractmethod
    def support(self) -> tuple[int, int]:
        """The smallest and the largest lattice integer that can come out, whatever the input."""

    @abstractmethod
    def variance(self, x: np.ndarray) -> np.ndarray:
        """Variance of the published value at each input, rounding to the lattice included, in squared units."""

    @abstractmethod
    def mean_output(self, x: np.ndarray) -> np.ndarray:
        """Mean of the published value at each input, from the probabilities drawn with."""

    @abstractmethod
    def usefulness(self, x: np.ndarray, gamma: float) -> np.ndarray:
        """P(abs(published value - x) <= gamma) at each input."""

    @abstractmethod
    def pmf(self, x: float, integers: np.ndarray) -> np.ndarray:
        """Probability of each lattice integer when the input is ``x``."""

    @abstractmethod
    def cumulative(self, x: np.ndarray, integers: np.ndarray) -> np.ndarray:
        """P(output <= integer), of shape (inputs, integers): a row for each input, a column for each integer."""

    @abstractmethod
    def draw(self, values: np.ndarray, bits: Bits, lane: int, rows: np.ndarray | None = None) -> np.ndarray:
        """Lattice integers for clamped values, from the random words of ``rows`` in the lanes from ``lane`` on."""

    @property
    def lattice(self) -> Lattice:
        """The lattice of the published values."""
        return Lattice(self.exponent)

    def clamp(self, values: np.ndarray) -> np.ndarray:
        """Values moved into the range; -0.0 becomes 0.0, and NaN, which a policy should have met, the midpoint."""
        inside = np.clip(np.asarray(values, dtype=np.float64), self.lower, self.upper) + 0.0
        missing = np.isnan(inside)
        if missing.any():
            inside = np.where(missing, self.lower / 2 + self.upper / 2, inside)
        return inside

    def keys(self, values: np.ndarray) -> np.ndarray:
        """The 64-bit patterns of the clamped values: what keys the random bits (`KeyedBits` ``values``)."""
        return self.clamp(values).view(np.int64)

    def release(self, values: np.ndarray, bits: Bits) -> np.ndarray:
        """Noised lattice integers.

        Args:
            values: float64 of shape (n,), in the unit of the value.
            bits: The bits of these n rows, keyed by `keys` of the same values.

        Returns:
            int64 of shape (n,); ``lattice.to_values`` turns them into the published doubles.
        """
        inputs = np.asarray(values, dtype=np.float64)
        if len(inputs) <= BLOCK:
            return self.draw(self.clamp(inputs), bits, 0)
        result = np.empty(len(inputs), dtype=np.int64)
        for start in range(0, len(inputs), BLOCK):
            rows = np.arange(start, min(start + BLOCK, len(inputs)))
            result[start : start + BLOCK] = self.draw(self.clamp(inputs[start : start + BLOCK]), bits, 0, rows)
        return result

    def density(self, x: float, values: np.ndarray) -> np.ndarray:
        """Probability per unit of the published value, for plots."""
        integers = np.rint(np.ldexp(np.asarray(values, dtype=np.float64), -self.exponent)).astype(np.int64)
        return np.ldexp(self.pmf(x, integers), -self.exponent)


def exponent_for(length: float, count: int, largest: float) -> int:
    """The exponent with which ``length`` spans between ``count / 2`` and ``count`` lattice units.

    Args:
        length: In the unit of the value; positive.
        count: A power of two.
        largest: The largest magnitude published; where it would need more than 53 bits, the lattice is made coarser.
    """
    wanted = math.frexp(length)[1] - math.frexp(count)[1] + 1
    needed = math.frexp(largest)[1] - math.frexp(float(EXACT))[1] + 1
    return max(wanted, needed, _SMALLEST_EXPONENT)


def in_units(value: float, exponent: int) -> Fraction:
    """A value in lattice units, exactly."""
    return Fraction(value) / Fraction(2) ** exponent


def floor_units(value: float, exponent: int) -> int:
    """The largest lattice integer at or below a value."""
    return math.floor(in_units(value, exponent))
