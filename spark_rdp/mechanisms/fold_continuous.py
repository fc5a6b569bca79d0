"""Second folds with a density: gamma, uniform, truncated Gaussian, Rayleigh, noncentral chi-squared.

Everything is computed for t <= 0, in logarithms and from sums of positive terms, so that nothing overflows or cancels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy import special

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.fold_base import DEPTH, Atoms, SecondFold, check

#: Probability left out at each end of an unbounded law, e^-TAIL.
TAIL = 41.0
#: Nodes of one panel of a composite Gauss-Legendre rule.
PANEL = 16


@lru_cache(maxsize=8)
def _legendre(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss-Legendre nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


class Continuous(SecondFold):
    """A law with a density, turned into atoms by a composite Gauss-Legendre rule in ln u."""

    @abstractmethod
    def _range(self) -> tuple[float, float]:
        """An interval that holds all but about e^-TAIL of the law."""

    @abstractmethod
    def _log_density(self, u: np.ndarray) -> np.ndarray:
        """Logarithm of the density, up to a constant."""

    def atoms(self, count: int) -> Atoms:
        low, high = self._range()
        low = max(low, high * DEPTH)
        nodes, weights = _legendre(PANEL)
        edges = np.linspace(math.log(low), math.log(high), max(count // PANEL, 1) + 1)
        logs = (edges[:-1, None] + np.diff(edges)[:, None] * nodes).ravel()
        rates = np.exp(logs)
        density = self._log_density(rates) + logs
        mass = np.exp(density - density.max()) * np.tile(weights, len(edges) - 1)
        kept = mass > 0
        return Atoms(rates[kept], mass[kept] / mass.sum())


@dataclass(frozen=True)
class Gamma(Continuous):
    """The gamma law, density proportional to u^(shape-1) e^(-u/scale)."""

    name: ClassVar[str] = "gamma"
    shape: float
    scale: float

    def __post_init__(self) -> None:
        check("shape", self.shape, 1e-2, 1e7)
        check("scale", self.scale, 1e-300, 1e300)

    def log_mgf(self, t: np.ndarray | float) -> np.ndarray:
        return -self.shape * np.log1p(-self.scale * np.asarray(t, dtype=np.float64))

    def log_mgf_derivative(self, t: np.ndarray | float) -> np.ndarray:
        mean = math.log(self.shape) + math.log(self.scale)
        return mean - (self.shape + 1) * np.log1p(-self.scale * np.asarray(t, dtype=np.float64))

    @property
    def order(self) -> float:
        return self.shape

    @property
    def reach(self) -> float:
        return 1 / self.scale

    def _negative_moment(self, p: float) -> float:
        return float(np.exp(special.gammaln(self.shape - p) - special.gammaln(self.shape))) * self.scale**-p

    def scaled(self, factor: float) -> Gamma:
        return Gamma(self.shape, self.scale * factor)

    def _range(self) -> tuple[float, float]:
        tail = math.exp(-TAIL)
        low, high = special.gammaincinv(self.shape, tail), special.gammainccinv(self.shape, tail)
        return self.scale * float(low), self.scale * float(high)

    def _log_density(self, u: np.ndarray) -> np.ndarray:
        return (self.shape - 1) * np.log(u / self.scale) - u / self.scale


@dataclass(frozen=True)
class Uniform(Continuous):
    """The uniform law on [low, high], low >= 0."""

    name: ClassVar[str] = "uniform"
    low: float
    high: float

    def __post_init__(self) -> None:
        check("high", self.high, 1e-300, 1e300)
        check("low", self.low, 0.0, math.nextafter(self.high, 0.0))

    def log_mgf(self, t: np.ndarray | float) -> np.ndarray:
        t = np.asarray(t, dtype=np.float64)
        return self.low * t + np.log(special.exprel((self.high - self.low) * t))

    def log_mgf_derivative(self, t: np.ndarray | float) -> np.ndarray:
        t = np.asarray(t, dtype=np.float64)
        width = self.high - self.low
        z = np.maximum(-width * t, 1e-100)
        # E[y e^-zy] for y uniform on [0, 1] is P(2, z) / z^2 with the incomplete gamma function P
        first = special.gammainc(2.0, z) / z**2
        return self.low * t + np.log(self.low * special.exprel(-z) + width * first)

    @property
    def order(self) -> float:
        return 1.0 if self.low == 0 else math.inf

    def _negative_moment(self, p: float) -> float:
        if self.low == 0:
            return self.high**-p / (1 - p)
        width = self.high - self.low
        span = math.log1p(width / self.low)
        return self.low ** (1 - p) * span * float(special.exprel((1 - p) * span)) / width

    def scaled(self, factor: float) -> Uniform:
        return Uniform(self.low * factor, self.high * factor)

    def _range(self) -> tuple[float, float]:
        return self.low, self.high

    def _log_density(self, u: np.ndarray) -> np.ndarray:
        return np.zeros_like(u)


def _gaussian_nodes(c: np.ndarray, low: float, high: float, power: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A quadrature of y^power e^(-y^2/2 - c y) on [low, high], for each c (one row of nodes each).

    The integrand is log-concave, so one window around its peak holds all but e^-80 of it.

    Returns:
        The left ends of the windows, the distances of the nodes from them, and the logarithms of node weight times
        integrand.
    """
    drop = 80.0 + 20.0 * power
    free = -c if power == 0 else 2 * power / (c + np.sqrt(c * c + 4 * power))
    peak = np.clip(free, low, high)
    slope = c + peak

    def reach(steepness: np.ndarray) -> np.ndarray:
        return 2 * drop / (steepness + np.sqrt(steepness**2 + 2 * drop))

    left = np.maximum(peak - reach(np.maximum(-slope, 0.0)), low)
    width = np.minimum((peak - left) + reach(np.maximum(slope, 0.0)), high - left)
    nodes, weights = _legendre(96)
    steps = width[:, None] * nodes
    logs = (
        np.log(width[:, None] * weights) - steps * (steps / 2 + (left + c)[:, None]) - (left * (left / 2 + c))[:, None]
    )
    if power:
        logs = logs + power * np.log(left[:, None] + steps)
    return left, steps, logs


