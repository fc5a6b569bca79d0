"""Phi of a grid whose distance is a sum over its axes: linear recursions along each axis, and a closed inverse."""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

from spark_rdp.mechanisms.finite.grids import Grid
from spark_rdp.mechanisms.finite.operators import FARTHEST, Operator, Solution

_UNIT = 2.0**-53


def line_unit(size: int, rate: float) -> np.ndarray:
    """z of a line: the truncated geometric, 1/(1 + q) at the two ends and (1 - q)/(1 + q) between, q = e^-rate."""
    if size == 1:
        return np.ones(1)
    q = np.exp(-rate)
    z = np.full(size, -np.expm1(-rate) / (1 + q))
    z[[0, -1]] = 1 / (1 + q)
    return z


class Lines(Operator):
    """Phi as a product of e^(-rate abs(i - j)) over the axes, whose inverses have three diagonals."""

    def __init__(self, domain: Grid, epsilon: float) -> None:
        self.domain, self.epsilon = domain, epsilon
        self.shape = domain.shape
        self._rates = [min(epsilon * rate, FARTHEST) for rate in domain.axis_rates]

    def product(self, x: np.ndarray) -> np.ndarray:
        table = x.reshape(self.shape)
        for axis, rate in enumerate(self._rates):
            step = [1.0, -np.exp(-rate)]
            up = lfilter([1.0], step, table, axis=axis)
            down = np.flip(lfilter([1.0], step, np.flip(table, axis), axis=axis), axis)
            table = up + (down - table)
        return np.asarray(table.reshape(-1))

    def rounding(self, x: np.ndarray) -> float:
        steps = sum(4 * min(n, 2 + 40 / rate) for n, rate in zip(self.shape, self._rates, strict=True))
        return _UNIT * steps * float(self.product(np.abs(x)).max())

    def solve(self, b: np.ndarray) -> Solution:
        table, norm = b.reshape(self.shape), 1.0
        for axis, rate in enumerate(self._rates):
            if self.shape[axis] == 1:
                continue
            q, rest = np.exp(-rate), -np.expm1(-rate)
            table = np.moveaxis(table, axis, 0)
            slopes = np.diff(table, axis=0)
            inside = np.zeros_like(table)
            inside[0], inside[-1] = -slopes[0], slopes[-1]
            inside[1:-1] = slopes[:-1] - slopes[1:]
            ends = np.full(len(table), rest * rest)
            ends[[0, -1]] = rest
            weights = ends.reshape(-1, *([1] * (table.ndim - 1)))
            table = np.moveaxis((weights * table + q * inside) / (rest * (1 + q)), 0, axis)
            norm *= (1 + q) / rest
        x = np.ascontiguousarray(table).reshape(-1)
        residual = float(np.abs(self.product(x) - b).max()) + self.rounding(x)
        return Solution(x, residual, norm * residual)

    def unit(self) -> Solution:
        z = np.ones(1)
        for size, rate in zip(self.shape, self._rates, strict=True):
            z = np.multiply.outer(z, line_unit(size, rate))
        return self.exact_unit(z.reshape(-1))
