"""Coins that show heads with probability e^-x, and the bits of some rows: what rejection samplers are made of."""

from __future__ import annotations

import numpy as np

from spark_rdp.randomness import LANES, Bits

#: ln of the smallest chance one word decides: a 64-bit threshold then keeps 52 significant bits.
_ONE_WORD = 8.0
_RARE = np.uint64(int(np.ldexp(np.exp(-_ONE_WORD), 64)))
#: ln of the chance really drawn lies within PRECISION * (x + 1) of -x.
PRECISION = 2.0**-50


class Rows(Bits):
    """The bits of some rows."""

    def __init__(self, bits: Bits, rows: np.ndarray) -> None:
        self.size = len(rows)
        self._bits, self._rows = bits, rows

    def words(self, lane: int, count: int, rows: np.ndarray | None = None) -> np.ndarray:
        return self._bits.words(lane, count, self._rows if rows is None else self._rows[rows])

    def pair(self, lane: int, place: int | np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        return self._bits.pair(lane, place, self._rows if rows is None else self._rows[rows])


def decays(bits: Bits, lane: int, x: np.ndarray) -> np.ndarray:
    """True with probability e^-x, independently for each entry.

    An unlikely coin is several in a row, each likely enough for one word: thresholds are exact to 2^-52 of their value
    however small e^-x is.

    Args:
        bits: As many rows as ``x`` has.
        lane: Below LANES; the lanes ``lane + LANES * attempt`` are used.
        x: Not negative, shape (n, m).
    """
    further = np.floor(x / _ONE_WORD)
    chance = np.exp(-(x - _ONE_WORD * further))
    certain = chance >= 1
    thresholds = np.ldexp(np.where(certain, 0.5, chance), 64).astype(np.uint64)
    heads = (bits.words(lane, x.shape[1]) < thresholds) | certain
    attempt = 0
    while np.any(waiting := heads & (further > attempt)):
        attempt += 1
        rows = np.flatnonzero(waiting.any(axis=1))
        rare = bits.words(lane + attempt * LANES, x.shape[1], rows) < _RARE
        heads[rows] &= rare | ~waiting[rows]
    return heads
