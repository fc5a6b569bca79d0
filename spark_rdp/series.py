"""Sums over long ranges of integers, to nearly full double precision.

A noise on a fine lattice spreads over 10**6 to 10**12 integers. A smooth term is summed by the Gauss rule of the
counting measure on N consecutive integers, which is exact for polynomials of degree 2n - 1; where the term is not
smooth the range is halved until it is, or until it is short enough to be added up term by term.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.linalg import eigh_tridiagonal

from spark_rdp.errors import InvalidInput

#: A function of real numbers, vectorised over an array of any shape.
Term = Callable[[np.ndarray], np.ndarray]

_NODES = 24
_SHORT = 64
_TOLERANCE = 1e-13
_MOST_BLOCKS = 200_000


@lru_cache(maxsize=4096)
def gauss_rule(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes in [0, length - 1] and weights of the rule for ``sum_{k=0}^{length-1} f(k)``.

    Source: Golub and Welsch 1969 with the recurrence of the discrete Chebyshev (Gram) polynomials. A short range is
    its own rule: every integer, with weight 1.
    """
    if length <= _SHORT:
        return np.arange(length, dtype=np.float64), np.ones(length)
    j = np.arange(1, _NODES, dtype=np.float64)
    off_diagonal = np.sqrt(j**2 * (1.0 - (j / length) ** 2) / (4.0 * (4.0 * j**2 - 1.0)))
    nodes, vectors = eigh_tridiagonal(np.zeros(_NODES), off_diagonal)
    return (length - 1) / 2 + length * nodes, length * vectors[0] ** 2


def block_sums(term: Term, starts: np.ndarray, length: int) -> np.ndarray:
    """``sum_{k=0}^{length-1} term(start + k)`` for each start; all blocks have one length.

    Raises:
        InvalidInput: The term jumps in so many places that its sum cannot be found.
    """
    starts = np.asarray(starts, dtype=np.float64)
    total = np.zeros(len(starts))
    size = np.zeros(len(starts))
    owner = np.arange(len(starts))  # which block an interval of `left` belongs to
    left = starts
    if length <= 0:
        return total
    estimate = _apply(term, left, length)
    np.add.at(size, owner, np.abs(estimate))
    spent = 0
    while len(left):
        if length <= _SHORT:
            np.add.at(total, owner, estimate)
            return total
        spent += len(left)
        if spent > _MOST_BLOCKS:
            raise InvalidInput(
                "metric must be a loss that changes smoothly with the error, with few jumps. Use a simpler function."
            )
        half = length // 2
        first = _apply(term, left, half)
        second = _apply(term, left + half, half)
        odd = term(left + (length - 1)) if length % 2 else np.zeros(len(left))
        better = first + second + odd
        rough = ~(np.abs(better - estimate) <= _TOLERANCE * np.maximum(size[owner], np.abs(better)))
        np.add.at(total, owner[~rough], better[~rough])
        np.add.at(total, owner[rough], odd[rough])
        left = np.concatenate([left[rough], left[rough] + half])
        owner = np.concatenate([owner[rough], owner[rough]])
        estimate = np.concatenate([first[rough], second[rough]])
        length = half
    return total


def _apply(term: Term, starts: np.ndarray, length: int) -> np.ndarray:
    nodes, weights = gauss_rule(length)
    return term(starts[:, None] + nodes) @ weights


def tail_sum(term: Term, start: int, settled: float) -> float:
    """``sum_{k=start}^infinity term(k)`` of a term that dies away.

    Args:
        term: The function to add up, smooth on the scale of its argument, a few jumps excepted.
        start: First integer, not negative.
        settled: The length beyond which the term only shrinks; the sum goes on until a range beyond it adds nothing.
    """
    total, size = 0.0, 0.0
    left, length = start, _SHORT
    while True:
        part = float(block_sums(term, np.array([left]), length)[0])
        total += part
        size = max(size, abs(total))
        left += length
        if (left > settled and abs(part) <= 1e-17 * size) or left > 2.0**1000:
            return total
        length = max(_SHORT, left - start)
