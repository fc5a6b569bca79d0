"""The two-sided geometric distribution: Laplace noise on the lattice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import expit

from spark_rdp.mechanisms.base import SATURATION, Additive
from spark_rdp.randomness import LANES, Bits

if TYPE_CHECKING:
    from spark_rdp.metrics import Metric

#: Thresholds of the top digit; exp(-LEVELS) leaves a 64-bit threshold 52 significant bits.
LEVELS = 8
#: Lanes a sampler uses from its first one on.
SAMPLER_LANES = 6
_BITS, _TIES, _TOP, _SIGN = 0, 1, 2, 3
#: Thresholds are kept for blocks of up to so many rows.
_BLOCK = 16384
#: 16-bit columns of the word that draws the top digit, and of two words.
TOP_COLUMNS = 4
_PAIR = 8
#: Where the leading bits of a word do not tell the top digit.
_UNSURE = 255
_GUIDE_BITS = 8
#: How many of LEVELS falling thresholds lie above a word, by the comparisons as an octet.
_LEVEL_OF = np.array([octet.bit_count() for octet in range(2**LEVELS)])


def _thresholds(probabilities: np.ndarray) -> np.ndarray:
    """Probabilities below 1 as 64-bit thresholds, right to 2**-52 of their value (or 2**-65, if that is more)."""
    mantissas, exponents = np.frexp(probabilities)
    whole = [round(math.ldexp(m, int(e) + 64)) for m, e in zip(mantissas.ravel(), exponents.ravel(), strict=True)]
    return np.array(whole, dtype=np.uint64).reshape(probabilities.shape)


class GeometricSampler:
    """Exact samples of P(K = k) = (1 - e^-a) e^-ak on k = 0, 1, 2, ... for one or several rates a.

    The binary digits of a geometric variable are independent, digit j being 1 with probability 1/(1 + e^(a 2^j)).
    Digits are drawn while a 2^j <= 1/2; what lies above them is again geometric, with a rate in (1/2, 1], and is read
    off a table of 64-bit thresholds whose last entry starts the table anew: tails have no end. A rate above 1
    is cut into equal parts of at most 1: the quotient of a geometric variable by a whole number is geometric.

    Every probability used is right to a factor 1 + 2**-51, so that ln of the ratio of two sampled probabilities lies
    within `slack` + 2**-50 * a * distance of the exact one.

    Args:
        rates: The rates a, one for each atom; positive.
        bands: A number for each atom; atoms of one number draw their sign from the same bits, behind the digits of the
            widest of them. All are of one band when absent.
    """

    def __init__(self, rates: Sequence[float], bands: Sequence[int] | None = None) -> None:
        a = np.asarray(rates, dtype=np.float64)
        self.parts = np.maximum(np.ceil(a), 1.0).astype(np.int64)
        base = a / self.parts
        self.digits = np.maximum(-np.frexp(base)[1] + np.where(np.frexp(base)[0] == 0.5, 1, 0), 0).astype(np.int64)
        band = np.zeros(len(a), dtype=np.int64) if bands is None else np.asarray(bands)
        widths = np.array([self.digits[band == number].max() for number in band])
        self.width = int(widths.max())
        scale = np.ldexp(base, self.digits)  # in (1/2, 1]
        places = np.arange(self.width)
        chance = np.where(places < self.digits[:, None], expit(-np.ldexp(base[:, None], places)), 0.0)
        # Columns of 16 bits, read in pairs of words. The first word is for the top digit, so that its four columns are
        # never 1, and so are those after the last one, which is the sign.
        pairs = (TOP_COLUMNS + widths + _PAIR) // _PAIR
        chances = np.zeros((len(a), int(pairs.max()) * _PAIR))
        chances[:, TOP_COLUMNS : TOP_COLUMNS + self.width] = chance
        chances[np.arange(len(a)), TOP_COLUMNS + widths] = expit(-a)
        columns = _thresholds(chances)
        self._high = (columns >> np.uint64(48)).astype(np.uint16)
        self._low = columns & np.uint64(2**48 - 1)
        self._repeated: dict[int, np.ndarray] = {}
        self._top = _thresholds(np.exp(-scale[:, None] * np.arange(1, LEVELS + 1)))
        self._top_limit = SATURATION >> self.digits
        self._coarse = a > 1
        # What is the same for all atoms is kept once.
        self._pairs, self._widths, self._shifts, self._divisors = (
            values[:1] if np.all(values == values[0]) else values for values in (pairs, widths, self.digits, self.parts)
        )
        self.slack = 2.0**-50 * (self.width + 8)

    def magnitudes(
        self, bits: Bits, lane: int, atoms: np.ndarray | None = None, rows: np.ndarray | None = None
    ) -> np.ndarray:
        """Draw K for each row, as int64.

        Args:
            bits, lane: Where the random words come from; SAMPLER_LANES lanes from ``lane`` on are used.
            atoms: Which rate each row has, as positions into ``rates``; all have the first one when absent.
            rows: Positions of the rows wanted; all rows when absent. ``atoms`` is aligned with them.
        """
        return self._draw(bits, lane, atoms, rows)[0]

    def two_sided(self, bits: Bits, lane: int, atoms: np.ndarray | None = None) -> np.ndarray:
        """Draw from P(K = k) = tanh(a/2) e^(-a abs k) for each row, as int64.

        K is a magnitude, or -1 less a magnitude with probability e^-a / (1 + e^-a): no value is drawn twice or refused.
        It is also the chance of an odd magnitude, which is how it is drawn when it is too small for a threshold.
        """
        magnitude, negative = self._draw(bits, lane, atoms, None)
        if self._coarse.any():
            rows = np.flatnonzero(np.broadcast_to(_of(self._coarse, atoms), magnitude.shape))
            other = self.magnitudes(bits, lane + _SIGN, None if atoms is None else atoms[rows], rows)
            negative[rows] = other & 1
        magnitude ^= -negative  # -1 - magnitude where it is 1
        return magnitude

    def _draw(
        self, bits: Bits, lane: int, atoms: np.ndarray | None, rows: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """A magnitude for each row, and 1 where the sign is negative, else 0."""
        drawn, ties = np.zeros(bits.size if rows is None else len(rows), dtype=np.int64), []
        least, most = int(self._pairs.min()), int(self._pairs.max())
        for place in range(most):
            # Narrow atoms do without the last pairs.
            some = None if place < least else np.flatnonzero(_of(self._pairs, atoms) > place)
            words = bits.pair(lane + _BITS, place, _taken(rows, some))
            if place == 0:
                top = np.ascontiguousarray(words[:, 0])
            chunks = words.view(np.uint16).ravel()
            high = self._thresholds_of(place, len(words), atoms if atoms is None or some is None else atoms[some])
            ones = np.packbits(chunks < high, bitorder="little").astype(np.int64)
            shift = _PAIR * place - TOP_COLUMNS
            drawn[slice(None) if some is None else some] |= ones << shift if place else ones >> -shift
            tied = np.flatnonzero(chunks == high)
            if len(tied):
                row, column = np.divmod(tied, _PAIR)
                ties.append((row if some is None else some[row], column + _PAIR * place))
        if ties:
            row, column = (np.concatenate(parts) for parts in zip(*ties, strict=True))
            self._settle(drawn, row, column, bits, lane, atoms, rows)
        width = _of(self._widths, atoms)
        negative = drawn >> width & 1
        drawn ^= negative << width

        level = self._levels(top, bits, lane, atoms, rows)
        if level.max(initial=0) > self._top_limit.min():
            level = np.minimum(level, _of(self._top_limit, atoms))
        level <<= _of(self._shifts, atoms)
        drawn += level
        if self._divisors.max() > 1:
            drawn //= _of(self._divisors, atoms)
        return drawn, negative

    def _settle(
        self,
        drawn: np.ndarray,
        row: np.ndarray,
        column: np.ndarray,
        bits: Bits,
        lane: int,
        atoms: np.ndarray | None,
        rows: np.ndarray | None,
    ) -> None:
        """Set the digits, given by row and column, whose first sixteen bits are those of the threshold."""
        low = self._low[0 if atoms is None else atoms[row], column]
        likely = np.flatnonzero(low)  # the others have no chance: the top digit, and what lies behind the sign
        row, low, digit = row[likely], low[likely], column[likely] - TOP_COLUMNS
        finer = bits.pair(lane + _TIES, digit >> 1, _taken(rows, row))[np.arange(len(row)), digit & 1]
        won = np.where(finer >> np.uint64(16) < low, np.int64(1) << digit, 0)
        np.bitwise_or.at(drawn, row, won)

    def _thresholds_of(self, place: int, count: int, atoms: np.ndarray | None) -> np.ndarray:
        """The leading bits of the thresholds of a pair of words, of all rows one behind the other."""
        own = self._high[:, _PAIR * place : _PAIR * (place + 1)]
        if atoms is not None:  # eight of them as one item: NumPy copies those fast
            return np.ascontiguousarray(own).view("V16")[:, 0].take(atoms).view(np.uint16)
        size = count * _PAIR
        repeated = self._repeated.get(place, own[0])
        if size > len(repeated):
            repeated = np.tile(own[0], count)
            if count <= _BLOCK:  # kept for blocks, which are mostly of one length
                self._repeated[place] = repeated
        return repeated[:size]

    @cached_property
    def _guide(self) -> np.ndarray:
        """The top digit of all words with the same leading bits, or _UNSURE; atom after atom, flat."""
        first = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
        last = first | np.uint64(2 ** (64 - _GUIDE_BITS) - 1)
        low, high = (sum((edge < top[:, None]).view(np.uint8) for top in self._top.T) for edge in (last, first))
        return np.where((low == high) & (high < LEVELS), high, np.uint8(_UNSURE)).ravel()

    def _levels(
        self, words: np.ndarray, bits: Bits, lane: int, atoms: np.ndarray | None, rows: np.ndarray | None
    ) -> np.ndarray:
        """The geometric variable above the digits."""
        cells = (words >> np.uint64(64 - _GUIDE_BITS)).view(np.int64)
        if atoms is not None:
            cells += atoms << _GUIDE_BITS
        level = self._guide.take(cells).astype(np.int64)
        waiting = np.flatnonzero(level == _UNSURE)
        level[waiting] = 0
        fresh = words[waiting]
        attempt = 0
        while len(waiting):
            top = self._top[0] if atoms is None else self._top.take(atoms[waiting], axis=0)
            more = _LEVEL_OF.take(np.packbits(fresh[:, None] < top))
            level[waiting] += more
            waiting = waiting[more == LEVELS]
            fresh = bits.words(lane + _TOP + attempt * LANES, 1, waiting if rows is None else rows[waiting])[:, 0]
            attempt += 1
        return level


def _taken(values: np.ndarray | None, places: np.ndarray | None) -> np.ndarray | None:
    """Some of the values, which are their own places when absent; all when no places are named."""
    if values is None or places is None:
        return values if places is None else places
    return values[places]


def _of(values: np.ndarray, atoms: np.ndarray | None) -> Any:
    """The value of each row's atom, or the one of all."""
    return values[0] if atoms is None or len(values) == 1 else values.take(atoms)


