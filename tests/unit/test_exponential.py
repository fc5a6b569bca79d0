"""The exponential mechanism and permute-and-flip: exact laws, privacy, mixtures of budgets, quantiles."""

from __future__ import annotations

import json
import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statistical import goodness

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.exponential import (
    SELECTORS,
    Exponential,
    PermuteAndFlip,
    Selector,
)
from spark_rdp.planning.selection import level_fraction, plan_quantile

DRAWS = 400_000
SCORES = np.array([4, 3, 3, 0, -1, -30])
KINDS = list(SELECTORS.values())


def law(kind: type[Selector], scores: np.ndarray, epsilon: float, sensitivity: int, factor: float = 0.5) -> np.ndarray:
    """The probabilities, from the definitions: weights, or all orders of the candidates."""
    accepted = np.exp(epsilon * factor * (scores - scores.max()) / sensitivity)
    if kind is Exponential:
        return accepted / accepted.sum()
    result = np.zeros(len(scores))
    orders = list(permutations(range(len(scores))))
    for order in orders:
        left = 1.0
        for candidate in order:
            result[candidate] += left * accepted[candidate] / len(orders)
            left *= 1 - accepted[candidate]
    return result


def p_value(draws: np.ndarray, expected: np.ndarray) -> float:
    counts = np.bincount(draws, minlength=len(expected))
    kept = expected * len(draws) >= 20
    observed, wanted = np.append(counts[kept], counts[~kept].sum()), np.append(expected[kept], expected[~kept].sum())
    if wanted[-1] == 0:
        observed, wanted = observed[:-1], wanted[:-1]
    return float(stats.chisquare(observed, wanted / wanted.sum() * observed.sum()).pvalue)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_draws_follow_the_law_and_a_wrong_budget_is_rejected(kind: type[Selector], epsilon: float) -> None:
    """Chi-square, false alarm 1e-8; a budget 3 % off at epsilon 2 is seen, in both directions."""
    draws = kind((epsilon,), 3).release(np.tile(SCORES, (DRAWS, 1)), goodness.seeded_bits(DRAWS, 101))
    assert p_value(draws, law(kind, SCORES, epsilon, 3)) > 1e-8
    if epsilon == 2.0:
        for factor in (0.97, 1.03):
            assert p_value(draws, law(kind, SCORES, epsilon * factor, 3)) < 1e-8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("monotone", [False, True])
def test_no_neighbour_is_told_apart_by_more_than_epsilon(kind: type[Selector], monotone: bool) -> None:
    """The law of every pair of neighbouring scores on a small grid; half the scale would break it."""
    rng = np.random.default_rng(6)
    worst, factor = 0.0, 1.0 if monotone else 0.5
    for _ in range(60):
        scores = rng.integers(-3, 4, 4)
        change = rng.integers(0 if monotone else -1, 2, 4)
        ratio = np.log(law(kind, scores, 1.0, 1, factor) / law(kind, scores + change, 1.0, 1, factor))
        worst = max(worst, float(np.abs(ratio).max()))
    assert 0.75 < worst <= 1.0 + 1e-12


def test_permute_and_flip_is_never_worse() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        scores = rng.integers(-5, 1, 5)
        means = [float(law(kind, scores, 1.5, 1) @ scores) for kind in (PermuteAndFlip, Exponential)]
        assert means[0] >= means[1] - 1e-12


def test_a_mixture_of_budgets_is_charged_its_largest() -> None:
    """Mathematics, section 1.5; the law drawn is the mixture. Chi-square, false alarm 1e-8."""
    for kind in KINDS:
        mixed = kind((0.5, 3.0), 2, weights=(0.25, 0.75))
        assert mixed.loss == 3.0
        draws = mixed.release(np.tile(SCORES, (DRAWS, 1)), goodness.seeded_bits(DRAWS, 103))
        parts = [law(kind, SCORES, epsilon, 2) for epsilon in (0.5, 3.0)]
        assert p_value(draws, 0.25 * parts[0] + 0.75 * parts[1]) > 1e-8
        assert kind(**json.loads(json.dumps(mixed.parameters()))) == mixed


def test_rows_shapes_and_extremes() -> None:
    for kind in KINDS:
        selector = kind((1.0,), 1)
        scores = np.random.default_rng(8).integers(-9, 9, (500, 37))
        whole = selector.release(scores, goodness.seeded_bits(500, 104))
        assert np.array_equal(selector.release(scores[:70], goodness.seeded_bits(70, 104)), whole[:70])
        assert selector.release(scores[:0], goodness.seeded_bits(0, 104)).shape == (0,)
        assert np.all(selector.release(scores[:, :1], goodness.seeded_bits(500, 104)) == 0)
        far = np.tile([-(2**61), 2**61, -(2**61)], (300, 1))
        assert np.all(selector.release(far, goodness.seeded_bits(300, 105)) == 1)
        equal = selector.release(np.zeros((20_000, 3), dtype=np.int64), goodness.seeded_bits(20_000, 106))
        assert p_value(equal, np.full(3, 1 / 3)) > 1e-8
        with pytest.raises(ValueError, match="shape"):
            selector.release(np.zeros(3, dtype=np.int64), goodness.seeded_bits(3, 1))


BAD: list[dict[str, Any]] = [
    *({"epsilon": value} for value in (0, -1, math.nan, "1", None)),
    *({"level": value} for value in (0, 1, math.nan, 2 / 3 + 1e-7, "0.5")),
    *({"candidates": value} for value in (1, 0, 2.5, 10**7)),
    *({"max_groups": 0}, {"max_per_group": -1}, {"mechanism": "laplace"}),
]


@pytest.mark.parametrize("wrong", BAD, ids=str)
def test_impossible_quantiles_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        plan_quantile(**{"epsilon": 1, "level": 0.5, "candidates": 10, **wrong})
    assert level_fraction(0.999) == (999, 1000)
    for arguments in ({"weights": (0.5, 0.4)}, {"weights": (1.0,)}, {"sensitivity": 0}):
        with pytest.raises(InvalidInput):
            PermuteAndFlip(**{"epsilons": (1.0, 2.0), "sensitivity": 1, **arguments})
