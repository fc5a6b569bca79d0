"""What every additive mechanism offers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from spark_rdp.randomness import Bits

if TYPE_CHECKING:
    from spark_rdp.metrics import Metric

#: Published integers saturate here. Clamping a noised value is post-processing; it keeps 64-bit sums from wrapping.
SATURATION = 2**62


class Additive(ABC):
    """Integer noise with an explicit mass function, symmetric and not increasing away from 0.

    All lengths are in lattice units.
    """

    name: ClassVar[str]

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """What, with `name`, rebuilds the mechanism; JSON-able and exact."""

    @abstractmethod
    def log_mass(self, k: np.ndarray) -> np.ndarray:
        """Natural logarithm of P(X = k) for integers ``k``."""

    @abstractmethod
    def log_tail(self, m: int) -> float:
        """Natural logarithm of P(abs X >= m), for ``m >= 0``."""

    @abstractmethod
    def loss(self, shift: int) -> float:
        """The privacy loss sup_k ln P(X = k) / P(X = k + shift) for a shift of at most ``shift``, sampler included."""

    @property
    @abstractmethod
    def sampling_slack(self) -> float:
        """How far ln of a ratio of sampled probabilities can lie from that of the mass function; counted in `loss`."""

    @abstractmethod
    def expectation(self, metric: Metric, granularity: float) -> float:
        """E[metric.loss(granularity * X)]."""

    @abstractmethod
    def noise(self, bits: Bits) -> np.ndarray:
        """One int64 draw for each row of ``bits``."""

    def quantile(self, level: float) -> int:
        """The smallest m with P(abs X <= m) >= ``level``; the half-width of an interval of that confidence."""
        target = math.log1p(-level)
        if self.log_tail(1) <= target:
            return 0
        low, high = 0, 1  # P(abs X > low) is above the target, P(abs X > high) is not
        while self.log_tail(high + 1) > target:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self.log_tail(middle + 1) > target:
                low = middle
            else:
                high = middle
        return high

    def release(self, values: np.ndarray, bits: Bits) -> np.ndarray:
        """Noised integers.

        Args:
            values: int64 of shape (n,), magnitudes at most 2**62.
            bits: The bits of these n rows.

        Returns:
            int64 of shape (n,), saturating at +-2**62.
        """
        noise = np.clip(self.noise(bits), 1 - SATURATION, SATURATION - 1)
        noise += np.asarray(values, dtype=np.int64)
        return np.clip(noise, -SATURATION, SATURATION, out=noise)