@dataclass(frozen=True)
class Geometric(Additive):
    """Two-sided geometric noise, P(X = k) = tanh(rate/2) e^(-rate abs k).

    Args:
        rate: Privacy loss per lattice unit; positive.

    Source: Ghosh, Roughgarden, Sundararajan 2009; mathematics, section 3.
    """

    name: ClassVar[str] = "laplace"
    rate: float
    _sampler: GeometricSampler = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sampler", GeometricSampler([self.rate]))

    def parameters(self) -> dict[str, Any]:
        return {"rate": self.rate}

    def log_mass(self, k: np.ndarray) -> np.ndarray:
        return math.log(math.tanh(self.rate / 2)) - self.rate * np.abs(np.asarray(k, dtype=np.float64))

    def log_tail(self, m: int) -> float:
        if m <= 0:
            return 0.0
        return math.log(2) - self.rate * m - math.log1p(math.exp(-self.rate))

    def loss(self, shift: int) -> float:
        return self.rate * shift * (1 + 2.0**-50) + self.sampling_slack

    @property
    def sampling_slack(self) -> float:
        return self._sampler.slack

    def expectation(self, metric: Metric, granularity: float) -> float:
        return metric.expect_geometric(self.rate, granularity)

    def noise(self, bits: Bits) -> np.ndarray:
        return self._sampler.two_sided(bits, 0)
