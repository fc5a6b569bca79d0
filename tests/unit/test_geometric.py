"""The geometric sampler, checked exactly: the probabilities its thresholds imply, in rational arithmetic."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from spark_rdp.mechanisms.geometric import LEVELS, TOP_COLUMNS, Geometric, GeometricSampler
from spark_rdp.randomness import SystemBits

RATES = [1e-12, 2.0**-20, 3e-4, 0.1, 0.5, 0.51, 0.75, 1.0]
WORD = 2**64


def implied_mass(sampler: GeometricSampler, k: int) -> Fraction:
    """P(K = k) as sampled, from the thresholds themselves (rates of at most 1: one part)."""
    probability = Fraction(1)
    digits = int(sampler.digits[0])
    for place in range(digits):
        column = TOP_COLUMNS + place
        one = Fraction((int(sampler._high[0, column]) << 48) + int(sampler._low[0, column]), WORD)
        probability *= one if k >> place & 1 else 1 - one
    turns, level = divmod(k >> digits, LEVELS)
    edges = [WORD, *(int(t) for t in sampler._top[0])]
    return probability * Fraction(edges[LEVELS], WORD) ** turns * Fraction(edges[level] - edges[level + 1], WORD)


@pytest.mark.parametrize("rate", RATES)
def test_sampled_probabilities_are_within_the_slack(rate: float) -> None:
    sampler = GeometricSampler([rate])
    span = int(40 / rate)
    points = sorted({0, 1, 2, 3, 5, 100, span // 7, span // 3, span // 2, span - 1, span})
    with localcontext() as context:
        context.prec = 60
        masses = [implied_mass(sampler, k) for k in points]
        logs = [(Decimal(m.numerator) / Decimal(m.denominator)).ln() for m in masses]
        for i, first in enumerate(points):
            for j, second in enumerate(points):
                error = logs[i] - logs[j] - Decimal(rate) * (second - first)
                assert abs(error) <= sampler.slack + 2.0**-50 * rate * abs(second - first)


@pytest.mark.parametrize("rate", [2.0**-20, 0.3, 2.5, 9.0, 40.0])
def test_same_bits_same_noise_in_any_subset(rate: float) -> None:
    sampler = GeometricSampler([rate, 1.7])
    bits = SystemBits(5000)
    atoms = np.arange(5000) % 2
    rows = np.array([4999, 0, 17])
    whole = sampler.magnitudes(bits, 9, atoms)
    assert np.array_equal(whole, sampler.magnitudes(bits, 9, atoms))
    assert np.array_equal(whole[rows], sampler.magnitudes(bits, 9, atoms[rows], rows))


def test_ties_of_the_first_sixteen_bits_are_settled_by_the_rest() -> None:
    """Where only the low bits of a threshold are set, every one of its digits is won by a tie."""
    sampler = GeometricSampler([0.1])
    sampler._high[:] = 0
    sampler._low[:] = 2**47  # each digit is one with probability 2**-17
    draws = sampler.magnitudes(SystemBits(2_000_000), 0) & 1
    assert 1 <= draws.sum() <= 55  # expected 15.3; outside with probability below 1e-6


@pytest.mark.parametrize("rate", [1e-9, 0.01, 1.0, 5.0, 50.0, 800.0])
def test_quantiles_and_tails_agree(rate: float) -> None:
    mechanism = Geometric(rate)
    for level in (0.5, 0.95, 0.975, 0.999999):
        m = mechanism.quantile(level)
        assert mechanism.log_tail(m + 1) <= math.log1p(-level)
        assert m == 0 or mechanism.log_tail(m) > math.log1p(-level)


def test_release_saturates_and_never_wraps() -> None:
    mechanism = Geometric(1e-15)
    values = np.array([2**62, -(2**62)] * 500)
    noised = mechanism.release(values, SystemBits(1000))
    assert np.all(np.abs(noised) <= 2**62)
    assert np.all(np.sign(noised) == np.sign(values))
