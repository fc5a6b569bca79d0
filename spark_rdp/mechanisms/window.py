"""Mechanisms that favour a window of cells: its place depends on the input, its width and what cells mean do not."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction

import numpy as np

from spark_rdp.mechanisms.exact import exp_below, log_ratio
from spark_rdp.mechanisms.local import Local
from spark_rdp.randomness import LANES, Bits

WORD = 2**64
#: Cells are drawn with 32 random bits and rejection, window places with 32 bits beside a place below 2**30.
MOST_CELLS = 2**30
_SCALE = 2.0**32
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)


def window_threshold(epsilon: float, cells: int, step: int) -> int:
    """The largest threshold with which the cells of a window are at most e^epsilon times as likely as the others."""
    gain = step * (exp_below(epsilon) - 1)
    return int(WORD * gain / (cells + gain))


class Window(Local):
    """Draw a cell from a window of ``step`` cells with probability ``threshold / 2**64``, else from all ``cells``.

    The window starts at cell floor(place(x) + U), U uniform in [0, 1): randomised rounding, which keeps the mean. In
    units of 2**-64, a cell inside the window has probability threshold/step + (2**64 - threshold)/cells, one outside
    the second term only, wherever the window lies: the ratio of the two is the loss, in whole numbers.

    Attributes:
        cells: How many cells, at most 2**30.
        step: How many of them the window covers.
        threshold: Out of 2**64.
    """

    cells: int
    step: int
    threshold: int

    @abstractmethod
    def place(self, values: np.ndarray) -> np.ndarray:
        """Where the window starts for clamped values: real numbers between 0 and ``cells - step``."""

    @abstractmethod
    def outputs(self, drawn: np.ndarray) -> np.ndarray:
        """The lattice integers that cells stand for; not decreasing."""

    @abstractmethod
    def cells_between(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The cells whose published value lies in [low, high], as the first one and the one after the last."""

    @property
    def weight(self) -> float:
        """The probability of drawing from the window."""
        return self.threshold / WORD

    def cell_loss(self) -> float:
        """ln of the ratio of the probabilities of a cell inside and outside the window."""
        return log_ratio(1 + Fraction(self.threshold * self.cells, (WORD - self.threshold) * self.step))

    def loss(self) -> float:
        return self.cell_loss()

    @property
    def support(self) -> tuple[int, int]:
        ends = self.outputs(np.array([0, self.cells - 1]))
        return int(ends[0]), int(ends[1])

    def draw(self, values: np.ndarray, bits: Bits, lane: int, rows: np.ndarray | None = None) -> np.ndarray:
        words = bits.words(lane, 2, rows)
        place = (self.place(values) * _SCALE).astype(np.int64)
        place += (words[:, 1] >> _HALF).view(np.int64)
        place >>= 32
        np.minimum(place, self.cells - self.step, out=place)
        inside = words[:, 0] < np.uint64(self.threshold)
        cell, unfair = self._below(words[:, 1] & _LOW_HALF, inside)
        attempt = 1
        while len(unfair):
            positions = unfair if rows is None else rows[unfair]
            fresh = bits.words(lane + attempt * LANES, 1, positions)[:, 0] >> _HALF
            cell[unfair], again = self._below(fresh, inside[unfair])
            unfair = unfair[again]
            attempt += 1
        place *= inside
        cell += place
        return self.outputs(cell)

    def _below(self, words: np.ndarray, inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Uniform cells of the window or of all from 32-bit words, and which must be drawn again to be exact."""
        bound = np.where(inside, np.uint64(self.step), np.uint64(self.cells))
        words = words * bound
        cell = (words >> _HALF).view(np.int64)
        words &= _LOW_HALF
        most = max(2**32 % self.step, 2**32 % self.cells)
        suspect = np.flatnonzero(words < np.uint64(most))
        leftover = np.where(inside[suspect], np.uint64(2**32 % self.step), np.uint64(2**32 % self.cells))
        return cell, suspect[words[suspect] < leftover]

    def _starts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lower of the two starts of the window at each input, and the probability of the next one, as drawn."""
        place = (self.place(self.clamp(np.atleast_1d(x))) * _SCALE).astype(np.int64)
        start = np.minimum(place >> 32, self.cells - self.step)
        share = np.where(start < self.cells - self.step, (place & (2**32 - 1)) / _SCALE, 0.0)
        return start, share

    def _probability(self, x: np.ndarray, first: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Probability of the cells first, ..., after - 1 at each input."""
        first, after = np.clip(first, 0, self.cells), np.clip(after, 0, self.cells)
        start, share = self._starts(x)

        def overlap(begin: np.ndarray) -> np.ndarray:
            return np.maximum(np.minimum(after, begin + self.step) - np.maximum(first, begin), 0)

        covered = (1 - share) * overlap(start) + share * overlap(start + 1)
        rest = (WORD - self.threshold) / WORD
        return self.weight * covered / self.step + rest * np.maximum(after - first, 0) / self.cells

    def usefulness(self, x: np.ndarray, gamma: float) -> np.ndarray:
        inputs = self.clamp(np.atleast_1d(x))
        return self._probability(inputs, *self.cells_between(inputs - gamma, inputs + gamma))

    def cumulative(self, x: np.ndarray, integers: np.ndarray) -> np.ndarray:
        values = self.lattice.to_values(integers)
        after = self.cells_between(values, values)[1]
        return self._probability(np.asarray(x)[:, None], np.zeros_like(after), after)

    def pmf(self, x: float, integers: np.ndarray) -> np.ndarray:
        values = self.lattice.to_values(integers)
        return self._probability(np.full(values.shape, x), *self.cells_between(values, values))
