"""Discrete Gaussian noise, alone and with a random scale; (epsilon, delta) from the mass function itself."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.coins import PRECISION, Rows, decays
from spark_rdp.mechanisms.geometric import SAMPLER_LANES, GeometricSampler
from spark_rdp.mechanisms.r2dp import CHOICE, AtomChooser
from spark_rdp.metrics import Metric, Usefulness
from spark_rdp.randomness import LANES, Bits
from spark_rdp.series import tail_sum

#: Scales in lattice units. Below the smallest one the noise is 0 but for e^-128.
SMALLEST_SIGMA, LARGEST_SIGMA = 2.0**-4, 2.0**55
#: Lanes of one attempt of the rejection: a geometric sampler's and one for the coin.
_ATTEMPT = SAMPLER_LANES + 1
_COIN = SAMPLER_LANES
#: Integers less likely than e^-1024 are left out of the sampler's error bound.
_UNLIKELY = 1024.0
#: Beyond so many scales nothing is left, high powers of the error included.
_REACH = 16.0


class ApproximatelyPrivate(Additive):
    """Noise that is private with a chance of failure: its pure loss is infinite."""

    def loss(self, shift: int) -> float:
        """Infinite: far out, every shift is told apart. Use `delta`."""
        return math.inf

    @abstractmethod
    def delta(self, epsilon: float, shift: int, coordinates: int = 1) -> float:
        """The smallest delta for which the noise, as it is sampled, is (epsilon, delta)-private.

        Args:
            epsilon: Not negative.
            shift: The most one coordinate changes, in lattice units.
            coordinates: How many coordinates change, noise being drawn for each.
        """

    def epsilon(self, delta: float, shift: int, coordinates: int = 1) -> float:
        """The smallest epsilon for which `delta` is at most ``delta``; 0 when none is needed."""

        def excess(epsilon: float) -> float:
            return math.log(max(self.delta(epsilon, shift, coordinates), 1e-300) / delta)

        if excess(0.0) <= 0:
            return 0.0
        high = 1.0
        while excess(high) > 0:
            high *= 2
        root = float(brentq(excess, 0.0, high, xtol=1e-13, rtol=1e-13))
        step = 1e-13 * (1 + root)
        while excess(root) > 0:
            root, step = root + step, 2 * step
        return root


@dataclass(frozen=True)
class DiscreteGaussian(ApproximatelyPrivate):
    """P(X = k) proportional to e^(-k^2 / (2 sigma^2)).

    Args:
        sigma: The scale in lattice units; above 1 it is the standard deviation to 7 digits.

    Source: Canonne, Kamath, Steinke 2020: Algorithm 3 (the sampler), Theorem 7 (its privacy).
    """

    name: ClassVar[str] = "gaussian"
    sigma: float
    _laplace: GeometricSampler = field(init=False, repr=False, compare=False)
    _log_total: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not SMALLEST_SIGMA <= self.sigma <= LARGEST_SIGMA:
            constraint = f"between {SMALLEST_SIGMA:g} and {LARGEST_SIGMA:g} lattice units"
            raise invalid("sigma", constraint, self.sigma, "Use another granularity.")
        object.__setattr__(self, "_laplace", GeometricSampler([1 / self._scale]))
        object.__setattr__(self, "_log_total", log_total(self.sigma))

    @property
    def _scale(self) -> float:
        """Scale of the two-sided geometric noise that the sampler starts from."""
        return math.floor(self.sigma) + 1.0

    def parameters(self) -> dict[str, Any]:
        return {"sigma": self.sigma}

    def log_mass(self, k: np.ndarray) -> np.ndarray:
        return -((np.asarray(k, dtype=np.float64) / self.sigma) ** 2) / 2 - self._log_total

    def log_tail(self, m: int) -> float:
        if m <= 0:
            return 0.0
        return min(0.0, math.log(2) + log_upper_sum(self.sigma, float(m)) - self._log_total)

    @property
    def sampling_slack(self) -> float:
        # The starting noise is off by its slack and 2^-50 of k / scale, the coin by PRECISION of its exponent, which is
        # itself rounded a few times; all three grow with -ln p(k) at most, and the normalisation shifts by as much.
        return 2 * (self._laplace.slack + 4 * PRECISION * (_UNLIKELY + 2))

    def delta(self, epsilon: float, shift: int, coordinates: int = 1) -> float:
        """As promised by the base class.

        The sum of k independent noises is discrete Gaussian noise of scale sqrt(k) sigma, up to a factor e^+-t with
        t = 10 sum_j e^(-2 pi^2 sigma^2 j/(j+1)); what tells two vectors apart by (d, ..., d) is that sum. Smaller
        shifts are harder to tell apart, the mass function being log-concave.

        Source: Kairouz, Liu, Steinke 2021 (sums of discrete Gaussians); mathematics, section 1.3.
        """
        slack = coordinates * self.sampling_slack
        distance = 10 * (coordinates - 1) * math.exp(-((math.pi * self.sigma) ** 2))
        sigma = math.sqrt(coordinates) * self.sigma
        exact = hockey_stick(sigma, float(coordinates * shift), epsilon - 2 * slack - 2 * distance)
        return min(1.0, exact * math.exp(slack + distance))

    def expectation(self, metric: Metric, granularity: float) -> float:
        if isinstance(metric, Usefulness):
            return math.exp(self.log_tail(metric.steps(granularity) + 1))

        def term(k: np.ndarray) -> np.ndarray:
            return np.exp(-((k / self.sigma) ** 2) / 2) * metric.even_loss(granularity * k)

        total = float(metric.even_loss(np.zeros(1))[0]) + 2 * tail_sum(term, 1, _REACH * self.sigma)
        return total * math.exp(-self._log_total)

    def noise(self, bits: Bits) -> np.ndarray:
        result = np.zeros(bits.size, dtype=np.int64)
        waiting = np.arange(bits.size)
        centre = self.sigma * (self.sigma / self._scale)
        attempt = 0
        while len(waiting):
            lane = attempt * _ATTEMPT
            assert lane + _ATTEMPT < LANES, "thousands of refusals in a row: the bits are not random"
            own = Rows(bits, waiting)
            drawn = self._laplace.two_sided(own, lane)
            x = ((np.abs(drawn) - centre) / self.sigma) ** 2 / 2
            accepted = decays(own, lane + _COIN, x[:, None])[:, 0]
            result[waiting[accepted]] = drawn[accepted]
            waiting = waiting[~accepted]
            attempt += 1
        return result


@dataclass(frozen=True)
class GaussianMixture(ApproximatelyPrivate):
    """Discrete Gaussian noise whose scale is drawn afresh for each value: R2DP Gaussian noise.

    Args:
        sigmas: The scales, increasing, in lattice units.
        weights: Their probabilities, positive and adding up to 1.

    Source: R2DP, Appendix F.2.1; mathematics, section 1.3.
    """

    name: ClassVar[str] = "r2dp-gaussian"
    sigmas: tuple[float, ...]
    weights: tuple[float, ...]
    _parts: tuple[DiscreteGaussian, ...] = field(init=False, repr=False, compare=False)
    _chooser: AtomChooser | None = field(init=False, repr=False, compare=False)
    _shares: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigmas", tuple(self.sigmas))
        object.__setattr__(self, "weights", tuple(self.weights))
        chooser = AtomChooser(np.array(self.weights)) if len(self.sigmas) > 1 else None
        object.__setattr__(self, "_parts", tuple(DiscreteGaussian(sigma) for sigma in self.sigmas))
        object.__setattr__(self, "_chooser", chooser)
        object.__setattr__(self, "_shares", chooser.weights if chooser else np.ones(1))

    def parameters(self) -> dict[str, Any]:
        return {"sigmas": list(self.sigmas), "weights": list(self.weights)}

    def log_mass(self, k: np.ndarray) -> np.ndarray:
        heights = [math.log(share) + part.log_mass(k) for share, part in zip(self._shares, self._parts, strict=True)]
        return np.logaddexp.reduce(heights, axis=0)

    def log_tail(self, m: int) -> float:
        tails = [math.log(share) + part.log_tail(m) for share, part in zip(self._shares, self._parts, strict=True)]
        return min(0.0, float(np.logaddexp.reduce(tails)))

    @property
    def sampling_slack(self) -> float:
        return max(part.sampling_slack for part in self._parts) + 2.0**-50

    def delta(self, epsilon: float, shift: int, coordinates: int = 1) -> float:
        """As promised by the base class: no more than the mean delta of the components, by joint convexity."""
        if coordinates != 1 and len(self._parts) > 1:
            raise invalid("coordinates", "1 for Gaussian noise of a random scale", coordinates, "Use gaussian.")
        deltas = [part.delta(epsilon, shift, coordinates) for part in self._parts]
        return min(1.0, float(self._shares @ deltas) * (1 + 2.0**-50))

    def expectation(self, metric: Metric, granularity: float) -> float:
        return float(self._shares @ [part.expectation(metric, granularity) for part in self._parts])

    def noise(self, bits: Bits) -> np.ndarray:
        if self._chooser is None:
            return self._parts[0].noise(bits)
        atoms = self._chooser.choose(bits, CHOICE)
        result = np.empty(bits.size, dtype=np.int64)
        for atom, part in enumerate(self._parts):
            rows = np.flatnonzero(atoms == atom)
            result[rows] = part.noise(Rows(bits, rows))
        return result


def log_total(sigma: float) -> float:
    """ln of the sum of e^(-k^2 / (2 sigma^2)) over all integers."""
    if sigma >= 2:  # Poisson summation: the next term is e^(-8 pi^2 sigma^2)
        return math.log(sigma) + math.log(2 * math.pi) / 2 + math.log1p(2 * math.exp(-2 * (math.pi * sigma) ** 2))
    k = np.arange(1, 80)
    return math.log1p(2 * math.fsum(np.exp(-((k / sigma) ** 2) / 2)))


def log_upper_sum(sigma: float, start: float) -> float:
    """ln of the sum of e^(-k^2 / (2 sigma^2)) over k >= start, a positive whole number."""
    ratio = start / sigma

    def term(j: np.ndarray) -> np.ndarray:
        z = j / sigma
        return np.exp(-z * (ratio + z / 2))

    return math.log(tail_sum(term, 0, _REACH * sigma / (1 + ratio))) - ratio**2 / 2


def hockey_stick(sigma: float, shift: float, epsilon: float) -> float:
    """Sum of max(0, p(k) - e^epsilon p(k + shift)) for discrete Gaussian noise: a sum of positive terms.

    Args:
        sigma: Scale.
        shift: A positive whole number.
        epsilon: Any real number.

    Source: Canonne, Kamath, Steinke 2020, Theorem 7, before its two tails are told apart.
    """
    d = shift / sigma
    edge = sigma * (epsilon / d - d / 2)  # from here on p(k) / p(k + shift) is at least e^epsilon
    start = math.ceil(edge)
    excess = d * (start - edge) / sigma
    ratio = start / sigma
    peak = max(ratio, 0.0)
    settled = _REACH * sigma / (1 + peak) + max(0.0, -start)

    def term(j: np.ndarray) -> np.ndarray:
        z = j / sigma  # heights are relative to the highest one, which is at the start or at 0
        height = np.exp(-z * (ratio + z / 2) - (ratio**2 - peak**2) / 2)
        return height * -np.expm1(-(excess + d * z))

    return tail_sum(term, 0, settled) * math.exp(-(peak**2) / 2 - log_total(sigma))
