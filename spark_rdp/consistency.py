"""Noised numbers brought back to what is known of the exact ones. Post-processing: no data, no budget."""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from spark_rdp.mechanisms.base import Additive
from spark_rdp.metrics import L2

#: Cells a half-axis is cut into when the difference of two noises is looked at.
_CELLS = 2**11


def nonincreasing(values: np.ndarray, lower: float, upper: float) -> np.ndarray:
    """The whole numbers nearest to the closest sequence that does not increase and keeps within the bounds.

    Isotonic regression never moves away from a sequence that does not increase: in every norm lp the error of the
    result before rounding is at most that of ``values``.

    Args:
        values: Noised numbers, shape (n,), of a sequence that does not increase.
        lower, upper: What the exact numbers lie between; infinite where nothing is known.

    Returns:
        int64, shape (n,), not increasing.

    Source: Hay, Rastogi, Miklau, Suciu 2010; Robertson, Wright, Dykstra 1988, theorem 1.6.1.
    """
    if len(values) == 0:
        return np.empty(0, dtype=np.int64)
    fitted = isotonic_regression(np.asarray(values, dtype=np.float64), increasing=False).x
    return np.rint(np.clip(fitted, lower, upper)).astype(np.int64)


def conjugate(numbers: np.ndarray, length: int) -> np.ndarray:
    """How many of ``numbers`` are at least i, for i = 1 .. length.

    Takes the numbers of nodes with at least 1, 2, ... edges to the degrees of the nodes, largest first, and back.

    Args:
        numbers: Whole numbers that do not increase.
    """
    return np.searchsorted(-np.asarray(numbers, dtype=np.int64), -np.arange(1, length + 1), side="right")


def difference_quantile(noise: Additive, level: float) -> int:
    """The half-width of an interval that holds the difference of two independent noises with this probability.

    Args:
        noise: The noise of both numbers; symmetric.
        level: Between 0 and 1.

    Returns:
        At least the smallest m with P(abs(X - Y) <= m) >= level; larger by less than 0.5 %.
    """
    rest = (1 - level) / 100
    reach = noise.quantile(1 - rest)  # what lies farther out counts as missed
    width = -(-(2 * reach + 1) // (2 * _CELLS + 1))
    half = -(-(2 * reach + 1 - width) // (2 * width))  # cells of `width` integers around a middle one
    starts = (np.arange(-half, half + 1) * width - (width - 1) // 2).tolist()
    upper = np.array([_above(noise, start) for start in [*starts, starts[-1] + width]])
    mass = upper[:-1] - upper[1:]
    both = np.convolve(mass, mass)
    middle = len(both) // 2
    inside = both[middle] + 2 * np.cumsum(both[middle + 1 :])
    cell = int(np.searchsorted(inside, level)) + 1 if both[middle] < level else 0
    return (cell + 1) * width - 1


def _above(noise: Additive, start: int) -> float:
    """P(X >= start) for symmetric noise."""
    if start > 0:
        return float(np.exp(noise.log_tail(start)) / 2)
    return 1.0 - float(np.exp(noise.log_tail(1 - start)) / 2)


def combined_reach(noise: Additive, squares: np.ndarray, level: float) -> np.ndarray:
    """Half-widths of intervals for weighted sums of independent noises.

    A sum of many noises is nearly normal, a sum that one of them dominates is like that one; of the two quantiles, in
    standard deviations, the larger is taken.

    Args:
        noise: The noise of each number.
        squares: For every sum, the sum of the squares of the weights.
        level: How often the interval covers.
    """
    deviation = float(np.sqrt(noise.expectation(L2(), 1.0)))
    normal = float(ndtri((1 + level) / 2)) * deviation
    return np.sqrt(np.asarray(squares, dtype=np.float64)) * max(normal, float(noise.quantile(level)))
