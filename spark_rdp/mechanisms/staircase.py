"""The staircase mechanism on the integers: flat steps, each e^-epsilon times the one before."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize_scalar

from spark_rdp.mechanisms.base import SATURATION, Additive
from spark_rdp.mechanisms.geometric import SAMPLER_LANES, GeometricSampler
from spark_rdp.metrics import Metric, PowerLoss, Usefulness
from spark_rdp.randomness import Bits, uniform_below
from spark_rdp.series import block_sums, tail_sum

_COIN, _LEVEL, _PLACE = 0, SAMPLER_LANES, 2 * SAMPLER_LANES
#: For a loss that may fall: every step is tried up to the first period, so many above it, then around the best one.
_ALL, _SOME = 64, 20


@dataclass(frozen=True)
class Staircase(Additive):
    """Staircase noise: P(X = k) is a for abs k < step, and a e^(-epsilon i) on the i-th run of ``period`` integers on.

    The loss is epsilon for every shift of 1 to ``period``; unlike Laplace noise, it does not shrink with the shift.

    Args:
        epsilon: Privacy loss for a shift of at most ``period``; positive.
        period: The sensitivity in lattice units, 1 to 2**40.
        step: Half-width of the centre, 1 to ``period``. With period 1 this is the two-sided geometric distribution.

    Source: Geng and Viswanath 2016; mathematics, section 2.
    """

    name: ClassVar[str] = "staircase"
    epsilon: float
    period: int
    step: int
    _level: GeometricSampler = field(init=False, repr=False, compare=False)
    _coin: GeometricSampler = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_level", GeometricSampler([self.epsilon]))
        object.__setattr__(self, "_coin", GeometricSampler([-min(self._log_centre, self._log_outside)]))

    def parameters(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "period": self.period, "step": self.step}

    @property
    def _ratio(self) -> float:
        """e^-epsilon / (1 - e^-epsilon), the sum of all further levels as a multiple of the centre's height."""
        return math.exp(-self.epsilon) / -math.expm1(-self.epsilon)

    @property
    def _log_weights(self) -> tuple[float, float]:
        """Logarithms of the weights of the centre and of all that lies outside it, in units of the centre's height."""
        outside = math.log(2 * self.period) - self.epsilon - math.log(-math.expm1(-self.epsilon))
        return math.log(2 * self.step - 1), outside

    @property
    def _log_height(self) -> float:
        """ln P(X = 0)."""
        return -float(np.logaddexp(*self._log_weights))

    @property
    def _log_centre(self) -> float:
        """ln P(abs X < step)."""
        return self._log_weights[0] + self._log_height

    @property
    def _log_outside(self) -> float:
        """ln P(abs X >= step)."""
        return self._log_weights[1] + self._log_height

    def log_mass(self, k: np.ndarray) -> np.ndarray:
        distance = np.abs(np.asarray(k, dtype=np.int64))
        return self._log_height - self.epsilon * ((distance + (self.period - self.step)) // self.period)

    def log_tail(self, m: int) -> float:
        if m <= 0:
            return 0.0
        if m < self.step:
            return self._log_height + math.log(2 * (self.step - m) + 2 * self.period * self._ratio)
        level, place = divmod(m - self.step, self.period)
        rest = (self.period - place) + self.period * self._ratio
        return self._log_height + math.log(2 * rest) - self.epsilon * (level + 1)

    def loss(self, shift: int) -> float:
        return self.epsilon * -(-shift // self.period) * (1 + 2.0**-50) + self.sampling_slack

    @property
    def sampling_slack(self) -> float:
        # The smaller of centre and outside is drawn with probability e^-x, x in doubles and then as a geometric
        # variable of rate x being at least 1; the error of the larger one is smaller still.
        x = -min(self._log_centre, self._log_outside)
        return self._level.slack + 2 * self._coin.slack + 2.0**-49 * (x + 1)

    def expectation(self, metric: Metric, granularity: float) -> float:
        height = math.exp(self._log_height)
        if isinstance(metric, Usefulness):
            return math.exp(self.log_tail(metric.steps(granularity) + 1))
        if isinstance(metric, PowerLoss) and metric.exponent == 1:
            return granularity * height * self._power_one()
        if isinstance(metric, PowerLoss) and metric.exponent == 2:
            return granularity**2 * height * self._power_two()

        def term(k: np.ndarray) -> np.ndarray:
            return metric.even_loss(granularity * k)

        def level(i: np.ndarray) -> np.ndarray:
            starts = self.step + self.period * i
            sums = block_sums(term, starts.ravel(), self.period).reshape(starts.shape)
            return np.exp(-self.epsilon * (i + 1)) * sums

        centre = float(term(np.zeros(1))[0]) + 2 * float(block_sums(term, np.ones(1), self.step - 1)[0])
        return height * (centre + 2 * tail_sum(level, 0, 50 / self.epsilon))

    def _power_one(self) -> float:
        """E|X| / P(X = 0): arithmetic sums over the levels, all terms positive."""
        d, r, ratio = float(self.period), float(self.step), self._ratio
        return r * (r - 1) + 2 * ratio * (d * d * ratio + d * r + d * (d - 1) / 2)

    def _power_two(self) -> float:
        """E X^2 / P(X = 0)."""
        d, r, ratio = float(self.period), float(self.step), self._ratio
        first, second = ratio, ratio * (1 + 2 * ratio)  # moments of the level, which is geometric
        squares = d * (d * d * second + 2 * d * r * first + r * r) + d * (d - 1) * (d * first + r)
        return (r - 1) * r * (2 * r - 1) / 3 + 2 * ratio * (squares + (d - 1) * d * (2 * d - 1) / 6)

    def _edge_loss(self, metric: Metric, granularity: float) -> float:
        """The mean loss of the integers that a step longer by one would lift."""
        if isinstance(metric, Usefulness):
            missing = max(0, metric.steps(granularity) + 1 - self.step)
            return math.exp(-self.epsilon * -(-missing // self.period))
        if isinstance(metric, PowerLoss) and metric.exponent in (1, 2):
            mean = self.step + self.period * self._ratio  # the levels are geometric: mean and variance in closed form
            variance = self.period**2 * self._ratio * (1 + self._ratio)
            return granularity * mean if metric.exponent == 1 else granularity**2 * (mean**2 + variance)

        def term(i: np.ndarray) -> np.ndarray:
            return np.exp(-self.epsilon * i) * metric.even_loss(granularity * (self.step + self.period * i))

        return -math.expm1(-self.epsilon) * tail_sum(term, 0, 50 / self.epsilon)

    def noise(self, bits: Bits) -> np.ndarray:
        likely_centre = self._log_centre >= self._log_outside
        rare = self._coin.magnitudes(bits, _COIN) > 0
        outside = rare if likely_centre else ~rare
        result = np.empty(bits.size, dtype=np.int64)
        rows = np.flatnonzero(~outside)
        result[rows] = uniform_below(bits, _PLACE, 2 * self.step - 1, rows) - (self.step - 1)
        rows = np.flatnonzero(outside)
        level = np.minimum(self._level.magnitudes(bits, _LEVEL, rows=rows), SATURATION // self.period)
        place = uniform_below(bits, _PLACE, 2 * self.period, rows)
        distance = level * self.period + self.step + place % self.period
        result[rows] = np.where(place < self.period, distance, -distance)
        return result


def best_step(epsilon: float, period: int, metric: Metric, granularity: float) -> int:
    """The step with the smallest expected loss.

    A step longer by one lifts certain integers by e^epsilon. While their mean loss is below the expected loss, the
    expected loss falls. For a loss that increases with the error that mean increases with the step, so the best step
    is found by bisection. Other losses are searched by trying steps.
    """

    def at(step: int) -> Staircase:
        return Staircase(epsilon, period, step)

    if metric.increasing:
        low, high = 1, period  # the best step is in [low, high]
        while low < high:
            middle = (low + high) // 2
            staircase = at(middle)
            if staircase._edge_loss(metric, granularity) >= staircase.expectation(metric, granularity):
                high = middle
            else:
                low = middle + 1
        return low
    steps = np.unique(np.linspace(1, period, period if period <= _ALL else _SOME).round().astype(np.int64)).tolist()
    losses = {step: at(step).expectation(metric, granularity) for step in steps}
    best = min(steps, key=losses.__getitem__)
    if period > _ALL:
        place = steps.index(best)
        between = (steps[max(place - 1, 0)], steps[min(place + 1, len(steps) - 1)])
        finer = minimize_scalar(
            lambda step: at(round(step)).expectation(metric, granularity),
            bounds=between,
            method="bounded",
            options={"xatol": period * 1e-7},
        )
        if finer.fun < losses[best]:
            best = round(finer.x)
    return int(best)
