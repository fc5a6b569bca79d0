"""The lattice every value is released on: whole multiples of a power of two.

Integers have no rounding to attack: a sum is the same in every order, a noised value has the same possible
outputs whatever the input was (mathematics: section 3; Mironov 2012; Casacuberta et al. 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from spark_rdp.domains import GRANULARITY
from spark_rdp.errors import invalid

#: A planned lattice has about this many bits between 0 and the sensitivity.
SENSITIVITY_BITS = 20
#: A single row is clamped to this many lattice units before it is added, so that a sum of fewer than 2**31 rows
#: of one unit fits a 64-bit integer.
ROW_LIMIT = 2**31


@dataclass(frozen=True)
class Lattice:
    """The multiples of ``2**exponent``.

    Args:
        exponent: Base-2 logarithm of the granularity, in the unit of the value.
    """

    exponent: int

    @classmethod
    def for_sensitivity(cls, sensitivity: float) -> Lattice:
        """The lattice on which ``sensitivity`` spans between 2**20 and 2**21 steps."""
        return cls(math.frexp(sensitivity)[1] - 1 - SENSITIVITY_BITS)

    @classmethod
    def of_granularity(cls, granularity: Any) -> Lattice:
        """The lattice of a given granularity; it must be a power of two."""
        number = GRANULARITY.check(granularity)
        mantissa, exponent = math.frexp(number)
        if mantissa != 0.5:
            nearest = 2.0 ** (exponent - 1)
            raise invalid("granularity", "a power of two", granularity, f"The nearest one below is {nearest!r}.")
        return cls(exponent - 1)

    @property
    def granularity(self) -> float:
        """The step of the lattice, in the unit of the value."""
        return math.ldexp(1.0, self.exponent)

    def steps(self, length: float) -> int:
        """The smallest whole number of steps that covers ``length`` (exact)."""
        numerator, denominator = float(length).as_integer_ratio()
        if self.exponent >= 0:
            denominator <<= self.exponent
        else:
            numerator <<= -self.exponent
        return -(-numerator // denominator)

    def nearest(self, value: float) -> int:
        """The lattice integer nearest to one value; halves go to the even neighbour."""
        return round(math.ldexp(float(value), -self.exponent))

    def to_values(self, integers: np.ndarray) -> np.ndarray:
        """Lattice integers as doubles; exact below 2**53 in magnitude, correctly rounded above."""
        return np.asarray(integers, dtype=np.float64) * self.granularity
