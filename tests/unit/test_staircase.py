"""The integer staircase: mass, loss, expectations and the best step, each against brute force or a linear programme."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from statistical.goodness import draw, seeded_bits

from spark_rdp.mechanisms import build
from spark_rdp.mechanisms.base import SATURATION
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase, best_step
from spark_rdp.metrics import L1, L2, CustomLoss, Lp, Metric, Usefulness

SMALL = [
    Staircase(epsilon, period, step)
    for epsilon, period, step in [(1.0, 1, 1), (0.3, 7, 3), (2.0, 7, 7), (0.05, 331, 100), (5.0, 101, 11)]
]
METRICS: list[Metric] = [
    L1(),
    L2(),
    Lp(3),
    Lp(1.5),
    Usefulness(0.7),
    Usefulness(9.3),
    CustomLoss(lambda x: np.minimum(np.maximum(x, 0.0) ** 2, 100.0)),
]


def window(staircase: Staircase) -> np.ndarray:
    """Integers that hold all but e^-45 of the mass."""
    return np.arange(0, int((45 / staircase.epsilon + 2) * staircase.period))


@pytest.mark.parametrize("staircase", SMALL, ids=str)
def test_mass_is_the_definition_and_sums_to_one(staircase: Staircase) -> None:
    """p(k) = a, then a e^-eps up to the period, then e^-eps p(k - period), both ways."""
    k = window(staircase)
    mass = np.exp(staircase.log_mass(k))
    assert mass[0] + 2 * math.fsum(mass[1:]) == pytest.approx(1.0, rel=1e-12)
    low = math.exp(-staircase.epsilon)
    a = mass[0]
    for i in range(4 * staircase.period):
        if i >= staircase.period:
            assert mass[i] == pytest.approx(low * mass[i - staircase.period], rel=1e-12)
        else:
            assert mass[i] == pytest.approx(a if i < staircase.step else a * low, rel=1e-12)
    assert np.array_equal(staircase.log_mass(-k), staircase.log_mass(k))


@pytest.mark.parametrize("staircase", SMALL, ids=str)
def test_tails_and_quantiles_agree_with_the_mass(staircase: Staircase) -> None:
    mass = np.exp(staircase.log_mass(window(staircase)))
    for m in [0, 1, 2, staircase.step, staircase.step + 1, staircase.period, 3 * staircase.period + 2]:
        expected = 2 * math.fsum(mass[m:]) if m else 1.0
        assert math.exp(staircase.log_tail(m)) == pytest.approx(expected, rel=1e-10)
    for level in (0.5, 0.95, 0.999):
        m = staircase.quantile(level)
        assert mass[0] + 2 * math.fsum(mass[1 : m + 1]) >= level - 1e-12
        assert m == 0 or mass[0] + 2 * math.fsum(mass[1:m]) < level


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric.spec()))
@pytest.mark.parametrize("staircase", SMALL, ids=str)
def test_expectations_equal_sums_term_by_term(staircase: Staircase, metric: Metric) -> None:
    k = window(staircase)
    weights = np.where(k == 0, 1, 2) * np.exp(staircase.log_mass(k))
    expected = math.fsum(weights * (metric.loss(0.25 * k) + metric.loss(-0.25 * k)) / 2)
    assert staircase.expectation(metric, 0.25) == pytest.approx(expected, rel=1e-9, abs=1e-17)


def test_long_sums_meet_closed_forms() -> None:
    """A billion terms: the general sum of a square against the closed form, at eps = 1e-6 and on a fine lattice."""
    for epsilon, period in [(1e-6, 7), (1e-6, 2**20), (1.0, 2**40), (50.0, 2**20)]:
        staircase = Staircase(epsilon, period, (period + 1) // 2)
        general = staircase.expectation(CustomLoss(np.square), 1.0)
        assert general == pytest.approx(staircase.expectation(L2(), 1.0), rel=1e-9)


def test_period_one_is_the_geometric_distribution() -> None:
    k = np.arange(-50, 51)
    staircase, geometric = Staircase(0.7, 1, 1), Geometric(0.7)
    np.testing.assert_allclose(staircase.log_mass(k), geometric.log_mass(k), rtol=1e-13)
    assert staircase.log_tail(9) == pytest.approx(geometric.log_tail(9), rel=1e-13)
    for metric in METRICS:
        assert staircase.expectation(metric, 0.25) == pytest.approx(geometric.expectation(metric, 0.25), rel=1e-11)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: str(metric.spec()))
@pytest.mark.parametrize("epsilon", [0.02, 1.0, 4.0])
def test_best_step_is_the_best_of_all(epsilon: float, metric: Metric) -> None:
    period = 37
    values = [Staircase(epsilon, period, step).expectation(metric, 0.25) for step in range(1, period + 1)]
    chosen = Staircase(epsilon, period, best_step(epsilon, period, metric, 0.25)).expectation(metric, 0.25)
    assert chosen <= min(values) * (1 + 1e-12)


def test_best_step_meets_the_known_formulas() -> None:
    """Geng and Viswanath: 1/(1 + e^(eps/2)) for l1; gamma for usefulness."""
    period = 2**20
    for epsilon in (0.1, 1.0, 5.0):
        share = best_step(epsilon, period, L1(), 1.0) / period
        assert share == pytest.approx(1 / (1 + math.exp(epsilon / 2)), abs=2e-6)
        assert best_step(epsilon, period, Usefulness(0.1), 1 / period) == 104_858


@pytest.mark.parametrize("metric", [L1(), L2(), Usefulness(1.3)], ids=lambda metric: metric.key())
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_no_additive_noise_is_better(epsilon: float, metric: Metric) -> None:
    """A linear programme over all symmetric noises whose tail repeats geometrically finds nothing better."""
    period, count = 5, 40
    unit = 1.0
    low = math.exp(-epsilon)
    k = np.arange(count)
    repeats = np.arange(1, 200)  # places beyond `count` repeat the last period, each time e^-eps smaller
    losses = metric.loss(unit * k)
    multiplicity = np.where(k == 0, 1.0, 2.0)
    cost, mass = multiplicity * losses, multiplicity.copy()
    for place in range(count - period, count):
        mass[place] += 2 * low / (1 - low)
        cost[place] += 2 * math.fsum(low**repeats * metric.loss(unit * (place + period * repeats)))
    rows = []
    for i in range(-count, count):
        for j in range(1, period + 1):
            for first, second in ((abs(i), abs(i + j)), (abs(i + j), abs(i))):
                if max(first, second) < count:
                    row = np.zeros(count)
                    row[first] += 1
                    row[second] -= math.exp(epsilon)
                    rows.append(row)
    found = linprog(cost, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=[mass], b_eq=[1.0], bounds=(0, None))
    assert found.status == 0
    best = Staircase(epsilon, period, best_step(epsilon, period, metric, unit)).expectation(metric, unit)
    assert best == pytest.approx(found.fun, rel=1e-7)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.3, 50.0, 708.0, 709.0, 710.0, 745.0, 800.0, 1e4])
@pytest.mark.parametrize(("period", "step"), [(1, 1), (2**20, 1), (2**20, 2**19), (2**40, 2**40)])
def test_what_is_drawn_is_within_the_slack(epsilon: float, period: int, step: int) -> None:
    """Centre and outside, in 60 digits, against the coin that chooses between them (known-faults, row 51)."""
    staircase = Staircase(epsilon, period, step)
    with localcontext() as context:
        context.prec = 80
        decay = (-Decimal(epsilon)).exp()
        outside = 2 * period * decay / (1 - decay)
        exact = {"centre": (2 * step - 1) / (2 * step - 1 + outside), "outside": outside / (2 * step - 1 + outside)}
        drawn = "outside" if staircase._log_outside < staircase._log_centre else "centre"  # the rarer of the two
        logarithm = min(staircase._log_centre, staircase._log_outside)
        error = abs(exact[drawn].ln() - Decimal(logarithm))
    rare = -logarithm
    assert error <= Decimal(2.0**-50) * Decimal(rare + 1)
    assert rare >= math.log(2) - 1e-12
    assert staircase.sampling_slack <= 1e-12 * max(1.0, epsilon)
    assert math.isfinite(staircase.loss(period))
    assert all(math.isfinite(staircase.expectation(metric, 1.0)) for metric in (L1(), L2(), Usefulness(1)))


def test_draws_are_repeatable_and_saturate() -> None:
    staircase = Staircase(1e-6, 2**40, 2**39)
    bits = seeded_bits(1000, 5)
    assert np.array_equal(staircase.noise(bits), staircase.noise(bits))
    values = np.full(1000, SATURATION, dtype=np.int64)
    released = staircase.release(values, bits)
    assert np.abs(released).max() == SATURATION
    assert len(draw(staircase, 0, 1)) == 0


@pytest.mark.parametrize("mechanism", [Staircase(0.1, 7, 3), Geometric(0.1)], ids=str)
def test_mechanisms_rebuild_from_their_parameters(mechanism: Any) -> None:
    assert build(mechanism.name, mechanism.parameters()) == mechanism
    assert pickle.loads(pickle.dumps(mechanism)) == mechanism
    assert len(pickle.dumps(mechanism)) < 64 * 1024
