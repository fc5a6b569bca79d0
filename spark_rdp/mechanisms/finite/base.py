"""What every mechanism on a finite domain offers: a cell in, a cell out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from spark_rdp.mechanisms.finite.domains import MOST_POINTS, Domain
from spark_rdp.mechanisms.local import BLOCK
from spark_rdp.randomness import Bits, KeyedBits

_PROBES = 128


class Finite(ABC):
    """A row-stochastic matrix H on the cells of a domain: ``H[y, z]`` is the probability of z when the input is y.

    Attributes:
        domain: The cells and their distances.
        epsilon: ``H[y, z] <= exp(epsilon * d(y, z')) H[z', z]`` before rounding; `loss` is what is really lost.
    """

    name: ClassVar[str]
    domain: Domain
    epsilon: float

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """What, with `name`, rebuilds the mechanism; JSON-able and exact."""

    @abstractmethod
    def loss(self) -> float:
        """The most that ln of a ratio of two sampled probabilities is, per unit of distance: the epsilon spent."""

    @abstractmethod
    def row(self, cell: int) -> np.ndarray:
        """Probabilities of all outputs for one input, shape (n,)."""

    @abstractmethod
    def diagonal(self) -> np.ndarray:
        """Probability of the right answer for each input, shape (n,)."""

    @abstractmethod
    def forward(self, inputs: np.ndarray) -> np.ndarray:
        """``H^T inputs``: expected counts of the outputs for counts of the inputs, shape (n,)."""

    @abstractmethod
    def backward(self, outputs: np.ndarray) -> np.ndarray:
        """``H outputs``: for each input, the expectation of a number that belongs to the output, shape (n,)."""

    @abstractmethod
    def invert(self, outputs: np.ndarray) -> np.ndarray:
        """``H^-T outputs``: unbiased estimates of the counts of the inputs from counts of the outputs."""

    @abstractmethod
    def draw(self, cells: np.ndarray, bits: Bits, rows: np.ndarray) -> np.ndarray:
        """One output for each of ``cells``, from the random words of ``rows``."""

    def inverse_spread(self, outputs: np.ndarray) -> np.ndarray:
        """``sum_z M[y, z]^2 outputs[z]`` for the M of `invert`: what the variances of estimates are made of.

        On a domain of more than MOST_POINTS cells it is estimated with random signs, to about 10 % of each.
        """
        if self.domain.size <= MOST_POINTS:
            inverse = np.linalg.inv(self.matrix().T)
            return np.asarray((inverse * inverse) @ outputs)
        roots, spread = np.sqrt(outputs), np.zeros(self.domain.size)
        for signs in _signs(self.domain.size):
            spread += self.invert(signs * roots) ** 2 / _PROBES
        return spread

    def utility(self, prior: np.ndarray | None = None) -> float:
        """Probability of a right answer under a prior (the uniform one when absent)."""
        diagonal = self.diagonal()
        return float(diagonal.mean() if prior is None else diagonal @ prior)

    def matrix(self) -> np.ndarray:
        """All of H, shape (n, n)."""
        return np.stack([self.row(cell) for cell in range(self.domain.size)])

    def release(self, cells: np.ndarray, bits: Bits) -> np.ndarray:
        """Noised cells.

        Args:
            cells: int64 of shape (n,), each a cell of the domain.
            bits: The bits of these n rows, keyed by the same cells.

        Returns:
            int64 of shape (n,).
        """
        inputs = np.asarray(cells, dtype=np.int64)
        if len(inputs) and not (inputs.min() >= 0 and inputs.max() < self.domain.size):
            raise ValueError("a cell outside the domain")
        result = np.empty(len(inputs), dtype=np.int64)
        for start in range(0, len(inputs), BLOCK):  # short arrays stay in the cache
            block = inputs[start : start + BLOCK]
            result[start : start + BLOCK] = self.draw(block, bits, np.arange(start, start + len(block)))
        return result


def _signs(size: int) -> np.ndarray:
    """Signs, the same at every call, shape (_PROBES, size)."""
    digests = np.zeros((size, 2), dtype=np.uint64)
    digests[:, 0] = np.arange(size)
    words = KeyedBits(bytes(32), digests.view(np.uint8), np.zeros(size, dtype=np.int64)).words(0, _PROBES // 64)
    flips = np.unpackbits(words.view(np.uint8), axis=1)
    return np.where(flips.T > 0, 1.0, -1.0)
