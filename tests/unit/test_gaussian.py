"""Gaussian noise: published scales, delta from the mass function by brute force, the planner, random scales."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms import build
from spark_rdp.mechanisms.gaussian import DiscreteGaussian, GaussianMixture
from spark_rdp.metrics import L1, L2, Lp, Usefulness
from spark_rdp.planning.additive import plan
from spark_rdp.planning.gaussian import FLOOR, analytic_delta, analytic_sigma, tail_sigma


def test_scales_of_the_papers() -> None:
    """kappa of R2DP's Theorem F.1, and the analytic Gaussian, which needs less noise."""
    assert tail_sigma(math.log(2), 0.05) == pytest.approx(2.6457, abs=5e-5)
    assert analytic_sigma(1.0, 1e-5) == pytest.approx(3.730632, abs=1e-6)
    for epsilon in (0.01, 0.5, 3.0, 40.0):
        for delta in (1e-12, 1e-3, 0.3):
            sigma = analytic_sigma(epsilon, delta)
            assert float(analytic_delta(np.array(sigma), epsilon)) == pytest.approx(delta, rel=1e-4)
            assert sigma <= tail_sigma(epsilon, delta) * (1 + 1e-9)


def pair(noise: Any, shift: int, coordinates: int) -> tuple[np.ndarray, np.ndarray]:
    k = np.arange(-60, 61)
    here, there = np.exp(noise.log_mass(k)), np.exp(noise.log_mass(k + shift))
    p, q = here, there
    for _ in range(coordinates - 1):
        p, q = np.multiply.outer(p, here).ravel(), np.multiply.outer(q, there).ravel()
    return p, q


@pytest.mark.parametrize(
    ("sigma", "shift", "coordinates"), [(0.7, 1, 1), (3.0, 1, 1), (5.0, 9, 1), (1.5, 1, 2), (1.2, 2, 3)]
)
def test_delta_is_that_of_the_mass_function(sigma: float, shift: int, coordinates: int) -> None:
    """Every integer vector added up; smaller shifts never need more."""
    noise = DiscreteGaussian(sigma)
    p, q = pair(noise, shift, coordinates)
    for epsilon in (0.0, 0.3, 1.0, 4.0):
        brute = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        claimed = noise.delta(epsilon, shift, coordinates)
        assert brute <= claimed * (1 + 1e-12)
        assert claimed == pytest.approx(brute, rel=1e-4 if sigma < 1.5 else 1e-6, abs=1e-14)
        assert noise.delta(epsilon, max(1, shift - 1), coordinates) <= claimed
    if coordinates == 2:
        p, q = pair(noise, 1, 1)
        mixed = np.maximum(np.multiply.outer(p, p) - math.e * np.multiply.outer(q, p), 0).sum()
        assert mixed <= noise.delta(1.0, 1, 2)


def test_fine_lattices_reach_the_analytic_gaussian() -> None:
    for sigma, epsilon in ((3.0, 1.0), (1.0, 0.5), (0.4, 3.0), (5.0, 1.0)):
        exact = norm.cdf(1 / (2 * sigma) - epsilon * sigma) - math.exp(epsilon) * norm.cdf(
            -1 / (2 * sigma) - epsilon * sigma
        )
        assert DiscreteGaussian(sigma * 2**20).delta(epsilon, 2**20) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("sigma", [0.0625, 0.4, 2.0, 37.5])
