"""R2DP Laplace noise on the lattice: a two-sided geometric noise whose rate is itself random."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.expected_loss import lattice_objective
from spark_rdp.mechanisms.geometric import GeometricSampler
from spark_rdp.mechanisms.second_fold import SecondFold, law_from_spec
from spark_rdp.metrics import Metric
from spark_rdp.randomness import LANES, Bits

#: Most atoms of a mixture; a plan names the law and their number, never the atoms.
MOST_ATOMS = 4096
#: Rates are kept in this range: below it noise saturates at 2**62 anyway, above it noise is 0 for ever.
LOWEST_RATE, HIGHEST_RATE = 2.0**-60, 1024.0
#: Integers less likely than e^-2048 are left out of the sampler's error bound (the cipher itself gives 2^-256).
_UNLIKELY = 2048.0
_CHUNK = 2**16
_GUIDE_BITS = 14
#: The lane of the choice of an atom, which no attempt of a rejection comes near. Local mechanisms round the input by
#: its word 1, which saves a block of the cipher.
CHOICE = LANES - 1
#: Atoms whose rates differ by less than about 2^_BAND have their sign in one column of random bits.
_BAND = 6


class AtomChooser:
    """Draws an atom for each row with exactly the given probabilities.

    Probabilities are whole multiples of 2^-64K, K words being enough to write the smallest of them with all its 53
    bits; the most likely atom takes what the others leave. One word decides a row, unless it equals the leading word
    of a threshold: then all K words are compared. Word 1 of the lane is not read.

    Args:
        weights: Positive, adding up to 1 up to rounding.
    """

    def __init__(self, weights: np.ndarray) -> None:
        self._words = math.ceil((53 - math.frexp(float(weights.min()))[1] + 1) / 64)
        one = 1 << 64 * self._words
        shares = [int(Fraction(float(w)) * one) for w in weights]
        largest = int(weights.argmax())
        shares[largest] += one - sum(shares)
        #: The probabilities really drawn.
        self.weights = np.array([float(Fraction(share, one)) for share in shares])
        self._thresholds, total = [], 0
        for share in shares[:-1]:
            total += share
            self._thresholds.append(total)
        self._leading = np.array([t >> 64 * (self._words - 1) for t in self._thresholds], dtype=np.uint64)
        cells = np.arange(2**_GUIDE_BITS, dtype=np.uint64) << np.uint64(64 - _GUIDE_BITS)
        first = np.searchsorted(self._leading, cells, side="left").astype(np.int32)
        #: The atom of all words with the same leading bits; -1 where they have several.
        self._guide = np.where(np.append(first[1:], len(self._leading)) > first, -1, first)

    def choose(self, bits: Bits, lane: int) -> np.ndarray:
        """The position of an atom for each row."""
        words = bits.words(lane, 1)[:, 0]
        atoms = self._guide.take((words >> np.uint64(64 - _GUIDE_BITS)).view(np.int64)).astype(np.intp)
        unsure = np.flatnonzero(atoms < 0)
        if len(unsure):
            found = np.searchsorted(self._leading, words[unsure], side="left")
            atoms[unsure] = found
            equal = self._leading[np.minimum(found, len(self._leading) - 1)] == words[unsure]
            tied = unsure[equal]
            if len(tied):
                for row, (first, _, *more) in zip(tied, bits.words(lane, self._words + 1, tied).tolist(), strict=True):
                    number = 0
                    for word in (first, *more):
                        number = number << 64 | word
                    atoms[row] = bisect_right(self._thresholds, number)
        return atoms


@dataclass(frozen=True)
class R2DP(Additive):
    """Noise P(X = k) = E[tanh(u/2) e^(-u abs k)], u being drawn afresh for each value.

    A continuous law of u is replaced by a fixed quadrature of it, so that everything stated here - mass function, loss,
    expectation - is of the law really sampled. The mass function is log-convex on k >= 0, being a mixture of
    exponentials; so the loss of a shift is exactly ln P(X = 0) / P(X = shift): it increases with the shift, and among
    pairs (k, k + shift) the ratio is largest where it starts at the peak.

    Args:
        law: The law of u, per lattice unit.
        count: How many atoms stand for a continuous law; a discrete law is its own.

    Source: R2DP, Theorem 4.1; mathematics, sections 1 and 3.
    """

    name: ClassVar[str] = "r2dp"
    law: SecondFold
    count: int = 256
    rates: np.ndarray = field(init=False, repr=False, compare=False)
    weights: np.ndarray = field(init=False, repr=False, compare=False)
    _heights: np.ndarray = field(init=False, repr=False, compare=False)
    _sampler: GeometricSampler = field(init=False, repr=False, compare=False)
    _chooser: AtomChooser | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_ATOMS:
            raise invalid(
                "count", f"a whole number between 1 and {MOST_ATOMS}", self.count, "Use a plan as it was written."
            )
        atoms = self.law.atoms(self.count)
        rates = np.clip(atoms.rates, LOWEST_RATE, HIGHEST_RATE)
        chooser = AtomChooser(atoms.weights) if len(rates) > 1 else None
        weights = chooser.weights if chooser else np.ones(1)
        heights = np.log(weights) + np.log(-np.expm1(-rates)) - np.log1p(np.exp(-rates))
        # Wide atoms need more random bits.
        bands = np.frexp(rates[-1] / rates)[1] // _BAND if len(rates) > 2 else np.arange(len(rates))
        sampler = GeometricSampler(rates.tolist(), bands.tolist())
        values = {"rates": rates, "weights": weights, "_heights": heights, "_chooser": chooser, "_sampler": sampler}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Callable[..., R2DP], tuple[dict[str, Any], int]]:
        return from_parameters, (self.law.spec(), self.count)

    def parameters(self) -> dict[str, Any]:
        return {"law": self.law.spec(), "count": self.count}

    def log_mass(self, k: np.ndarray) -> np.ndarray:
        return self._mixture(self._heights, np.abs(np.asarray(k, dtype=np.float64)))

    def _mixture(self, heights: np.ndarray, distance: np.ndarray) -> np.ndarray:
        """ln of the sum of e^(height - rate * distance), for each distance."""
        flat = distance.ravel()
        result = np.empty(len(flat))
        step = max(_CHUNK // len(self.rates), 1)
        for start in range(0, len(flat), step):
            table = np.multiply.outer(flat[start : start + step], -self.rates)
            table += heights
            top = table.max(axis=1)
            table -= top[:, None]
            result[start : start + step] = top + np.log(np.exp(table, out=table).sum(axis=1))
        return result.reshape(distance.shape)

    def log_tail(self, m: int) -> float:
        if m <= 0:
            return 0.0
        heights = np.log(self.weights) + math.log(2) - np.log1p(np.exp(-self.rates))
        return min(0.0, float(self._mixture(heights, np.array([float(m)]))[0]))

    def loss(self, shift: int) -> float:
        shares = np.exp(self._heights - self._heights.max())
        fall = self.rates * shift
        lost = float(shares @ -np.expm1(-fall)) / float(shares.sum())
        if lost < 0.5:  # 1 - P(shift) / P(0), a sum of positive terms, keeps its digits however small it is
            exact = -math.log1p(-lost)
        else:
            exact = float(logsumexp(self._heights) - logsumexp(self._heights - fall))
        return exact * (1 + 2.0**-44) + self.sampling_slack

    @property
    def sampling_slack(self) -> float:
        # The sampler's atom of rate u is off by a factor e^(slack + 2^-50 u k) at k, and averaged over the atoms that
        # matter at k, u k is at most ln P(0)/P(k) (the mass function is log-convex). Weights are off by 2^-52.
        slack = self._sampler.slack
        if self._chooser is None:
            return slack
        return 2 * (slack + 2.0**-50 + 2.0**-50 * _UNLIKELY)

    def expectation(self, metric: Metric, granularity: float) -> float:
        if len(self.rates) <= 2:
            parts = [metric.expect_geometric(float(u), granularity) for u in self.rates]
            return float(self.weights @ np.array(parts))
        return float(self.weights @ lattice_objective(metric, granularity)(self.rates))

    def noise(self, bits: Bits) -> np.ndarray:
        atoms = None if self._chooser is None else self._chooser.choose(bits, CHOICE)
        return self._sampler.two_sided(bits, 0, atoms)


def from_parameters(law: dict[str, Any], count: int) -> R2DP:
    """Rebuild the mechanism from `R2DP.parameters`."""
    return R2DP(law_from_spec(law), count)
