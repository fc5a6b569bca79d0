"""Additive noise for one bounded value: the whole range is the sensitivity."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from spark_rdp.mechanisms import build
from spark_rdp.mechanisms.base import SATURATION, Additive
from spark_rdp.mechanisms.coins import Rows
from spark_rdp.mechanisms.local import Local, exponent_for, floor_units
from spark_rdp.mechanisms.r2dp import CHOICE
from spark_rdp.metrics import L2
from spark_rdp.randomness import Bits

_RANGE_BITS = 21


@dataclass(frozen=True)
class AdditiveLocal(Local):
    """Round the clamped value to a neighbouring lattice integer, at random so as to keep its mean, and add noise.

    Args:
        lower, upper: The range, in the unit of the value.
        exponent: Base-2 logarithm of the granularity.
        noise: Any additive mechanism on that lattice; its name is the name of this mechanism.
    """

    lower: float
    upper: float
    exponent: int
    noise: Additive
    _noise_variance: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_noise_variance", self.noise.expectation(L2(), 1.0))

    @staticmethod
    def exponent_for(epsilon: float, lower: float, upper: float) -> int:
        """A lattice for a budget: coarser for small ones, whose noise is much wider than the range."""
        bits = min(_RANGE_BITS, max(1, _RANGE_BITS + math.ceil(math.log2(epsilon))))
        return exponent_for(upper - lower, 2**bits, max(abs(lower), abs(upper)))

    @classmethod
    def rebuild(cls, lower: float, upper: float, exponent: int, noise: dict[str, Any]) -> AdditiveLocal:
        """The mechanism of its `parameters`."""
        return cls(lower, upper, exponent, build(noise["name"], noise["parameters"]))

    @property
    def name(self) -> str:
        return self.noise.name

    def parameters(self) -> dict[str, Any]:
        noise = {"name": self.noise.name, "parameters": self.noise.parameters()}
        return {"lower": self.lower, "upper": self.upper, "exponent": self.exponent, "noise": noise}

    def loss(self) -> float:
        return self.noise.loss(sensitivity(self.lower, self.upper, self.exponent))

    @property
    def support(self) -> tuple[int, int]:
        return -SATURATION, SATURATION

    def _rounded(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lattice integer below each clamped value, and the probability of the next one."""
        units = values * math.ldexp(1.0, -self.exponent)
        below = np.floor(units)
        units -= below
        return below.astype(np.int64), units

    def draw(self, values: np.ndarray, bits: Bits, lane: int, rows: np.ndarray | None = None) -> np.ndarray:
        del lane
        part = _Read(bits if rows is None else Rows(bits, rows))
        below, share = self._rounded(values)
        below += (part.choice[:, 1] >> np.uint64(11)) < (share * 2.0**53).astype(np.uint64)
        return self.noise.release(below, part)

    def mean_output(self, x: np.ndarray) -> np.ndarray:
        below, share = self._rounded(self.clamp(np.atleast_1d(x)))
        return np.ldexp(below + np.floor(np.ldexp(share, 53)) / 2.0**53, self.exponent)

    def variance(self, x: np.ndarray) -> np.ndarray:
        _, share = self._rounded(self.clamp(np.atleast_1d(x)))
        return np.ldexp(self._noise_variance + share * (1 - share), 2 * self.exponent)

    def usefulness(self, x: np.ndarray, gamma: float) -> np.ndarray:
        inputs = self.clamp(np.atleast_1d(x))
        below, share = self._rounded(inputs)
        first = np.ceil(np.ldexp(inputs - gamma, -self.exponent))
        last = np.floor(np.ldexp(inputs + gamma, -self.exponent))
        chances = [self._between(first - start, last - start) for start in (below, below + 1)]
        return (1 - share) * chances[0] + share * chances[1]

    def _between(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """P(first <= noise <= last)."""
        pairs = zip(first, last, strict=True)
        return np.array([max(self._at_most(int(high)) - self._at_most(int(low) - 1), 0.0) for low, high in pairs])

    def cumulative(self, x: np.ndarray, integers: np.ndarray) -> np.ndarray:
        below, share = (part[:, None] for part in self._rounded(self.clamp(np.atleast_1d(x))))
        distance = np.asarray(integers, dtype=np.int64) - below
        lengths, places = np.unique(np.stack([distance, distance - 1]), return_inverse=True)
        at_most = np.array([self._at_most(length) for length in lengths.tolist()])[places]
        return (1 - share) * at_most[0] + share * at_most[1]

    def _at_most(self, length: int) -> float:
        """P(noise <= length)."""
        if length < 0:
            return math.exp(self.noise.log_tail(-length)) / 2
        return 1 - math.exp(self.noise.log_tail(length + 1)) / 2

    def pmf(self, x: float, integers: np.ndarray) -> np.ndarray:
        below, share = (part[0] for part in self._rounded(self.clamp(np.array([x]))))
        distance = np.asarray(integers) - below
        masses = np.exp(self.noise.log_mass(distance)), np.exp(self.noise.log_mass(distance - 1))
        return (1 - share) * masses[0] + share * masses[1]


class _Read(Bits):
    """Bits whose pair for the choice of an atom is read once: the other word of it rounds the input."""

    def __init__(self, bits: Bits) -> None:
        self.size = bits.size
        self.choice = bits.pair(CHOICE, 0)
        self._bits = bits

    def words(self, lane: int, count: int, rows: np.ndarray | None = None) -> np.ndarray:
        if rows is None and (lane, count) == (CHOICE, 1):
            return self.choice[:, :1]
        return self._bits.words(lane, count, rows)

    def pair(self, lane: int, place: int | np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        return self._bits.pair(lane, place, rows)


def sensitivity(lower: float, upper: float, exponent: int) -> int:
    """The largest difference of two rounded values of the range, in lattice units."""
    return -floor_units(-upper, exponent) - floor_units(lower, exponent)
