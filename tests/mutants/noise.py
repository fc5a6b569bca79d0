"""Additive mechanisms with one fault each. A named test must catch every one of them."""

from __future__ import annotations

import math

import numpy as np

from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase
from spark_rdp.metrics import Metric
from spark_rdp.randomness import Bits


class TooLittle(Geometric):
    """The scale of the noise is 3 % too small."""

    def noise(self, bits: Bits) -> np.ndarray:
        return Geometric(self.rate / 0.97).noise(bits)


class TooMuch(Geometric):
    """The scale of the noise is 3 % too large."""

    def noise(self, bits: Bits) -> np.ndarray:
        return Geometric(self.rate / 1.03).noise(bits)


class UpsideDown(Geometric):
    """The scale is its own inverse (known-faults, row 63)."""

    def noise(self, bits: Bits) -> np.ndarray:
        return Geometric(1 / self.rate).noise(bits)


class Shifted(Geometric):
    """One unit too high."""

    def noise(self, bits: Bits) -> np.ndarray:
        return super().noise(bits) + 1


class OneSided(Geometric):
    """The sign was forgotten."""

    def noise(self, bits: Bits) -> np.ndarray:
        return np.abs(super().noise(bits))


class TwoZeros(Geometric):
    """A magnitude and a sign, where -0 and 0 both count as 0: zero is drawn too often."""

    def noise(self, bits: Bits) -> np.ndarray:
        magnitude = self._sampler.magnitudes(bits, 0)
        return np.where(bits.words(1000, 1)[:, 0] & np.uint64(1), magnitude, -magnitude)


class CutTail(Geometric):
    """The tail is cut where a 10-bit uniform number ends."""

    def noise(self, bits: Bits) -> np.ndarray:
        furthest = self.quantile(1 - 2.0**-10)
        return np.clip(super().noise(bits), -furthest, furthest)


class RepeatedStream(Geometric):
    """Every second block of rows gets the noise of the first again."""

    def noise(self, bits: Bits) -> np.ndarray:
        drawn = super().noise(bits)
        return np.resize(drawn[: max(1, len(drawn) // 8)], len(drawn))


class ShiftedStream(Geometric):
    """Rows share noise with the row before: one stream, read one place on (known-faults, row 122)."""

    def noise(self, bits: Bits) -> np.ndarray:
        drawn = super().noise(bits)
        return drawn + np.roll(drawn, 1)


class OtherVariance(Geometric):
    """Reports the spread of another mechanism (known-faults, row 62)."""

    def expectation(self, metric: Metric, granularity: float) -> float:
        return 2 * super().expectation(metric, granularity)


class ShortPeriod(Staircase):
    """Calibrated one lattice unit short: the sensitivity was rounded down."""

    def log_mass(self, k: np.ndarray) -> np.ndarray:
        return Staircase(self.epsilon, self.period - 1, self.step).log_mass(k)


class LinearLoss(Staircase):
    """Claims a loss that shrinks with the shift, as Laplace noise has it (mathematics, section 1.2)."""

    def loss(self, shift: int) -> float:
        return self.epsilon * shift / self.period


class RightOpenStep(Staircase):
    """The centre lacks its last integer when drawn: one edge is off by one."""

    def noise(self, bits: Bits) -> np.ndarray:
        drawn = super().noise(bits)
        return np.where(drawn == self.step - 1, self.step - 2, drawn)


class ErratumTwoPoint(Geometric):
    """A scale that is one of two, with the loss that Theorem B.2 of the R2DP paper claims (mathematics, E1)."""

    slow = 0.001

    def log_mass(self, k: np.ndarray) -> np.ndarray:
        parts = [Geometric(rate).log_mass(k) for rate in (self.slow, self.rate)]
        return np.logaddexp(*parts) - math.log(2)

    def loss(self, shift: int) -> float:
        return math.log((math.exp(self.slow * shift) + math.exp(self.rate * shift)) / 2)
