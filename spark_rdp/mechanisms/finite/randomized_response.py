"""k-ary randomised response: the tight-constraints mechanism of unordered values."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

import numpy as np

from spark_rdp.mechanisms.coins import Rows
from spark_rdp.mechanisms.exact import exp_below, log_ratio
from spark_rdp.mechanisms.finite.domains import Categories
from spark_rdp.mechanisms.finite.tight_constraints import Tight
from spark_rdp.randomness import Bits, bernoulli, uniform_below

_WORD = 2**64
#: Above, a threshold cannot come closer to 1: e^-40 is less than the last bits of a 64-bit one.
_MOST = 40.0


class RandomizedResponse(Tight):
    """Each coordinate is kept with a chance T / 2**64, or else replaced by a uniform one, itself included.

    Source: Warner 1965; Kairouz, Oh, Viswanath 2014.
    """

    name: ClassVar[str] = "tight-constraints"

    def __init__(self, domain: Categories, epsilon: float) -> None:
        super().__init__(domain, epsilon)
        self._values, self._coordinates = domain.values, domain.coordinates
        gain = exp_below(min(epsilon, _MOST)) - 1
        # (T k + (W - T)) / (W - T) <= e^epsilon, in whole numbers.
        self.threshold = int(_WORD * gain / (gain + self._values))

    def loss(self) -> float:
        rest = _WORD - self.threshold
        return log_ratio(Fraction(self.threshold * self._values + rest, rest))

    def row(self, cell: int) -> np.ndarray:
        differing = self.domain.between(np.array(cell), np.arange(self.domain.size))
        other = (_WORD - self.threshold) / _WORD / self._values
        return np.asarray((self.threshold / _WORD + other) ** (self._coordinates - differing) * other**differing)

    def diagonal(self) -> np.ndarray:
        other = (_WORD - self.threshold) / _WORD / self._values
        return np.full(self.domain.size, (self.threshold / _WORD + other) ** self._coordinates)

    def draw(self, cells: np.ndarray, bits: Bits, rows: np.ndarray) -> np.ndarray:
        chosen = Rows(bits, rows)
        result, stride = np.zeros(len(cells), dtype=np.int64), 1
        for lane in range(0, 2 * self._coordinates, 2):
            here = cells // stride % self._values
            kept = bernoulli(chosen, lane, self.threshold)
            result += np.where(kept, here, uniform_below(chosen, lane + 1, self._values)) * stride
            stride *= self._values
        return result
