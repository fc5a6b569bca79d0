"""The hybrid mechanism: a coin decides between the piecewise and the two-point mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from spark_rdp.mechanisms.local import Local
from spark_rdp.mechanisms.podium import Piecewise, piecewise_fraction
from spark_rdp.mechanisms.two_point import TwoPoint
from spark_rdp.mechanisms.window import WORD
from spark_rdp.randomness import Bits

#: Below this budget the coin always shows the two-point mechanism (Wang et al. 2019).
SMALLEST_EPSILON = 0.61
_FIRST, _SECOND, _COIN = 0, 1, 2


@dataclass(frozen=True)
class Hybrid(Local):
    """Piecewise with probability ``threshold / 2**64``, else two-point; both on one lattice.

    The coin does not depend on the input, so the loss is at most the larger of the two.

    Args:
        piecewise, two_point: The two mechanisms, for the same range and lattice.
        threshold: Out of 2**64, below it.

    Source: Wang et al. 2019, the mixture with the least worst-case variance.
    """

    name: ClassVar[str] = "hybrid"
    piecewise: Piecewise
    two_point: TwoPoint
    threshold: int
    lower: float = field(init=False, repr=False, compare=False)
    upper: float = field(init=False, repr=False, compare=False)
    exponent: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for shared in ("lower", "upper", "exponent"):
            object.__setattr__(self, shared, getattr(self.piecewise, shared))

    @classmethod
    def fit(cls, epsilon: float, lower: float, upper: float) -> Hybrid:
        """The mechanism of a budget."""
        piecewise = Piecewise.fit(epsilon, lower, upper, piecewise_fraction(epsilon))
        assert isinstance(piecewise, Piecewise)
        share = -math.expm1(-epsilon / 2) if epsilon > SMALLEST_EPSILON else 0.0
        threshold = min(int(share * WORD), WORD - 1)
        return cls(piecewise, TwoPoint.fit(epsilon, lower, upper, piecewise.exponent), threshold)

    def parameters(self) -> dict[str, Any]:
        return {
            "piecewise": self.piecewise.parameters(),
            "two_point": self.two_point.parameters(),
            "threshold": self.threshold,
        }

    @classmethod
    def rebuild(cls, piecewise: dict[str, Any], two_point: dict[str, Any], threshold: int) -> Hybrid:
        """The mechanism of its `parameters`."""
        return cls(Piecewise(**piecewise), TwoPoint(**two_point), threshold)

    def loss(self) -> float:
        if self.threshold == 0:
            return self.two_point.loss()
        return max(self.piecewise.loss(), self.two_point.loss())

    @property
    def support(self) -> tuple[int, int]:
        if self.threshold == 0:
            return self.two_point.support
        first, second = self.piecewise.support, self.two_point.support
        return min(first[0], second[0]), max(first[1], second[1])

    def draw(self, values: np.ndarray, bits: Bits, lane: int, rows: np.ndarray | None = None) -> np.ndarray:
        coin = bits.words(lane + _COIN, 1, rows)[:, 0] < np.uint64(self.threshold)
        first = self.piecewise.draw(values, bits, lane + _FIRST, rows)
        return np.where(coin, first, self.two_point.draw(values, bits, lane + _SECOND, rows))

    def _mixed(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        share = self.threshold / WORD
        return share * first + (1 - share) * second

    def mean_output(self, x: np.ndarray) -> np.ndarray:
        return self._mixed(self.piecewise.mean_output(x), self.two_point.mean_output(x))

    def variance(self, x: np.ndarray) -> np.ndarray:
        return self._mixed(self.piecewise.variance(x), self.two_point.variance(x))  # both have the mean x

    def usefulness(self, x: np.ndarray, gamma: float) -> np.ndarray:
        return self._mixed(self.piecewise.usefulness(x, gamma), self.two_point.usefulness(x, gamma))

    def cumulative(self, x: np.ndarray, integers: np.ndarray) -> np.ndarray:
        return self._mixed(self.piecewise.cumulative(x, integers), self.two_point.cumulative(x, integers))

    def pmf(self, x: float, integers: np.ndarray) -> np.ndarray:
        return self._mixed(self.piecewise.pmf(x, integers), self.two_point.pmf(x, integers))
