"""How little variance unbiased, locally private noise can have: a certified lower limit from a linear programme.

A mechanism on n inputs is a list of outputs y, each with a probability q at some inputs and e^epsilon q at the others:
every column of a private mechanism is a mixture of such two-level columns with the same output, so no mechanism is
lost. Mass and mean are linear constraints, the variance is linear in q. Columns are generated: for given dual prices
and a given y the best set of inputs is known at once, so that one pass over y finds what helps most, or proves a limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import linprog

#: Inputs of the programme, and outputs at which its dual is checked.
INPUTS, OUTPUTS = 21, 1201
#: The programme ends when its value and its lower limit are this close, relatively.
GAP = 1e-3
_ROUNDS = 150
_SMOOTHING = 0.7


@dataclass(frozen=True)
class Limit:
    """What the programme found, for a range of length 1.

    Attributes:
        lower: No mechanism has less.
        value: What the best mechanism of the programme has.
        variances: What that mechanism has at each input of the programme, from the lower end of the range to the upper;
            NaN at inputs without weight, which it does not care for.
    """

    lower: float
    value: float
    variances: tuple[float, ...]


class _Programme:
    """The columns so far, and the best mixture of them."""

    def __init__(self, epsilon: float, inputs: np.ndarray, weights: np.ndarray | None) -> None:
        self.gain = math.expm1(epsilon)
        self.x, self.weights = inputs, weights
        reach = 0.5 + 1 / self.gain  # the outputs of the two-point mechanism
        self.outputs = np.linspace(-2 * reach, 2 * reach, OUTPUTS)
        cuts = np.arange(len(inputs) + 1)
        above = np.arange(len(inputs)) >= cuts[:, None]
        starts = [(patterns, factor * reach) for patterns in (above, ~above) for factor in (-1.0, 0.0, 1.0, 1.3, -1.3)]
        self.patterns = np.concatenate([patterns for patterns, _ in starts])
        self.y = np.concatenate([np.full(len(patterns), y) for patterns, y in starts])

    def solve(self) -> tuple[float, np.ndarray, np.ndarray]:
        """The least variance with these columns, and at each input: prices of mass, mean, variance; the variance."""
        n = len(self.x)
        levels = 1 + self.gain * self.patterns
        equal = np.concatenate([levels, levels * self.y[:, None]], axis=1).T
        right = np.concatenate([np.ones(n), self.x])
        second = levels * (self.y**2)[:, None]
        if self.weights is not None:
            found = linprog(second @ self.weights, A_eq=equal, b_eq=right, method="highs")
            prices = np.concatenate([found.eqlin.marginals, self.weights])
            return found.fun - self.weights @ self.x**2, prices, found.x @ second - self.x**2
        cost = np.append(np.zeros(len(self.y)), 1.0)
        found = linprog(
            cost,
            A_ub=np.hstack([second.T, -np.ones((n, 1))]),
            b_ub=self.x**2,
            A_eq=np.hstack([equal, np.zeros((2 * n, 1))]),
            b_eq=right,
            bounds=[(0, None)] * len(self.y) + [(None, None)],
            method="highs",
        )
        prices = np.concatenate([found.eqlin.marginals, -found.ineqlin.marginals])
        return found.fun, prices, found.x[:-1] @ second - self.x**2

    def _parts(self, prices: np.ndarray, y: np.ndarray) -> np.ndarray:
        mass, mean, variance = np.split(prices, 3)
        return variance * y[:, None] ** 2 - mass - mean * y[:, None]

    def cost(self, prices: np.ndarray, patterns: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Reduced costs of columns."""
        return (self._parts(prices, y) * (1 + self.gain * patterns)).sum(axis=1)

    def lower(self, prices: np.ndarray) -> tuple[float, np.ndarray]:
        """A lower limit from any prices (those of the variance not negative), and the best set of inputs for each y.

        Prices of mass are lowered until no column has a negative reduced cost, in proportion to the columns' masses.
        """
        mass, mean, variance = np.split(prices, 3)
        parts = self._parts(prices, self.outputs)
        patterns = parts < 0
        cost = parts.sum(axis=1) + self.gain * np.where(patterns, parts, 0.0).sum(axis=1)
        size = len(self.x) + self.gain * patterns.sum(axis=1)
        excess = min(0.0, float((cost / size).min())) * len(self.x)
        return float(mass.sum() + mean @ self.x - variance @ self.x**2 + excess), patterns

    def add(self, prices: np.ndarray, patterns: np.ndarray) -> bool:
        """Add the columns of ``patterns`` that help at these prices, each with its best output."""
        kept, first = np.unique(patterns, axis=0, return_index=True)
        _, mean, variance = np.split(prices, 3)
        levels = 1 + self.gain * kept
        weight = levels @ variance
        y = np.where(weight > 1e-9, levels @ mean / np.maximum(2 * weight, 1e-12), self.outputs[first])
        y = np.clip(y, self.outputs[0], self.outputs[-1])
        helps = self.cost(prices, kept, y) < -1e-10
        self.patterns = np.concatenate([self.patterns, kept[helps]])
        self.y = np.concatenate([self.y, y[helps]])
        return bool(helps.any())


def programme(epsilon: float, inputs: np.ndarray, weights: np.ndarray | None) -> Limit:
    """The least average variance under ``weights``, or the least largest variance when they are absent."""
    columns = _Programme(epsilon, inputs, weights)
    best, centre, value, variances = -math.inf, None, math.inf, np.zeros(len(inputs))
    for _ in range(_ROUNDS):
        value, prices, variances = columns.solve()
        # Prices between the best so far and the newest keep the search from swinging; the newest ones keep it going.
        smooth = prices if centre is None else _SMOOTHING * centre + (1 - _SMOOTHING) * prices
        helped = False
        for tried in (smooth, prices):
            tried[2 * len(inputs) :] = np.maximum(tried[2 * len(inputs) :], 0.0)
            limit, patterns = columns.lower(tried)
            if limit > best:
                best, centre = limit, tried
            helped |= columns.add(prices, patterns)
        if value - best <= GAP * value or not helped:
            break
    if weights is not None:
        variances = np.where(weights > 0, variances, np.nan)
    return Limit(best, float(value), tuple(variances.tolist()))


@lru_cache(maxsize=64)
def variance_limit(epsilon: float, points: tuple[float, ...], weights: tuple[float, ...]) -> Limit:
    """The limit of the variance averaged over ``points``; of the largest variance when there are none.

    Args:
        epsilon: The budget.
        points, weights: As in `fitting.Goal`. Each point counts for the two nearest inputs of the programme.
    """
    inputs = np.linspace(-0.5, 0.5, INPUTS)
    if not points:
        return programme(epsilon, inputs, None)
    place = np.clip((np.array(points) + 0.5) * (INPUTS - 1), 0, INPUTS - 1)
    left = np.minimum(place.astype(int), INPUTS - 2)
    shares = np.bincount(left, np.array(weights) * (left + 1 - place), INPUTS)
    shares += np.bincount(left + 1, np.array(weights) * (place - left), INPUTS)
    return programme(epsilon, inputs, shares / shares.sum())
