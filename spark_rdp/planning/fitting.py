"""Choose the window and the outputs of the fitted mechanism (`mechanisms.fitted`) for one measure of variance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import minimize

#: Cells of the rough and of the final fit.
COARSE, FINE = 64, 256
#: How sharply the smooth maximum singles out the worst input, one pass after the other.
_SHARPNESS = (100.0, 1000.0, 5000.0)


@dataclass(frozen=True)
class Goal:
    """Which inputs matter, for the range [-1/2, 1/2].

    Attributes:
        points, weights: The average of the variance over these inputs is minimised; weights sum to 1.
        worst: Minimise the largest variance over all inputs instead.
    """

    points: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    worst: bool = False

    @property
    def symmetric(self) -> bool:
        """Whether mirrored inputs matter alike."""
        if self.worst:
            return True
        points, weights = np.array(self.points), np.array(self.weights)
        return bool(np.allclose(points, -points[::-1]) and np.allclose(weights, weights[::-1]))


@dataclass(frozen=True)
class Shape:
    """Outputs of the cells for the range [-1/2, 1/2], and the variance they reach."""

    step: int
    levels: np.ndarray
    value: float


class _Objective:
    """The variance as a function of the increments of the outputs, with its gradient.

    Outputs are the increments summed up, then shifted and scaled so that the mean output runs from -1/2 to 1/2.
    """

    def __init__(self, epsilon: float, cells: int, step: int, goal: Goal) -> None:
        share = step / cells
        gain = math.expm1(epsilon)
        self.weight = share * gain / (1 + share * gain)
        self.cells, self.step, self.goal = cells, step, goal
        self.points, self.weights = np.array(goal.points), np.array(goal.weights)
        self.sharpness = 0.0

    def _means(self, of_cells: np.ndarray) -> np.ndarray:
        """The mean of a function of the output for each start of the window."""
        sums = np.concatenate([[0.0], np.cumsum(of_cells)])
        inside = (sums[self.step :] - sums[: -self.step]) / self.step
        return self.weight * inside + (1 - self.weight) * sums[-1] / self.cells

    def _back(self, of_starts: np.ndarray) -> np.ndarray:
        """The adjoint of `_means`."""
        ends = np.zeros(self.cells + 1)
        ends[self.step :] += of_starts
        ends[: -self.step] -= of_starts
        inside = np.cumsum(ends[::-1])[::-1][1:] * self.weight / self.step
        return inside + (1 - self.weight) / self.cells * of_starts.sum()

    def levels(self, increments: np.ndarray) -> np.ndarray:
        raw = self._raw(increments)
        means = self._means(raw)
        return (raw - means[0]) / (means[-1] - means[0]) - 0.5

    def _raw(self, increments: np.ndarray) -> np.ndarray:
        full = np.concatenate([increments[:0:-1], increments]) if self.goal.symmetric else increments
        raw = np.concatenate([[0.0], np.cumsum(full)])
        return raw - raw[-1] / 2

    def __call__(self, increments: np.ndarray) -> tuple[float, np.ndarray]:
        raw = self._raw(increments)
        raw_means = self._means(raw)
        span = raw_means[-1] - raw_means[0]
        level = (raw - raw_means[0]) / span - 0.5
        x = (raw_means - raw_means[0]) / span - 0.5
        second = self._means(level**2)
        value, by_second, by_x = (self._worst if self.goal.worst else self._average)(x, second)
        by_level = self._back(by_second) * 2 * level
        # level = (raw - first) / span - 1/2 and x alike, where first and span are means of raw themselves
        by_span = -(by_level @ (level + 0.5) + by_x @ (x + 0.5)) / span
        by_first = -(by_level.sum() + by_x.sum()) / span
        ends = by_x / span
        ends[0] += by_first - by_span
        ends[-1] += by_span
        by_raw = by_level / span + self._back(ends)
        by_full = np.cumsum(by_raw[::-1])[::-1][1:]  # the shift of raw does not matter
        if not self.goal.symmetric:
            return value, by_full
        half = len(by_full) // 2
        gradient = by_full[half:].copy()
        gradient[1:] += by_full[:half][::-1]
        return value, gradient

    def _average(self, x: np.ndarray, second: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """The second moment between two places of the window is linear in the input."""
        place = np.clip(np.searchsorted(x, self.points, side="right") - 1, 0, len(x) - 2)
        gap = np.maximum(x[place + 1] - x[place], 1e-300)
        part = (self.points - x[place]) / gap
        slope = (second[place + 1] - second[place]) / gap
        value = self.weights @ (second[place] + part * (second[place + 1] - second[place]) - self.points**2)
        size = len(x)
        low, high = self.weights * (1 - part), self.weights * part
        by_second = np.bincount(place, low, size) + np.bincount(place + 1, high, size)
        by_x = -np.bincount(place, low * slope, size) - np.bincount(place + 1, high * slope, size)
        return float(value), by_second, by_x

    def _worst(self, x: np.ndarray, second: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """A smooth maximum of the variance over the places of the window."""
        variance = second - x**2
        most = variance.max()
        terms = np.exp(self.sharpness * (variance - most))
        weights = terms / terms.sum()
        return float(most + math.log(terms.sum()) / self.sharpness), weights, -2 * x * weights

    def exact(self, increments: np.ndarray) -> float:
        """The measure itself."""
        level = self.levels(increments)
        x, second = self._means(level), self._means(level**2)
        if not self.goal.worst:
            return self._average(x, second)[0]
        gap = np.diff(x)
        peak = np.clip((second[1:] - second[:-1]) / (2 * np.maximum(gap, 1e-300)), x[:-1], x[1:])  # of a parabola
        part = (peak - x[:-1]) / np.maximum(gap, 1e-300)
        between = second[:-1] + part * (second[1:] - second[:-1]) - peak**2
        return float(max(between.max(), (second - x**2).max()))


def _solve(epsilon: float, cells: int, step: int, goal: Goal, start: np.ndarray) -> tuple[float, np.ndarray]:
    """Optimal increments for one width of the window, from a starting point."""
    objective = _Objective(epsilon, cells, step, goal)
    increments = start
    for sharpness in _SHARPNESS if goal.worst else (1.0,):
        if goal.worst:
            objective.sharpness = sharpness / objective.exact(increments)
        bounds = [(0.0, None)] * len(increments)
        options = {"maxfun": 400, "ftol": 1e-9}
        scale = objective.exact(increments)

        def scaled(d: np.ndarray, scale: float = scale) -> tuple[float, np.ndarray]:
            value, gradient = objective(d)
            return value / scale, gradient / scale

        found = minimize(scaled, increments, jac=True, method="TNC", bounds=bounds, options=options)
        increments = found.x * (len(found.x) / found.x.sum())
    return objective.exact(increments), increments


def _refined(increments: np.ndarray, symmetric: bool, cells: int) -> np.ndarray:
    """A starting point with more cells from a solution with fewer: the same outputs, interpolated."""
    full = np.concatenate([increments[:0:-1], increments]) if symmetric else increments
    raw = np.concatenate([[0.0], np.cumsum(full)])
    old, new = ((np.arange(n) + 0.5) / n for n in (len(raw), cells))
    finer = np.maximum(np.diff(np.interp(new, old, raw)), 1e-6)
    return finer[len(finer) // 2 :] if symmetric else finer


def _search(low: int, high: int, value: Callable[[int], float]) -> int:
    """The place of the minimum of a function with one valley."""
    while high - low > 3:
        first = low + (high - low) // 3
        second = high - (high - low) // 3
        if value(first) <= value(second):
            high = second
        else:
            low = first
    return min(range(low, high + 1), key=value)


@lru_cache(maxsize=256)
def fit_shape(epsilon: float, goal: Goal) -> Shape:
    """The best window mechanism found for a goal; a few seconds.

    Args:
        epsilon: The budget; between 1e-6 and about 10, above which steps get narrower than a cell.
        goal: What to minimise.
    """
    symmetric = goal.symmetric
    size = COARSE // 2 if symmetric else COARSE - 1
    rough: dict[int, tuple[float, np.ndarray]] = {}

    def try_rough(step: int) -> float:
        if step not in rough:
            nearest = min(rough, key=lambda other: abs(other - step), default=None)
            start = np.ones(size) if nearest is None else np.maximum(rough[nearest][1], 1e-3)
            rough[step] = _solve(epsilon, COARSE, step, goal, start)
        return rough[step][0]

    best = _search(1, COARSE // 2, try_rough)
    start = _refined(rough[best][1], symmetric, FINE)
    ratio = FINE // COARSE
    fine: dict[int, tuple[float, np.ndarray]] = {}

    def try_fine(step: int) -> float:
        if step not in fine:
            fine[step] = _solve(epsilon, FINE, step, goal, start)
        return fine[step][0]

    step = _search(max(1, ratio * (best - 1) + 1), min(FINE // 2, ratio * (best + 1) - 1), try_fine)
    value, increments = fine[step]
    return Shape(step, _Objective(epsilon, FINE, step, goal).levels(increments), value)
