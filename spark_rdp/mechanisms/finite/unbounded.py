"""Noise of the endless grid, ends outside the grid moved to its nearest cell: private at every epsilon."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import fft
from scipy.sparse.linalg import LinearOperator, gmres

from spark_rdp.errors import InvalidInput, JobFailed
from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.domains import MOST_POINTS
from spark_rdp.mechanisms.finite.grids import Grid
from spark_rdp.mechanisms.finite.operators import kernel_slack
from spark_rdp.mechanisms.finite.toeplitz import Toeplitz
from spark_rdp.mechanisms.finite.windows import Window, folded_kernel
from spark_rdp.randomness import Bits

_UNIT = 2.0**-53
#: Offsets that are e^-this of the next are left out, and counted as loss.
_TAILS = 45.0
_LARGEST = 500.0


class UnboundedRemap(Finite):
    """An offset in proportion to exp(-epsilon length) over all offsets there are, and then the nearest cell.

    Moving ends into the grid is post-processing, and under the uniform prior the best one. On the endless grid this
    noise is the tight-constraints mechanism.

    Args:
        domain: A grid of one or two axes.
        epsilon: Per unit of distance.

    Raises:
        InvalidInput: The noise is so much wider, or so much narrower, than the grid that a table cannot hold it.
    """

    name: ClassVar[str] = "unbounded-remap"

    def __init__(self, domain: Grid, epsilon: float) -> None:
        if epsilon * domain.largest > _LARGEST:
            raise InvalidInput("mechanism unbounded-remap needs a smaller epsilon: tight-constraints exists here.")
        self.domain, self.epsilon = domain, epsilon
        self._weights, self._sums = folded_kernel(domain, epsilon, _TAILS)
        self._window = Window(self._weights)
        self._grid = domain

    def parameters(self) -> dict[str, Any]:
        return {"domain": self.domain.spec(), "epsilon": self.epsilon}

    @cached_property
    def _edges(self) -> np.ndarray:
        """Probability of an end, by the sides it is at and the offset."""
        return self._window.edge_weights(self._weights) / self._window.total

    def loss(self) -> float:
        # The distances that count lie on the grid and as far beyond as the tails go.
        folded = _UNIT * (self._sums + 6 * _TAILS + 2 * sum(self._grid.shape)) + 2 * np.exp(-_TAILS) / self.epsilon
        slack = kernel_slack(self._grid, self.epsilon) + float(folded)
        return self.epsilon + 2 * slack / self._grid.smallest

    def row(self, cell: int) -> np.ndarray:
        place = np.unravel_index(cell, self._grid.shape)
        offsets = np.ix_(*(np.abs(np.arange(n) - at) for n, at in zip(self._grid.shape, place, strict=True)))
        return np.asarray(self._edges[(self._window.sides.reshape(self._grid.shape), *offsets)].reshape(-1))

    def diagonal(self) -> np.ndarray:
        return np.asarray(self._edges.reshape(len(self._edges), -1)[:, 0][self._window.sides])

    @cached_property
    def _spectra(self) -> list[np.ndarray]:
        spectra = []
        for table in self._edges:
            for axis, (n, size) in enumerate(zip(self._grid.shape, self._sizes, strict=True)):
                places = np.minimum(np.arange(size), size - np.arange(size))
                kept = np.take(table, np.minimum(places, n - 1), axis=axis)
                table = kept * (places < n).reshape(-1, *([1] * (kept.ndim - 1 - axis)))
            spectra.append(fft.rfftn(table).real)
        return spectra

    @cached_property
    def _sizes(self) -> list[int]:
        return [1 if n == 1 else fft.next_fast_len(2 * n, real=True) for n in self._grid.shape]

    def _waves(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(fft.rfftn(x.reshape(self._grid.shape), s=self._sizes))

    def _back(self, waves: np.ndarray) -> np.ndarray:
        whole = fft.irfftn(waves, s=self._sizes)
        return np.asarray(whole[tuple(slice(0, n) for n in self._grid.shape)].reshape(-1))

    @cached_property
    def _places(self) -> list[np.ndarray]:
        """Which cells lie at which sides."""
        return [np.flatnonzero(self._window.sides == side) for side in range(len(self._edges))]

    def forward(self, inputs: np.ndarray) -> np.ndarray:
        waves, result = self._waves(inputs), np.zeros(self._grid.size)
        for at, spectrum in zip(self._places, self._spectra, strict=True):
            if len(at):
                result[at] = self._back(waves * spectrum)[at]
        return result

    def backward(self, outputs: np.ndarray) -> np.ndarray:
        total: np.ndarray | float = 0.0
        for at, spectrum in zip(self._places, self._spectra, strict=True):
            if len(at):
                part = np.zeros(self._grid.size)
                part[at] = outputs[at]
                total = total + self._waves(part) * spectrum
        return self._back(np.asarray(total))

    @cached_property
    def _nearly(self) -> Toeplitz:
        return Toeplitz(self._grid, self.epsilon)

    def invert(self, outputs: np.ndarray) -> np.ndarray:
        size = self._grid.size
        operator = LinearOperator((size, size), matvec=self.forward, dtype=np.float64)
        nearly = None
        if self._nearly.invertible:
            nearly = LinearOperator((size, size), matvec=self._nearly.approximate_solve, dtype=np.float64)
        found, failed = gmres(operator, outputs, rtol=1e-10, restart=80, maxiter=20, M=nearly)
        if failed:
            raise JobFailed(
                "The counts cannot be de-biased to the last digits at this epsilon. Use maximum likelihood."
            )
        return np.asarray(found)

    def inverse_spread(self, outputs: np.ndarray) -> np.ndarray:
        """As `Finite.inverse_spread`; on a large grid, that of a grid without a border."""
        if self._grid.size <= MOST_POINTS or not self._nearly.invertible:
            return super().inverse_spread(outputs)
        return self._nearly.inverse_spread(outputs) * self._window.total**2

    def draw(self, cells: np.ndarray, bits: Bits, rows: np.ndarray) -> np.ndarray:
        return self._window.draw(cells, bits, rows)
