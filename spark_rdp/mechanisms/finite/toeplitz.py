"""Phi of a regular grid, with memory for a few vectors: products by FFT, solutions by conjugate gradients.

Phi is block-Toeplitz: a corner of a block-circulant matrix C that the FFT makes diagonal. Where every eigenvalue of C
is positive, so is the smallest of Phi (interlacing), which bounds the error of a solution by its residual; and
the corner of C^-1 is a good preconditioner.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import fft

from spark_rdp.mechanisms.finite.grids import Grid
from spark_rdp.mechanisms.finite.operators import Operator, Solution, decay

_UNIT = 2.0**-53
#: How much larger than the smallest circulant it may be, tried in this order until all eigenvalues are positive.
_PADDINGS = (1, 2)
_MOST_CIRCULANT = 2**22
_ROUNDS, _STEPS = 4, 400


class Toeplitz(Operator):
    """Phi of a grid.

    Attributes:
        invertible: Whether Phi is known to be positive definite; `solve` needs it.
    """

    def __init__(self, domain: Grid, epsilon: float) -> None:
        self.domain, self.epsilon = domain, epsilon
        self._grid = domain
        self.shape = domain.shape
        self._axes = tuple(range(len(self.shape)))
        self._corner = tuple(slice(0, n) for n in self.shape)
        for padding in _PADDINGS:
            sizes = [1 if n == 1 else fft.next_fast_len(2 * n * padding, real=True) for n in self.shape]
            if padding > 1 and math.prod(sizes) > _MOST_CIRCULANT:
                break
            self._sizes = sizes
            self._spectrum = self._eigenvalues(sizes)
            slack = 8 * _UNIT * math.log2(math.prod(sizes)) * float(self._spectrum.max())
            self.lowest = float(self._spectrum.min()) - slack
            if self.lowest > 0:
                break

    def _eigenvalues(self, sizes: list[int]) -> np.ndarray:
        quadrant = [np.arange(size // 2 + 1, dtype=np.float64) for size in sizes]
        values = decay(self.epsilon * self._grid.length(*np.ix_(*quadrant)))
        for axis, size in enumerate(sizes):
            places = np.arange(size)
            values = np.take(values, np.minimum(places, size - places), axis=axis)
        return np.ascontiguousarray(fft.rfftn(values, overwrite_x=True).real)

    @property
    def invertible(self) -> bool:
        return self.lowest > 0

    def _through(self, x: np.ndarray, spectrum: np.ndarray) -> np.ndarray:
        """Multiply by the corner of the circulant matrix of a spectrum."""
        waves = fft.rfftn(x.reshape(self.shape), s=self._sizes, axes=self._axes)
        waves *= spectrum
        whole = fft.irfftn(waves, s=self._sizes, axes=self._axes, overwrite_x=True)
        return np.ascontiguousarray(whole[self._corner]).reshape(-1)

    def product(self, x: np.ndarray) -> np.ndarray:
        return self._through(x, self._spectrum)

    def approximate_solve(self, b: np.ndarray) -> np.ndarray:
        """The corner of C^-1 times b: a symmetric positive definite stand-in for Phi^-1."""
        return self._through(b, 1 / self._spectrum)

    def inverse_spread(self, x: np.ndarray) -> np.ndarray:
        """``sum_k C^-1[j, k]^2 x[k]``: what `approximate_solve` makes of independent variances x."""
        kernel = fft.irfftn(1 / self._spectrum, s=self._sizes)
        return self._through(x, fft.rfftn(kernel * kernel).real)

    def rounding(self, x: np.ndarray) -> float:
        # Three transforms, each within a small multiple of log2(size) roundings in the Euclidean norm.
        steps = 8 * math.log2(math.prod(self._sizes))
        return _UNIT * steps * float(self._spectrum.max()) * float(np.linalg.norm(x))

    def solve(self, b: np.ndarray) -> Solution:
        if not self.invertible:
            return Solution(np.full(len(b), np.nan), np.inf, np.inf)
        x, r = np.zeros(len(b)), b.astype(np.float64)
        best = np.inf
        for _ in range(_ROUNDS):  # each round solves for what rounding left over in the one before
            x = x + self._conjugate_gradients(r)
            r = b - self.product(x)
            size = float(np.abs(r).max())
            if size > best / 4 or size <= 4 * _UNIT * float(np.abs(b).max()):
                break
            best = size
        rounding = self.rounding(x)
        length = float(np.linalg.norm(r)) + rounding * math.sqrt(len(b))
        return Solution(x, float(np.abs(r).max()) + rounding, length / self.lowest)

    def _conjugate_gradients(self, b: np.ndarray) -> np.ndarray:
        x, r = np.zeros(len(b)), b.copy()
        target = 1e-13 * float(np.linalg.norm(b))
        way: np.ndarray | None = None
        before = 1.0
        for _ in range(_STEPS):
            if not float(np.linalg.norm(r)) > target:
                break
            s = self.approximate_solve(r)
            weight = float(r @ s)
            way = s if way is None else s + (weight / before) * way
            image = self.product(way)
            step = weight / float(way @ image)
            x += step * way
            r -= step * image
            before = weight
        return x