@dataclass(frozen=True)
class TruncatedGaussian(Continuous):
    """A Gaussian of mean ``centre`` and standard deviation ``spread`` conditioned on [low, high], low >= 0."""

    name: ClassVar[str] = "truncated-gaussian"
    centre: float
    spread: float
    low: float
    high: float

    def __post_init__(self) -> None:
        check("spread", self.spread, 1e-300, 1e300)
        check("centre", self.centre, -1e6 * self.spread, 1e6 * self.spread)
        check("low", self.low, 0.0, 1e300)
        if not self.high > self.low:
            raise invalid("high", "above low", self.high, "It is a parameter of a second-fold law.")

    def _sums(self, t: np.ndarray | float, power: int) -> np.ndarray:
        """ln of the integral of u^power e^(tu) times the Gaussian kernel, up to one constant."""
        t = np.asarray(t, dtype=np.float64)
        anchor = min(max(self.centre, self.low), self.high)
        low, high = (self.low - anchor) / self.spread, (self.high - anchor) / self.spread
        c = (anchor - self.centre) / self.spread - self.spread * t.ravel()
        left, steps, logs = _gaussian_nodes(c, low, high, 0)
        if power:
            ends = np.where(left == low, self.low, anchor + self.spread * left)
            logs = logs + power * np.log(ends[:, None] + self.spread * steps)
        return anchor * t + special.logsumexp(logs, axis=1).reshape(t.shape)

    def log_mgf(self, t: np.ndarray | float) -> np.ndarray:
        return self._sums(t, 0) - self._sums(0.0, 0)

    def log_mgf_derivative(self, t: np.ndarray | float) -> np.ndarray:
        return self._sums(t, 1) - self._sums(0.0, 0)

    @property
    def order(self) -> float:
        return 1.0 if self.low == 0 else math.inf

    def _negative_moment(self, p: float) -> float:
        rates, weights = self.atoms(2048)
        return float(weights @ rates**-p)

    def scaled(self, factor: float) -> TruncatedGaussian:
        return TruncatedGaussian(self.centre * factor, self.spread * factor, self.low * factor, self.high * factor)

    def _range(self) -> tuple[float, float]:
        peak = min(max(self.centre, self.low), self.high)
        steep = abs(peak - self.centre) / self.spread
        reach = self.spread * 2 * TAIL / (steep + math.sqrt(steep**2 + 2 * TAIL))
        return max(self.low, peak - reach), min(self.high, peak + reach)

    def _log_density(self, u: np.ndarray) -> np.ndarray:
        peak = min(max(self.centre, self.low), self.high)
        y = (u - peak) / self.spread
        return -y * (y / 2 + (peak - self.centre) / self.spread)


