"""The two-sided geometric distribution: Laplace noise on the lattice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
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
_BLOCK = 4096
#: 16-bit columns of the word that draws the top digit.
TOP_COLUMNS = 4


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
    """

    def __init__(self, rates: Sequence[float]) -> None:
        a = np.asarray(rates, dtype=np.float64)
        self.parts = np.maximum(np.ceil(a), 1.0).astype(np.int64)
        base = a / self.parts
        self.digits = np.maximum(-np.frexp(base)[1] + np.where(np.frexp(base)[0] == 0.5, 1, 0), 0).astype(np.int64)
        self.width = int(self.digits.max())
        scale = np.ldexp(base, self.digits)  # in (1/2, 1]
        places = np.arange(self.width)
        chance = np.where(places < self.digits[:, None], expit(-np.ldexp(base[:, None], places)), 0.0)
        # Each row has an even number of words, so that rows lie one behind the other: the first word is for the top
        # digit, so that its four columns are never 1, and so are those after the last one, which is the sign.
        before, after = np.zeros((len(a), TOP_COLUMNS)), np.zeros((len(a), -(self.width + 1 + TOP_COLUMNS) % 8))
        columns = _thresholds(np.concatenate([before, chance, expit(-a)[:, None], after], axis=1))
        self._high = (columns >> np.uint64(48)).astype(np.uint16)
        self._low = columns & np.uint64(2**48 - 1)
        self._rows = self._high[0]
        self._top = _thresholds(np.exp(-scale[:, None] * np.arange(1, LEVELS + 1)))
        self._top_limit = SATURATION >> self.digits
        self._coarse = a > 1
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
        coarse = self._coarse[0] if atoms is None else self._coarse[atoms]
        if np.any(coarse):
            rows = np.flatnonzero(np.broadcast_to(coarse, magnitude.shape))
            other = self.magnitudes(bits, lane + _SIGN, None if atoms is None else atoms[rows], rows)
            negative[rows] = (other & 1).astype(bool)
        return np.where(negative, -1 - magnitude, magnitude)

    def _draw(
        self, bits: Bits, lane: int, atoms: np.ndarray | None, rows: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        columns = self._high.shape[1]
        words = bits.words(lane + _BITS, columns // 4, rows)
        chunks = words.view(np.uint16).ravel()
        high = self._repeated(len(words)) if atoms is None else self._high[atoms].ravel()
        ones = chunks < high
        tied = np.flatnonzero(chunks == high)
        tied = tied[tied % columns >= TOP_COLUMNS]
        if len(tied):
            row, column = np.divmod(tied, columns)
            finer = bits.words(lane + _TIES, columns, row if rows is None else rows[row])
            low = self._low[0 if atoms is None else atoms[row], column]
            ones[tied] = (finer[np.arange(len(row)), column - TOP_COLUMNS] >> np.uint64(16)) < low
        octets = np.packbits(ones, bitorder="little").reshape(len(words), columns // 8)
        digits = octets[:, 0].astype(np.int64) >> TOP_COLUMNS
        for place in range(1, columns // 8):
            digits |= octets[:, place].astype(np.int64) << 8 * place - TOP_COLUMNS
        negative = ((digits >> self.width) & 1).astype(bool)
        magnitude = digits & ((1 << self.width) - 1)

        level = self._levels(words[:, 0], bits, lane, atoms, rows)
        atom = 0 if atoms is None else atoms
        magnitude += np.minimum(level, self._top_limit[atom]) << self.digits[atom]
        if np.any(self.parts != 1):
            magnitude //= self.parts[atom]
        return magnitude, negative

    def _repeated(self, count: int) -> np.ndarray:
        """The thresholds of the only rate, once for each row; kept for blocks, which are mostly of one length."""
        size = count * self._high.shape[1]
        if size > len(self._rows):
            repeated = np.tile(self._high[0], count)
            if count > _BLOCK:
                return repeated
            self._rows = repeated
        return self._rows[:size]

    def _levels(
        self, words: np.ndarray, bits: Bits, lane: int, atoms: np.ndarray | None, rows: np.ndarray | None
    ) -> np.ndarray:
        """The geometric variable above the digits."""
        if atoms is None:
            level = sum((words < top).view(np.uint8) for top in self._top[0]).astype(np.int64)
            waiting = np.flatnonzero(level == LEVELS)
        else:
            level, waiting = np.zeros(len(words), dtype=np.int64), np.arange(len(words))
            for tops in self._top.T:  # each stops about half of the rows that passed the one before
                waiting = waiting[words[waiting] < tops[atoms[waiting]]]
                level[waiting] += 1
        attempt = 0
        while len(waiting):
            positions = waiting if rows is None else rows[waiting]
            fresh = bits.words(lane + _TOP + attempt * LANES, 1, positions)[:, 0]
            more = (fresh[:, None] < (self._top[0] if atoms is None else self._top[atoms[waiting]])).sum(axis=1)
            level[waiting] += more
            waiting = waiting[more == LEVELS]
            attempt += 1
        return level


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
