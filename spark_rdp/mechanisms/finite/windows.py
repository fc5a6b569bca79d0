"""Draws of a cell on a grid: an offset off one table, clamped to the grid, and refused now and then.

Offsets that lead out of the grid are moved to the nearest cell of its border. A cell is then reached with a chance
that depends on the offset and on the sides of the grid it lies at, and on nothing else: a second coin can restore any
kernel exactly, and few draws are refused however small epsilon is.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.finite.exact_table import ExactTable
from spark_rdp.mechanisms.finite.grids import Grid
from spark_rdp.mechanisms.finite.operators import decay
from spark_rdp.randomness import LANES, Bits

#: Share of the words that no offset takes: room for rounding in the sum of the weights.
_SPARE = 2.0**-20
_WORD = 2.0**64
#: Lanes within an attempt: the offset and the first coin, the second coin, finer words of the table.
_DRAW, _EDGE, _FINER = 0, 1, 2
_MOST_OFFSETS = 8e6
_ROWS = 512


def folded_kernel(grid: Grid, epsilon: float, decades: float) -> tuple[np.ndarray, int]:
    """exp(-epsilon length) for offsets 0 .. n-1 of each axis, the last of which takes all longer ones as well.

    Args:
        grid: The cells; with at most two axes of more than one cell, or few offsets.
        epsilon: Per unit of distance.
        decades: Offsets count until they are e^-decades of the nearest one that is folded with them.

    Returns:
        The table, of the shape of the grid, and the longest sum in it: its relative error is that many roundings.
    """
    corner = float(grid.length(*(np.float64(n) for n in grid.shape)))
    reach = []
    for n, rate in zip(grid.shape, grid.axis_rates, strict=True):
        # With the distance at least `rate` a step, or, for a long other side, as much as a hypotenuse grows.
        side, far = rate * n, decades / epsilon
        reach.append(
            n if n == 1 else n + math.ceil((math.sqrt(side * side + 2 * far * corner + far * far) - side) / rate)
        )
    if math.prod(float(size) for size in reach) > _MOST_OFFSETS:
        raise InvalidInput("mechanism must be truncated-geometric for noise much wider than the grid. Use auto.")
    folded = np.zeros(grid.shape)
    others = [np.arange(size, dtype=np.float64) for size in reach[1:]]
    for start in range(0, reach[0], _ROWS):
        first = np.arange(start, min(start + _ROWS, reach[0]))
        part = decay(epsilon * grid.length(*np.ix_(first.astype(np.float64), *others)))
        for axis in range(1, len(reach)):
            n = grid.shape[axis]
            head, tail = np.split(part, [n - 1], axis=axis)
            part = np.concatenate([head, tail.sum(axis=axis, keepdims=True)], axis=axis)
        inside = first < grid.shape[0] - 1
        folded[first[inside]] = part[inside]
        folded[-1] += part[~inside].sum(axis=0)
    return folded, 64 + reach[0] // _ROWS + _ROWS


class Window:
    """Cells drawn from any cell of a grid by an offset in proportion to weights, clamped at the border.

    Args:
        weights: Of the offsets without a sign, of the shape of the grid.
    """

    def __init__(self, weights: np.ndarray) -> None:
        self.shape = weights.shape
        whole = weights
        for axis, n in enumerate(self.shape):
            whole = np.take(whole, np.abs(np.arange(1 - n, n)), axis=axis)
        self.total = float(whole.sum())
        self._table = ExactTable(whole.reshape(1, -1) * ((1 - _SPARE) / self.total))
        wide_shape = [3 * n - 2 for n in self.shape]  # the grid with a margin as wide as the longest offset
        wide = [math.prod(wide_shape[axis + 1 :]) for axis in range(len(self.shape))]
        strides = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        self._move = _outer_sum([np.arange(1 - n, n) for n in self.shape], wide)
        self._origin = _outer_sum([np.arange(n - 1, 2 * n - 1) for n in self.shape], wide)
        self._end = _outer_sum([np.clip(np.arange(1 - n, 2 * n - 1), 0, n - 1) for n in self.shape], strides)
        sides = [np.isin(np.arange(n), (0, n - 1)).astype(np.int64) for n in self.shape]
        #: Which axes each cell is at an end of, one bit an axis.
        self.sides = _outer_sum(sides, [1 << axis for axis in range(len(self.shape))])

    def edge_weights(self, weights: np.ndarray) -> np.ndarray:
        """The weight with which a cell is reached, by the sides it is at (first axis) and the offset.

        Args:
            weights: What the window was made of.
        """
        tables = []
        for at_end in itertools.product((False, True), repeat=len(self.shape)):
            table = weights
            for axis, ends in enumerate(reversed(at_end)):  # bit 0 of the number is axis 0
                if ends and self.shape[axis] > 1:
                    table = np.flip(np.cumsum(np.flip(table, axis), axis=axis), axis)
            tables.append(table)
        return np.stack(tables)

    def draw(self, cells: np.ndarray, bits: Bits, rows: np.ndarray, coins: Coins | None = None) -> np.ndarray:
        """Cells an offset away.

        Args:
            cells: Where the offsets start, shape (k,).
            bits, rows: The random words of these draws.
            coins: Which draws are accepted; all, when absent.
        """
        result = np.empty(len(cells), dtype=np.int64)
        origin = self._origin[cells]
        waiting, attempt = np.arange(len(cells)), 0
        while len(waiting):
            lane = attempt * LANES
            words = bits.words(lane + _DRAW, 2, rows[waiting])
            places = self._table.draw(words[:, 0], bits, lane + _FINER, rows[waiting], None)
            ends = self._end[origin[waiting] + self._move[places]]
            taken = places >= 0
            if coins is not None:
                taken &= words[:, 1] < coins.cells[ends]
                unsure = np.flatnonzero(taken & (self.sides[ends] > 0))
                if len(unsure):
                    fresh = bits.words(lane + _EDGE, 1, rows[waiting[unsure]])[:, 0]
                    taken[unsure] = fresh < coins.of_edges(cells[waiting[unsure]], ends[unsure], self.sides)
            result[waiting[taken]] = ends[taken]
            waiting, attempt = waiting[~taken], attempt + 1
        return result


class Coins:
    """Coins that turn clamped draws into draws in proportion to ``kernel(offset) * wanted[end]``.

    Args:
        window: What draws the cells.
        weights: What the window was made of.
        kernel: Of the offsets without a sign; nowhere above ``weights``.
        wanted: A weight for each cell, not negative.

    Attributes:
        chances: The chance of each cell on its first coin, exactly.
        accepted: About the share of draws that both coins accept.
        roughness: How far ln of a chance of the second coin can be from what was wanted.
    """

    def __init__(self, window: Window, weights: np.ndarray, kernel: np.ndarray, wanted: np.ndarray) -> None:
        self._shape = kernel.shape
        shares = kernel / window.edge_weights(weights)
        most = shares.reshape(len(shares), -1).max(axis=1)
        shares /= most.reshape(-1, *([1] * kernel.ndim))
        scaled = wanted * most[window.sides]
        self.accepted = 1 / (window.total * float(scaled.max()))
        self.cells = _threshold(scaled / scaled.max())
        self.chances = self.cells / _WORD / most[window.sides]
        self._edges = _threshold(shares).reshape(-1)
        smallest = float(shares.min())
        self.roughness = 2.0**-53 * (4 + 2 * sum(kernel.shape)) + 4096 / _WORD / smallest

    def of_edges(self, starts: np.ndarray, ends: np.ndarray, sides: np.ndarray) -> np.ndarray:
        """The chance, out of 2**64, of draws that ended at a side."""
        place, stride = sides[ends].astype(np.int64), 1
        size = math.prod(self._shape)
        place *= size
        for n in reversed(self._shape):
            place += np.abs(starts // stride % n - ends // stride % n) * stride
            stride *= n
        return self._edges[place]


def _threshold(chances: np.ndarray) -> np.ndarray:
    return np.minimum(np.floor(chances * _WORD), _WORD - 2048).astype(np.uint64)


def _outer_sum(sides: list[np.ndarray], strides: list[int]) -> np.ndarray:
    """``sum side * stride`` over all combinations, row by row, as int32."""
    total = np.zeros(1, dtype=np.int32)
    for side, stride in zip(sides, strides, strict=True):
        total = np.add.outer(total, (side * stride).astype(np.int32)).reshape(-1)
    return total