@dataclass(frozen=True)
class Rayleigh(Continuous):
    """The Rayleigh law, density proportional to u e^(-u^2 / (2 scale^2))."""

    name: ClassVar[str] = "rayleigh"
    scale: float

    def __post_init__(self) -> None:
        check("scale", self.scale, 1e-300, 1e300)

    def _sums(self, t: np.ndarray | float, power: int) -> np.ndarray:
        t = np.asarray(t, dtype=np.float64)
        _, _, logs = _gaussian_nodes(-self.scale * t.ravel(), 0.0, math.inf, power)
        return special.logsumexp(logs, axis=1).reshape(t.shape)

    def log_mgf(self, t: np.ndarray | float) -> np.ndarray:
        return self._sums(t, 1)

    def log_mgf_derivative(self, t: np.ndarray | float) -> np.ndarray:
        return math.log(self.scale) + self._sums(t, 2)

    @property
    def order(self) -> float:
        return 2.0

    def _negative_moment(self, p: float) -> float:
        return self.scale**-p * 2 ** (-p / 2) * math.gamma(1 - p / 2)

    def scaled(self, factor: float) -> Rayleigh:
        return Rayleigh(self.scale * factor)

    def _range(self) -> tuple[float, float]:
        return self.scale * math.sqrt(2) * math.exp(-TAIL / 2), self.scale * math.sqrt(2 * TAIL + 10)

    def _log_density(self, u: np.ndarray) -> np.ndarray:
        y = u / self.scale
        return np.log(y) - y * y / 2


@dataclass(frozen=True)
class NoncentralChiSquared(Continuous):
    """``scale`` times a noncentral chi-squared variable.

    Args:
        freedom: Degrees of freedom, at most 256.
        noncentrality: At least 0.
        scale: Positive.
    """

    name: ClassVar[str] = "noncentral-chi-squared"
    freedom: float
    noncentrality: float
    scale: float

    def __post_init__(self) -> None:
        check("freedom", self.freedom, 2e-2, 256.0)
        check("noncentrality", self.noncentrality, 0.0, 1e6)
        check("scale", self.scale, 1e-300, 1e300)

    def log_mgf(self, t: np.ndarray | float) -> np.ndarray:
        s = self.scale * np.asarray(t, dtype=np.float64)
        return -self.freedom / 2 * np.log1p(-2 * s) + self.noncentrality * s / (1 - 2 * s)

    def log_mgf_derivative(self, t: np.ndarray | float) -> np.ndarray:
        s = 1 - 2 * self.scale * np.asarray(t, dtype=np.float64)
        return self.log_mgf(t) + np.log(self.scale * (self.freedom / s + self.noncentrality / s**2))

    @property
    def order(self) -> float:
        return self.freedom / 2

    @property
    def reach(self) -> float:
        return 1 / (2 * self.scale)

    def _negative_moment(self, p: float) -> float:
        half, rate = self.freedom / 2, self.noncentrality / 2  # a Poisson mixture of central laws
        reach = 12 * math.sqrt(rate + 1) + 40
        j = np.arange(max(0, math.floor(rate - reach)), math.ceil(rate + reach))
        logs = (
            special.xlogy(j, rate)
            - rate
            - special.gammaln(j + 1)
            + special.gammaln(half + j - p)
            - special.gammaln(half + j)
        )
        return float(np.exp(special.logsumexp(logs))) * (2 * self.scale) ** -p

    def scaled(self, factor: float) -> NoncentralChiSquared:
        return NoncentralChiSquared(self.freedom, self.noncentrality, self.scale * factor)

    def _range(self) -> tuple[float, float]:
        # Birge's concentration bounds; near 0 the law is left to DEPTH
        mean, reach = self.freedom + self.noncentrality, 2 * math.sqrt((self.freedom + 2 * self.noncentrality) * TAIL)
        return self.scale * max(mean - reach, 0.0), self.scale * (mean + reach + 2 * TAIL)

    def _log_density(self, u: np.ndarray) -> np.ndarray:
        x = u / self.scale
        order = self.freedom / 2 - 1
        z = np.sqrt(self.noncentrality * x)
        q = z * z / 4
        # ln I_order(z) less order ln(z/2): a power series where the Bessel function would underflow
        terms = np.ones_like(q)
        total = np.ones_like(q)
        small = q < 0.05 * (order + 1)
        q_small = np.where(small, q, 0.0)
        for k in range(1, 9):
            terms = terms * q_small / (k * (order + k))
            total = total + terms
        with np.errstate(divide="ignore", invalid="ignore"):
            bessel = np.log(special.ive(order, z)) + z - order * np.log(z / 2)
        return order * np.log(x) - x / 2 + np.where(small, np.log(total) - special.gammaln(order + 1), bessel)
