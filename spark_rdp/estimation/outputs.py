"""How the outputs of a local mechanism are counted: few enough cells for a histogram of each group to fit anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from spark_rdp.mechanisms.additive_local import AdditiveLocal
from spark_rdp.mechanisms.fitted import Fitted
from spark_rdp.mechanisms.local import Local
from spark_rdp.mechanisms.two_point import TwoPoint

#: Outputs on a wide support are counted in about this many cells of one width.
CELLS = 512
#: Beyond the outermost cells of an unbounded support lies at most this much, on each side.
_TAIL = 1e-4


@dataclass(frozen=True)
class Outputs:
    """The possible outputs of a mechanism, in cells.

    Attributes:
        mechanism: Whose outputs.
        levels: The lattice integers, increasing, where there are few: each is a cell of its own.
        first, width, count: Otherwise cell j holds the ``width`` integers from ``first + j * width`` on; the first
            and the last cell take what lies beyond them.
    """

    mechanism: Local
    levels: tuple[int, ...] | None
    first: int
    width: int
    count: int

    @classmethod
    def of(cls, mechanism: Local) -> Outputs:
        """The cells for a mechanism."""
        if isinstance(mechanism, Fitted):
            levels = tuple(sorted(set(mechanism.levels)))
            return cls(mechanism, levels, levels[0], 1, len(levels))
        if isinstance(mechanism, TwoPoint):
            return cls(mechanism, (mechanism.low, mechanism.high), mechanism.low, 1, 2)
        low, high = mechanism.support
        if isinstance(mechanism, AdditiveLocal):
            reach = mechanism.noise.quantile(1 - 2 * _TAIL)
            ends = np.ldexp(np.array([mechanism.lower, mechanism.upper]), -mechanism.exponent)
            low, high = int(np.floor(ends[0])) - reach, int(np.ceil(ends[1])) + reach
        width = -(-(high - low + 1) // CELLS)
        return cls(mechanism, None, low, width, -(-(high - low + 1) // width))

    @property
    def centre(self) -> int:
        """A lattice integer near the middle of the range, from which outputs count when their powers are summed."""
        mechanism = self.mechanism
        return round(float(np.ldexp(mechanism.lower / 2 + mechanism.upper / 2, -mechanism.exponent)))

    @cached_property
    def _last_integers(self) -> np.ndarray:
        """The last lattice integer of each cell."""
        if self.levels is not None:
            return np.array(self.levels, dtype=np.int64)
        return self.first + self.width * np.arange(1, self.count + 1, dtype=np.int64) - 1

    def chances(self, x: np.ndarray) -> np.ndarray:
        """The probability of each cell, of shape (inputs, cells); rows sum to 1."""
        below = self.mechanism.cumulative(np.asarray(x, dtype=np.float64), self._last_integers[:-1])
        ones = np.ones((len(below), 1))
        return np.maximum(np.diff(np.concatenate([0 * ones, below, ones], axis=1), axis=1), 0.0)
