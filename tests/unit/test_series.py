"""Sums over long ranges, against closed forms and against adding up term by term."""

from __future__ import annotations

import math

import numpy as np
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.series import block_sums, gauss_rule, tail_sum


@pytest.mark.parametrize("length", [1, 2, 64, 65, 100, 4097, 10**6, 2**40])
@pytest.mark.parametrize("power", [0, 1, 2, 7])
def test_rule_is_exact_for_polynomials(length: int, power: int) -> None:
    nodes, weights = gauss_rule(length)
    if length <= 10**6:
        exact = math.fsum(float(k) ** power for k in range(length))
    else:  # the leading terms of Faulhaber's formula; the rest is below double precision
        exact = length ** (power + 1) / (power + 1) - length**power / 2
        exact += length ** (power - 1) * power / 12 if power else length**power / 2
    assert weights @ nodes**power == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 1000, 1001, 99_999])
def test_kinks_and_jumps_are_added_up(length: int) -> None:
    def term(k: np.ndarray) -> np.ndarray:
        return np.minimum(k, 700.0) + 1000.0 * (k > 1003)

    starts = np.array([0, 1, 690, 5000])
    sums = block_sums(term, starts, length)
    for start, total in zip(starts, sums, strict=True):
        assert total == pytest.approx(math.fsum(term(start + np.arange(length, dtype=float))), rel=1e-12)


@pytest.mark.parametrize("rate", [1e-5, 0.01, 0.9, 30.0])
def test_tails_end(rate: float) -> None:
    total = tail_sum(lambda k: np.exp(-rate * k), 3, 1 / rate)
    assert total == pytest.approx(math.exp(-3 * rate) / -math.expm1(-rate), rel=1e-12)


def test_a_term_that_jumps_everywhere_is_refused() -> None:
    with pytest.raises(InvalidInput, match="changes smoothly"):
        block_sums(lambda k: np.sin(1e3 * k) ** 2, np.array([0]), 2**40)
