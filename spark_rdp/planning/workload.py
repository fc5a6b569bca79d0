"""Which numbers to noise so that many sums of cells come out well: strategies for ordered domains.

A *workload* is a set of ranges of a domain of n ordered cells, each asking for the sum of its cells. A *strategy* is
what gets noise: the cells themselves (identity), sums of blocks (a k-ary hierarchy), or differences of the two halves
of blocks (Haar wavelet). From the noised answers the cells are estimated by least squares; ranges are sums of cells.

All strategies here measure functions of nested blocks, so that with ``P_j`` the projection on functions constant on the
blocks of level j (level 0 is the whole domain, level h the cells) and ``Q_j = P_j - P_(j-1)``

    ``A' A = sum_j lambda_j Q_j``,

and with noise of variance v in each answer the expected total squared error of a workload W is exactly

    ``v sum_j trace(W Q_j W') / lambda_j``.

A row changes one answer of each level that is measured: the loss is the number of levels times that of one answer. On a
domain of several dimensions strategies and workloads are crossed; their Kronecker products multiply both figures.

Source: Li, Miklau, Hay, McGregor, Rastogi 2015 (matrix mechanism); Hay et al. 2010 (hierarchy); Xiao, Wang, Gehrke 2010
(wavelet); Qardaji, Yang, Li 2013 (branching); mathematics, section 1.6.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from spark_rdp.errors import InvalidInput

Name = Literal["identity", "hierarchy", "wavelet"]
NAMES: tuple[Name, ...] = ("identity", "hierarchy", "wavelet")
#: Branchings that are tried.
_BRANCHINGS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256)
#: A domain is filled up to a power of the branching, to at most so many times its size.
_MOST_FILLING = 4
#: The most numbers that are noised.
MOST_ANSWERS = 2**24


@dataclass(frozen=True)
class Strategy:
    """What is measured in one dimension.

    Args:
        name: ``identity``, ``hierarchy`` or ``wavelet``.
        cells: The number of cells of the domain.
        branching: Every block has so many blocks of the next level in it.
        height: ``branching ** height`` is at least ``cells``; what is beyond them is empty.
        top: The first level that is measured; only a hierarchy leaves some out.
    """

    name: Name
    cells: int
    branching: int
    height: int
    top: int

    @classmethod
    def identity(cls, cells: int) -> Strategy:
        """The cells."""
        return cls("identity", cells, max(cells, 2), 1, 1)

    @classmethod
    def hierarchy(cls, cells: int, branching: int, top: int = 0) -> Strategy:
        """Sums of blocks, from level ``top`` down to the cells."""
        return cls("hierarchy", cells, branching, _height(cells, branching), top)

    @classmethod
    def wavelet(cls, cells: int) -> Strategy:
        """The total, and left half less right half of every block."""
        return cls("wavelet", cells, 2, _height(cells, 2), 0)

    @property
    def size(self) -> int:
        """The number of cells, filled up."""
        return int(self.branching**self.height)

    @property
    def levels(self) -> int:
        """How many answers one row changes, each by one."""
        return self.height - self.top + 1

    @cached_property
    def lengths(self) -> list[int]:
        """The length of the blocks of each level, from the whole domain to the cells."""
        return [int(self.branching ** (self.height - level)) for level in range(self.height + 1)]

    @cached_property
    def _lambdas(self) -> list[int]:
        lengths = self.lengths
        if self.name == "wavelet":  # the rows of A are orthogonal: +-1 on a block of the level above
            return [lengths[0], *lengths[:-1]]
        return [sum(lengths[max(level, self.top) :]) for level in range(self.height + 1)]

    @property
    def answers(self) -> int:
        """How many numbers are measured."""
        if self.name == "wavelet":
            return self.size
        return sum(self.size // length for length in self.lengths[self.top :])

    def measure(self, cells: np.ndarray) -> np.ndarray:
        """The exact answers.

        Args:
            cells: int64, the cells along the last axis.

        Returns:
            int64, the answers along the last axis.
        """
        filled = np.zeros((*cells.shape[:-1], self.size), dtype=np.int64)
        filled[..., : self.cells] = cells
        sums = [self._blocks(filled, length).sum(axis=-1) for length in self.lengths]
        if self.name != "wavelet":
            return np.concatenate(sums[self.top :], axis=-1)
        halves = [level[..., 0::2] - level[..., 1::2] for level in sums[1:]]
        return np.concatenate([sums[0], *halves], axis=-1)

    def estimate(self, answers: np.ndarray) -> np.ndarray:
        """The cells that fit the noised answers best (least squares, all answers being equally noisy).

        Args:
            answers: As `measure` returns them, noised.

        Returns:
            float64, the cells along the last axis; unbiased.
        """
        spread = self._transposed(np.asarray(answers, dtype=np.float64))
        means = [self._blocks(spread, length).mean(axis=-1) for length in self.lengths]
        cells = np.zeros(spread.shape)
        for level, (mean, length) in enumerate(zip(means, self.lengths, strict=True)):
            here = np.repeat(mean, length, axis=-1)
            above = np.repeat(means[level - 1], self.lengths[level - 1], axis=-1) if level else 0.0
            cells += (here - above) / self._lambdas[level]
        return cells[..., : self.cells]

    def error(self, traces: Sequence[float]) -> float:
        """The total squared error of a workload for noise of variance 1, from ``trace(W P_j W')`` of every level."""
        steps = np.diff(np.concatenate([[0.0], np.asarray(traces, dtype=np.float64)]))
        return float(np.sum(steps / np.array(self._lambdas, dtype=np.float64)))

    @staticmethod
    def _blocks(values: np.ndarray, length: int) -> np.ndarray:
        return values.reshape(*values.shape[:-1], -1, length)

    def _transposed(self, answers: np.ndarray) -> np.ndarray:
        """A' times the answers."""
        spread = np.zeros((*answers.shape[:-1], self.size))
        place = 0
        if self.name == "wavelet":
            spread += answers[..., :1]
            place = 1
            for length in self.lengths[1:]:
                count = self.size // length // 2
                level = answers[..., place : place + count]
                spread += np.repeat(np.stack([level, -level], axis=-1).reshape(*level.shape[:-1], -1), length, axis=-1)
                place += count
            return spread
        for length in self.lengths[self.top :]:
            count = self.size // length
            spread += np.repeat(answers[..., place : place + count], length, axis=-1)
            place += count
        return spread


def _height(cells: int, branching: int) -> int:
    height = 1
    while branching**height < cells:
        height += 1
    return height


@lru_cache(maxsize=1024)
def all_ranges(cells: int, length: int) -> float:
    """Every range of consecutive cells, once."""
    start = np.arange(0, cells, length, dtype=np.float64)
    m = np.minimum(start + length, cells) - start
    left, right = start + 1, cells - (start + m) + 1  # ends a range may have at or beyond the block's ends
    partial = (m - 1) * m * (2 * m - 1) / 6  # 1 + 4 + ... + (m-1)^2
    inner = np.maximum(m - 2, 0)
    within = inner * (inner + 1) ** 2 * (inner + 2) / 12
    return float(np.sum(left * right * m**2 + (left + right) * partial + within) / length)


@lru_cache(maxsize=1024)
def prefixes(cells: int, length: int) -> float:
    """Every range that starts with the first cell."""
    start = np.arange(0, cells, length, dtype=np.float64)
    m = np.minimum(start + length, cells) - start
    partial = (m - 1) * m * (2 * m - 1) / 6
    return float(np.sum(partial + (cells - (start + m) + 1) * m**2) / length)


@lru_cache(maxsize=1024)
def single_cells(cells: int, length: int) -> float:
    """Every cell by itself."""
    return cells / length


def one_range(first: np.ndarray, last: np.ndarray, length: int) -> np.ndarray:
    """``|P w|^2`` of single ranges, cells ``first`` to ``last`` included."""
    low, high = np.asarray(first, dtype=np.int64), np.asarray(last, dtype=np.int64) + 1
    begin, end = low // length, (high - 1) // length
    head = np.minimum((begin + 1) * length, high) - low
    tail = np.where(end > begin, high - end * length, 0)
    full = np.maximum(end - begin - 1, 0)
    return (head.astype(np.float64) ** 2 + tail.astype(np.float64) ** 2) / length + full.astype(np.float64) * length


def range_errors(strategy: Strategy, first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """The squared error of each range for noise of variance 1."""
    traces = np.stack([one_range(first, last, length) for length in strategy.lengths])
    steps = np.diff(traces, axis=0, prepend=np.zeros((1, traces.shape[1])))
    return np.sum(steps / np.array(strategy._lambdas, dtype=np.float64)[:, None], axis=0)


@dataclass(frozen=True)
class Product:
    """Strategies crossed over the dimensions of a domain."""

    parts: tuple[Strategy, ...]

    @property
    def levels(self) -> int:
        """How many answers one row changes, each by one."""
        return math.prod(part.levels for part in self.parts)

    @property
    def answers(self) -> int:
        """How many numbers are measured."""
        return math.prod(part.answers for part in self.parts)

    @property
    def name(self) -> str:
        """How a reader would call it."""
        return " x ".join(
            f"{part.name} (branching {part.branching}, from level {part.top})"
            if part.name == "hierarchy"
            else part.name
            for part in self.parts
        )

    def measure(self, cells: np.ndarray) -> np.ndarray:
        """The exact answers of a domain with one axis per dimension, flat."""
        return self._along(cells, [part.measure for part in self.parts]).reshape(-1)

    def estimate(self, answers: np.ndarray) -> np.ndarray:
        """The cells, with one axis per dimension, from the noised answers."""
        shaped = np.asarray(answers).reshape([part.answers for part in self.parts])
        return self._along(shaped, [part.estimate for part in self.parts])

    @staticmethod
    def _along(values: np.ndarray, steps: Sequence[Callable[[np.ndarray], np.ndarray]]) -> np.ndarray:
        for axis, step in enumerate(steps):
            values = np.moveaxis(step(np.ascontiguousarray(np.moveaxis(values, axis, -1))), -1, axis)
        return values


def strategies(cells: int, names: Sequence[str] = NAMES) -> list[Strategy]:
    """What may be measured in one dimension."""
    found = [Strategy.identity(cells)] if "identity" in names else []
    if "hierarchy" in names and cells > 1:
        for branching in _BRANCHINGS:
            whole = Strategy.hierarchy(cells, branching)
            # With one level above the cells there is a hierarchy; with none it would be the identity.
            if branching == 2 or whole.size <= _MOST_FILLING * cells:
                found += [Strategy.hierarchy(cells, branching, top) for top in range(whole.height)]
    if "wavelet" in names and cells > 1:
        found.append(Strategy.wavelet(cells))
    return found


def best_product(
    shape: Sequence[int],
    errors: Callable[[int, Strategy], np.ndarray],
    variance: Callable[[int], float],
    names: Sequence[str] = NAMES,
) -> tuple[Product, dict[str, float]]:
    """The strategy with the smallest expected total squared error.

    Args:
        shape: The number of cells in each dimension.
        errors: By dimension and strategy, the squared error for noise of variance 1, shape (m,). A range of the crossed
            domain has the product of the errors of its sides, and the total error is the sum over the m places: one
            place for a crossed workload (its total error in each dimension), one for each range of a list.
        variance: The variance of the noise of one answer when a row changes so many.
        names: The strategies to choose from.

    Returns:
        The best product, and for each name the smallest expected total squared error with it in all dimensions.

    Raises:
        InvalidInput: No strategy is small enough for the domain.
    """
    best: dict[str, tuple[float, Product]] = {}
    single: list[list[tuple[np.ndarray, Strategy]]] = []
    for place, cells in enumerate(shape):
        kept: dict[tuple[str, int], tuple[np.ndarray, Strategy]] = {}
        for strategy in strategies(cells, names if cells > 1 else ("identity",)):
            error, key = errors(place, strategy), (strategy.name, strategy.levels)
            if key not in kept or error.sum() < kept[key][0].sum():  # of those that cost the same, the best by itself
                kept[key] = error, strategy
        single.append(list(kept.values()))
    for choice in itertools.product(*single):
        product = Product(tuple(strategy for _, strategy in choice))
        if product.answers > MOST_ANSWERS:
            continue
        total = float(np.prod([error for error, _ in choice], axis=0).sum()) * variance(product.levels)
        kinds = {strategy.name for strategy in product.parts if strategy.cells > 1} or {"identity"}
        for name in ("auto", kinds.pop() if len(kinds) == 1 else "mixed"):
            if name not in best or total < best[name][0] * (1 - 1e-12):
                best[name] = (total, product)
    if not best:
        raise InvalidInput("The domain must be smaller for this strategy. Use wider cells, or strategy auto.")
    return best["auto"][1], {name: total for name, (total, _) in best.items() if name != "auto"}
