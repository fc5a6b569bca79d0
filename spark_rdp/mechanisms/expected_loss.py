"""The expected loss of a noise as a function of its inverse scale: what a second fold averages."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline

from spark_rdp.metrics import Metric, PowerLoss, Usefulness
from spark_rdp.series import gauss_rule

#: E[loss] for each inverse scale in an array.
Objective = Callable[[np.ndarray], np.ndarray]

_TOLERANCE = 1e-11
#: A noise of rate u has e^-64 of its mass beyond 64/u; sums go 2.5 times as far where there are nodes.
_REACH = 64.0
#: Below this rate the two-sided geometric is Laplace noise to 14 digits.
_CONTINUOUS = 1e-8
#: An expected loss is cut here, so that high powers of wide noise do not overflow.
_LARGEST = 1e300
#: Largest table (rates x nodes) computed at once.
_CHUNK = 2**15


def laplace_objective(metric: PowerLoss | Usefulness) -> Objective:
    """E[metric.loss(X)] for continuous Laplace noise of inverse scale u, in the unit of the value.

    Source: mathematics, section 1, table of utility metrics.
    """
    if isinstance(metric, Usefulness):
        gamma = metric.gamma
        return lambda u: np.exp(-gamma * np.asarray(u, dtype=np.float64))
    p = metric.exponent
    factor = math.gamma(p + 1)
    return lambda u: factor * np.asarray(u, dtype=np.float64) ** -p


@lru_cache(maxsize=16)
def lattice_objective(metric: Metric, granularity: float) -> Objective:
    """E[metric.loss(granularity * X)] for P(X = k) = tanh(u/2) e^(-u abs k).

    Args:
        metric: Any metric; closed forms for l1, l2 and usefulness, else sums over a fixed set of nodes.
        granularity: The lattice unit, in the unit of the value.
    """
    if isinstance(metric, PowerLoss) and metric.exponent == 1:
        return lambda u: granularity * 2 * np.exp(-u) / -np.expm1(-2 * np.asarray(u))
    if isinstance(metric, PowerLoss) and metric.exponent == 2:
        return lambda u: granularity**2 * 2 * np.exp(-u) / np.expm1(-np.asarray(u)) ** 2
    if isinstance(metric, Usefulness):
        steps = float(metric.steps(granularity)) + 1
        return lambda u: 2 * np.exp(-steps * np.asarray(u)) / (1 + np.exp(-np.asarray(u)))
    return _Summed(metric, granularity)


class _Summed:
    """Sums over all integers, from losses evaluated once at fixed nodes.

    Each octave of integers is summed by the Gauss rule of its counting measure; it is halved where the loss is not
    smooth enough, down to single integers. Octaves are added when a rate needs them.
    """

    def __init__(self, metric: Metric, granularity: float) -> None:
        self._metric, self._granularity = metric, granularity
        self._power = metric.exponent if isinstance(metric, PowerLoss) else None
        self._centre = float(metric.even_loss(np.zeros(1))[0])
        self._octaves = 6
        self._places, self._values = np.empty(0), np.empty(0)
        self._add([(1, 63)])

    def _extend(self, smallest: float) -> None:
        """Have nodes as far as the noise of the smallest rate reaches."""
        needed = math.ceil(math.log2(_REACH / smallest))
        # an octave in two halves, so that the exponential varies by at most e^32 within a block
        fresh = range(self._octaves, needed)
        self._add([(start, 2 ** (j - 1)) for j in fresh for start in (3 * 2 ** (j - 1), 2**j)])
        self._octaves = max(self._octaves, needed)

    def _add(self, stack: list[tuple[int, int]]) -> None:
        places, values = [self._places], [self._values]
        while stack:
            start, length = stack.pop()
            nodes, weights = gauss_rule(length)
            k = start + nodes
            losses = self._metric.even_loss(self._granularity * k)
            if length > 64 and not self._smooth(start, length, losses):
                half = length // 2
                stack += [(start, half), (start + half, length - half)]
                continue
            places.append(k)
            values.append(weights * losses)
        order = np.argsort(np.concatenate(places))
        self._places = np.concatenate(places)[order]
        self._values = np.concatenate(values)[order]

    def _smooth(self, start: int, length: int, losses: np.ndarray) -> bool:
        """Whether the rule sums a block as exactly as two rules over its halves do, under two weights."""
        half = length // 2
        nodes, weights = gauss_rule(length)
        (first_nodes, first_weights), (second_nodes, second_weights) = gauss_rule(half), gauss_rule(length - half)
        halves = np.concatenate([first_nodes, half + second_nodes])
        half_weights = np.concatenate([first_weights, second_weights])
        half_losses = self._metric.even_loss(self._granularity * (start + halves))
        for decay in (0.0, 3.0 / length):
            whole = float(weights @ (losses * np.exp(-decay * nodes)))
            finer = float(half_weights @ (half_losses * np.exp(-decay * halves)))
            size = float(half_weights @ (np.abs(half_losses) * np.exp(-decay * halves)))
            if not abs(whole - finer) <= _TOLERANCE * size:
                return False
        return True

    def __call__(self, u: np.ndarray) -> np.ndarray:
        rates = np.asarray(u, dtype=np.float64).ravel()
        result = np.empty(len(rates))
        wide = rates < _CONTINUOUS if self._power is not None else np.zeros(len(rates), dtype=bool)
        if np.any(wide) and self._power is not None:
            logs = math.lgamma(self._power + 1) + self._power * (math.log(self._granularity) - np.log(rates[wide]))
            result[wide] = np.exp(np.minimum(logs, math.log(_LARGEST)))
        if not np.all(wide):
            result[~wide] = np.tanh(rates[~wide] / 2) * (self._centre + 2 * self._sums(rates[~wide]))
        return result.reshape(np.shape(u))

    def _sums(self, rates: np.ndarray) -> np.ndarray:
        self._extend(float(rates.min()))
        result = np.empty(len(rates))
        order = np.argsort(rates)[::-1]  # the largest rates need the fewest nodes
        start = 0
        while start < len(order):
            size = 1
            nodes = self._reached(rates[order[start]])
            while start + 2 * size <= len(order) and 2 * size * nodes <= _CHUNK:
                size *= 2
                nodes = self._reached(rates[order[start + size - 1]])
            chosen = order[start : start + size]
            nodes = self._reached(rates[chosen[-1]])
            result[chosen] = np.exp(-np.outer(rates[chosen], self._places[:nodes])) @ self._values[:nodes]
            start += size
        return result

    def _reached(self, rate: float) -> int:
        """How many nodes the noise of a rate reaches, with room for losses that grow."""
        return int(np.searchsorted(self._places, 2.5 * _REACH / rate)) + 1


def tabulated(objective: Objective, low: float, high: float) -> Objective:
    """A cubic interpolation of an objective in ln u between two inverse scales: for searches that ask often."""
    logs = np.arange(math.log(low), math.log(high) + 0.04, 0.04)
    values = objective(np.exp(logs))
    positive = bool(np.all(values > 0))
    spline = CubicSpline(logs, np.log(values) if positive else values)

    def interpolated(u: np.ndarray) -> np.ndarray:
        height = spline(np.clip(np.log(u), logs[0], logs[-1]))
        return np.exp(height) if positive else height

    return interpolated
