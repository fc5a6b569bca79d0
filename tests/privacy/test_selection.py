"""Private selection of keys: private in every step, as good as can be, fast."""

from __future__ import annotations

import itertools
import math
import time
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.privacy.selection import ONE, exp_below, is_private, keep_table
from spark_rdp.randomness import KeyedBits, bernoulli

CASES = [(10**6, 1e-6, 1), (500_000, 1e-5, 7), (3_000_000, 1e-3, 2), (10_000, 1e-4, 3), (10**10, 1e-9, 1), (1, 0.01, 1)]


def exp_with_40_digits(epsilon: Fraction) -> Fraction:
    with localcontext() as context:
        context.prec = 40
        return Fraction((Decimal(epsilon.numerator) / Decimal(epsilon.denominator)).exp())


@pytest.mark.parametrize(("millionths", "delta", "keys"), CASES)
def test_every_change_by_one_unit_is_private(millionths: int, delta: float, keys: int) -> None:
    """In exact fractions, by a second route to e^epsilon, in both directions and for both outcomes."""
    table = keep_table(millionths, delta, keys)
    epsilon, allowance = Fraction(millionths, 10**6 * keys), Fraction(delta) / keys
    growth = exp_with_40_digits(min(epsilon, Fraction(64)))
    chances = [Fraction(int(threshold), ONE) for threshold in table.thresholds] + [Fraction(1), Fraction(1)]
    assert chances[0] == 0
    for one, other in itertools.pairwise(chances):
        for less, more in ((one, other), (other, one)):
            assert more <= growth * less + allowance
            assert 1 - more <= growth * (1 - less) + allowance


@pytest.mark.parametrize(("millionths", "delta", "keys"), CASES)
def test_no_private_table_publishes_more(millionths: int, delta: float, keys: int) -> None:
    """The recurrence in doubles: the most every step allows, given the step before."""
    table = keep_table(millionths, delta, keys)
    epsilon, allowance = millionths / 1e6 / keys, delta / keys
    best = [0.0]
    while best[-1] < 1 and len(best) < table.certain:
        rising = math.exp(min(epsilon, 64.0)) * best[-1] + allowance
        best.append(min(rising, 1 - math.exp(-epsilon) * (1 - best[-1] - allowance), 1.0))
    np.testing.assert_allclose(table.probability(np.arange(table.certain)), best, rtol=1e-9, atol=1e-12)
    closing = 1 - math.exp(-epsilon) * (1 - best[-1] - allowance)
    assert min(math.exp(min(epsilon, 64.0)) * best[-1] + allowance, closing) > 1 - 1e-9, "certain as early as possible"


def test_mutants_of_the_table_are_caught() -> None:
    table, delta = keep_table(10**6, 1e-3, 1), math.floor(Fraction(1e-3) * ONE)
    thresholds, growth = [int(threshold) for threshold in table.thresholds], exp_below(Fraction(1))
    assert is_private(thresholds, growth, delta)
    for place in range(len(thresholds)):
        assert not is_private([t + (i == place) * (1 << 40) for i, t in enumerate(thresholds)], growth, delta), place
    assert not is_private(thresholds[:-1], growth, delta), "certain one unit too early"
    bare = [0] * 8 + [ONE - 1]  # a bare threshold
    assert not is_private(bare, growth, delta)


def test_e_to_the_epsilon_is_rounded_down() -> None:
    for epsilon in (Fraction(1, 10**9), Fraction(1, 3), Fraction(1), Fraction(40)):
        below, exact = Fraction(exp_below(epsilon), 1 << 96), exp_with_40_digits(epsilon)
        assert exact * (1 - Fraction(1, 10**26)) < below < exact


def test_keys_of_one_unit_appear_no_more_often_than_delta() -> None:
    """100,000 keys of one unit each: 5 standard errors; false alarms below 1e-6 (fixed bits, so none at all)."""
    delta, keys = 0.01, 100_000
    table = keep_table(10**6, delta, 1)
    units = np.ones(keys, dtype=np.int64)
    thresholds, always = table.keep(units)
    bits = KeyedBits(
        b"k" * 32, np.arange(keys * 16, dtype=np.uint32).astype(np.uint8).reshape(keys, 16), np.arange(keys)
    )
    rate = np.mean(bernoulli(bits, 0, thresholds) | always)
    error = math.sqrt(delta * (1 - delta) / keys)
    assert rate <= delta + 5 * error
    assert rate >= delta - 5 * error


def test_many_units_are_certain_and_none_never() -> None:
    table = keep_table(10**6, 1e-6, 1)
    assert table.certain == 28
    np.testing.assert_array_equal(table.probability(np.array([0, 28, 10**12])), [0, 1, 1])


def test_small_budgets_are_fast_or_refused() -> None:
    began = time.perf_counter()
    assert keep_table(100, 1e-6, 1).certain > 10_000
    with pytest.raises(InvalidInput, match=r"privacy\.epsilon must be large enough .* got 1e-06"):
        keep_table(1, 1e-12, 1)
    with pytest.raises(InvalidInput, match=r"group_by\.delta must be at least .* got 1e-25"):
        keep_table(10**6, 1e-25, 1)
    assert time.perf_counter() - began < 5
