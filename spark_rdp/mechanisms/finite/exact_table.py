"""Positions drawn with probabilities exactly proportional to given doubles, however small they are."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from spark_rdp.randomness import Bits


class ExactTable:
    """Rows of weights, and draws from them.

    The first 64 bits of every weight are decided by one random word against cumulative thresholds. What lies below
    them (all of a weight under 2**-64) is a table again, of the exact remainders, entered by the words that
    remain: doubles end, so tables do, and no weight is ever rounded. Words left over at the very end give no position,
    and the caller draws again: the probabilities are then the weights over their sum.

    Args:
        weights: Shape (rows, m), not negative; each row sums to less than 1 - m / 2**62.
    """

    def __init__(self, weights: np.ndarray) -> None:
        scaled = np.ldexp(weights, 64)
        whole = np.floor(scaled)
        self._rest = scaled - whole
        self._sums = np.cumsum(whole.astype(np.uint64), axis=1)
        self._length = weights.shape[1]
        self._room = np.uint64(2 ** (self._length.bit_length() + 1)) if self._rest.any() else np.uint64(0)
        self._finer: dict[int, ExactTable] = {}
        if int(self._sums[:, -1].max()) + int(self._room) > 2**64:
            raise ValueError("the weights of a row must leave room for what is below their first 64 bits")

    @cached_property
    def _flat(self) -> np.ndarray:
        return self._sums.reshape(-1)

    def draw(self, words: np.ndarray, bits: Bits, lane: int, rows: np.ndarray, which: np.ndarray | None) -> np.ndarray:
        """Positions for words, -1 where another draw is needed.

        Args:
            words: uint64 of shape (k,), the first words of these draws.
            bits, lane, rows: Where finer words come from: the lanes from ``lane`` on (20 of them), of ``rows``.
            which: Which row of weights each draw is from, shape (k,); the only one when absent.
        """
        if which is None:
            places = np.searchsorted(self._sums[0], words, side="right")
        else:
            places = self._search(words, which)
        beyond = np.flatnonzero(places == self._length)
        if len(beyond):
            places[beyond] = self._below(
                words[beyond], bits, lane, rows[beyond], None if which is None else which[beyond]
            )
        return places

    def _search(self, words: np.ndarray, which: np.ndarray) -> np.ndarray:
        """`numpy.searchsorted` in a row of its own for each word, by halving."""
        start = which * self._length
        low = np.zeros(len(words), dtype=np.int64)
        size = self._length
        while size > 0:  # the answer lies in low .. low + size
            half = (size + 1) // 2
            probe = np.minimum(low + half, self._length)
            low = np.where(self._flat[start + probe - 1] <= words, probe, low)
            size -= half
        return low

    def _below(
        self, words: np.ndarray, bits: Bits, lane: int, rows: np.ndarray, which: np.ndarray | None
    ) -> np.ndarray:
        places = np.full(len(words), -1, dtype=np.int64)
        owners = np.zeros(len(words), dtype=np.int64) if which is None else which
        entered = words - self._sums[owners, -1] < self._room
        for owner in np.unique(owners[entered]):
            chosen = np.flatnonzero(entered & (owners == owner))
            if owner not in self._finer:
                self._finer[owner] = ExactTable(self._rest[owner : owner + 1] / float(self._room))
            fresh = bits.words(lane, 1, rows[chosen])[:, 0]
            places[chosen] = self._finer[owner].draw(fresh, bits, lane + 1, rows[chosen], None)
        return places
