"""Renyi divergences: the figures of mathematics 1.4, closed forms, and the order bound F.4, exact value, pure loss."""

from __future__ import annotations

import math

import numpy as np
import pytest
from laws import of_mean

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.gaussian import DiscreteGaussian
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.r2dp import R2DP
from spark_rdp.mechanisms.second_fold import Gamma, SecondFold, TwoPoint
from spark_rdp.mechanisms.staircase import Staircase
from spark_rdp.privacy import renyi

STEPS = 2**20
ORDERS = (1, 2, 30)


@pytest.mark.parametrize(("order", "exact", "bound"), [(2, 0.489520, 0.705577), (4, 0.689358, 2.116)])
def test_figures_of_a_gamma_fold(order: int, exact: float, bound: float) -> None:
    """Mathematics, section 1.4: Gamma(3, 0.3), D = 1, epsilon 1.04946."""
    law = Gamma(3, 0.3)
    noise = R2DP(law.scaled(1 / STEPS))
    assert noise.loss(STEPS) == pytest.approx(1.04946, abs=5e-6)
    assert renyi.divergence(noise, order, STEPS) == pytest.approx(exact, abs=1e-6)
    assert renyi.r2dp_bound(law, order, 1.0) == pytest.approx(bound, abs=5e-4)
    assert renyi.r2dp_bound(law, 5, 1.0) == math.inf


@pytest.mark.parametrize("law", of_mean(1.5), ids=lambda law: law.name)
def test_exact_values_lie_below_the_bound_and_epsilon_and_grow(law: SecondFold) -> None:
    noise = R2DP(law.scaled(1 / STEPS), 128)
    values = [renyi.divergence(noise, order, STEPS) for order in ORDERS]
    assert np.all(np.diff(values) > 0)
    assert values[-1] <= noise.loss(STEPS)
    for order, value in zip(ORDERS, values, strict=True):
        assert value <= renyi.r2dp_bound(law, order, 1.0) * (1 + 1e-6)
    t = min(0.5 * law.reach, 2.0)
    atoms = law.atoms(1024)
    assert float(law.log_mgf(t)) == pytest.approx(math.log(atoms.weights @ np.exp(t * atoms.rates)), abs=1e-6)
    if atoms.weights @ (atoms.rates / law.mean - 1) ** 2 > 1e-6:  # else it is Laplace noise, whose bound is sharp
        assert renyi.r2dp_bound(law, ORDERS[1], 1.0) > values[1]


@pytest.mark.parametrize("order", [1, 1.01, 2, 8, 64])
def test_closed_forms(order: float) -> None:
    """Laplace and Gaussian rows of the paper's Table 3, reached on fine lattices; randomised response by its sum."""
    assert renyi.divergence(Geometric(1.3 / STEPS), order, STEPS) == pytest.approx(renyi.laplace(1.3, order), rel=1e-9)
    assert renyi.divergence(DiscreteGaussian(2.0 * STEPS), order, STEPS) == pytest.approx(order / 8, rel=1e-8)
    assert renyi.gaussian(2.0, order) == order / 8
    p = np.array([0.8, 0.2])
    if order == 1:
        direct = float(p @ np.log(p / p[::-1]))
    else:
        direct = math.log(float((p**order * p[::-1] ** (1 - order)).sum())) / (order - 1)
    assert renyi.randomised_response(0.8, order) == pytest.approx(direct, rel=1e-12)
    assert direct <= math.log(4)


@pytest.mark.parametrize(
    "noise", [Geometric(0.4), Staircase(1.0, 7, 3), R2DP(TwoPoint(0.1, 1.7, 0.3)), DiscreteGaussian(2.5)]
)
@pytest.mark.parametrize("order", [1, 2, 9])
def test_sums_term_by_term(noise: Additive, order: float) -> None:
    k = np.arange(-600, 600)
    for shift in (1, 5):
        here, there = noise.log_mass(k), noise.log_mass(k + shift)
        if order == 1:
            direct = float(np.exp(here) @ (here - there))
        else:
            direct = math.log(math.fsum(np.exp(order * here + (1 - order) * there))) / (order - 1)
        assert renyi.divergence(noise, order, shift) == pytest.approx(min(direct, noise.loss(shift)), rel=1e-8)


@pytest.mark.parametrize("order", [0, 0.5, math.nan, 65, "2", None])
def test_impossible_orders(order: float) -> None:
    with pytest.raises(InvalidInput, match="order"):
        renyi.laplace(1.0, order)