def test_the_mass_function_is_one(sigma: float) -> None:
    for noise in (DiscreteGaussian(sigma), GaussianMixture((sigma, 3 * sigma), (0.25, 0.75))):
        k = np.arange(-2000, 2001)
        mass = np.exp(noise.log_mass(k))
        assert mass.sum() == pytest.approx(1, abs=1e-12)
        for m in (1, 2, 7):
            assert math.exp(noise.log_tail(m)) == pytest.approx(
                float(mass[np.abs(k) >= m].sum()), rel=1e-10, abs=1e-300
            )
        for metric in (L1(), L2(), Lp(3), Usefulness(1.3)):
            assert noise.expectation(metric, 0.5) == pytest.approx(
                float(mass @ metric.loss(0.5 * k)), rel=1e-10, abs=1e-300
            )
        again = build(noise.name, json.loads(json.dumps(noise.parameters())))
        assert again == noise
        assert noise.loss(1) == math.inf


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 1.0, 20.0, 100.0])
@pytest.mark.parametrize("delta", [1e-30, 1e-9, 0.05, 0.5])
@pytest.mark.parametrize("profile", [{}, {"granularity": 1}, {"coordinates": 300}], ids=str)
def test_budgets_are_met_and_used(epsilon: float, delta: float, profile: dict[str, Any]) -> None:
    chosen = plan(epsilon=epsilon, delta=delta, sensitivity=3, metric="l2", mechanism="gaussian", **profile)
    noise = chosen.build()
    assert isinstance(noise, DiscreteGaussian)
    steps, coordinates = chosen.integer_sensitivity, chosen.coordinates
    assert noise.delta(epsilon, steps, coordinates) <= delta
    assert DiscreteGaussian(noise.sigma * 0.999).delta(epsilon, steps, coordinates) > delta
    assert chosen.verified_epsilon <= epsilon
    assert noise.delta(chosen.verified_epsilon, steps, coordinates) <= delta
    assert chosen.certificate["bound"] is None
    assert chosen.seconds < 5


def test_coordinates_cost_their_square_root() -> None:
    one, many = (
        plan(epsilon=1, delta=1e-6, sensitivity=1, metric="l2", mechanism="gaussian", coordinates=k) for k in (1, 64)
    )
    assert many.metric_value == pytest.approx(8 * one.metric_value, rel=1e-6)


def test_auto_takes_it_with_a_delta_only() -> None:
    arguments: dict[str, Any] = {"epsilon": 1, "sensitivity": 1, "metric": "l2", "coordinates": 50}
    assert plan(delta=1e-6, **arguments).mechanism == "gaussian"
    assert "gaussian" not in plan(**arguments).alternatives
    for name in ("gaussian", "r2dp-gaussian"):
        with pytest.raises(InvalidInput, match="delta must be above 0"):
            plan(mechanism=name, **arguments)
        with pytest.raises(InvalidInput, match="epsilon must be at most 100"):
            plan(epsilon=101, delta=1e-6, sensitivity=1, metric="l2", mechanism=name)


@pytest.mark.parametrize("metric", ["l1", "l2", {"usefulness": 0.1}], ids=str)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_one_scale_is_the_best_law_of_scales_at_small_deltas(epsilon: float, metric: Any) -> None:
    """Mathematics, section 1.3."""
    chosen = plan(epsilon=epsilon, delta=1e-3, sensitivity=1, metric=metric, mechanism="r2dp-gaussian")
    assert len(chosen.parameters["sigmas"]) == 1
    assert chosen.metric_value == chosen.alternatives["gaussian"]
    assert "no mixture" in chosen.certificate["reason"]


def test_no_component_answers_almost_exactly() -> None:
    """At a large delta a random scale may gain; never by a component below the floor, and delta is kept."""
    for epsilon, delta, gamma in ((0.5, 0.05, 0.1), (0.1, 0.3, 0.05), (3.0, 0.4, 0.3)):
        chosen = plan(
            epsilon=epsilon, delta=delta, sensitivity=1, metric={"usefulness": gamma}, mechanism="r2dp-gaussian"
        )
        plain = plan(epsilon=epsilon, delta=delta, sensitivity=1, metric="l2", mechanism="gaussian").parameters["sigma"]
        assert min(chosen.parameters["sigmas"]) >= 0.9 * FLOOR * plain
        assert chosen.build().delta(epsilon, chosen.integer_sensitivity) <= delta
        assert chosen.metric_value >= (chosen.alternatives["gaussian"] or 1)
    with pytest.raises(InvalidInput, match="coordinates must be 1"):
        plan(epsilon=1, delta=1e-6, sensitivity=1, metric="l2", mechanism="r2dp-gaussian", coordinates=2)
