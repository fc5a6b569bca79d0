"""R2DP on the lattice: its mass function, its loss by three routes, and empirical audits."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from laws import LAWS, of_mean
from statistical import goodness

from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.expected_loss import lattice_objective
from spark_rdp.mechanisms.r2dp import R2DP
from spark_rdp.mechanisms.second_fold import Gamma, LinearCombination, SecondFold, TwoPoint, Uniform
from spark_rdp.metrics import L1, L2, Lp, Usefulness
from spark_rdp.planning.certified import certify
from spark_rdp.planning.ensemble import FINAL_ATOMS, best_ensemble, best_family, calibrate
from spark_rdp.privacy.audit import audit
from spark_rdp.privacy.verify import verify


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_the_mass_function_is_one(law: SecondFold) -> None:
    """It adds up to 1, agrees with its tails, expectations and quantiles, and is symmetric and log-convex."""
    noise = R2DP(law)
    k = np.arange(0, 60_000)
    mass = np.exp(noise.log_mass(k))
    beyond = math.exp(noise.log_tail(len(k)))
    assert mass[0] + 2 * mass[1:].sum() + beyond == pytest.approx(1, abs=1e-11)
    assert np.array_equal(noise.log_mass(-k[:50]), noise.log_mass(k[:50]))
    assert np.all(np.diff(noise.log_mass(k[:3000]), 2) >= -1e-10)
    tails = 2 * np.cumsum(mass[::-1])[::-1] + beyond
    for m in (1, 2, 7, 60):
        assert math.exp(noise.log_tail(m)) == pytest.approx(tails[m], rel=1e-10)
    assert noise.log_tail(0) == 0.0
    for level in (0.5, 0.95, 0.999):
        m = noise.quantile(level)
        assert math.exp(noise.log_tail(m + 1)) <= 1 - level + 1e-12
        assert m == 0 or math.exp(noise.log_tail(m)) > 1 - level - 1e-12
    if beyond * float(k[-1]) ** 2 < 1e-9:  # else the window misses what the expectation counts
        for metric in (L1(), L2(), Lp(1.5), Usefulness(5.3)):
            direct = mass[0] * metric.loss(np.zeros(1))[0] + 2 * float(mass[1:] @ metric.loss(0.5 * k[1:]))
            assert noise.expectation(metric, 0.5) == pytest.approx(direct, rel=1e-7)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_the_loss_is_the_largest_ratio(law: SecondFold) -> None:
    """ln p(0)/p(D) against every ratio in a long window, and against `verify`, which knows no formula."""
    noise = R2DP(law)
    k = np.arange(-4000, 4001)
    here = noise.log_mass(k)
    for shift in (1, 2, 7, 100, 3000):
        ratios = np.abs(here[shift:] - here[:-shift])
        assert noise.loss(shift) == pytest.approx(float(ratios.max()), rel=1e-9, abs=1e-10)
        assert noise.loss(shift) >= ratios.max() - 1e-12
    for shift in (1, 100):
        verified = verify(noise, shift)
        assert verified == pytest.approx(noise.loss(shift), rel=1e-9, abs=1e-10)
        assert verified <= noise.loss(shift)
    losses = [noise.loss(shift) for shift in range(1, 40)]
    assert np.all(np.diff(losses) > 0)
    assert np.all(np.diff(losses, 2) < 1e-9), "concave: the loss of a vector is not that of its L1 norm"


@pytest.mark.parametrize("law", of_mean(3.0), ids=lambda law: law.name)
def test_fine_lattices_reach_theorem_4_1(law: SecondFold) -> None:
    """`verify` of the sampled noise agrees with the continuous law's loss to 1e-9 (sums are compressed: 1e-6)."""
    steps = 2**24
    noise = R2DP(law.scaled(1 / steps))
    tolerance = 2e-6 if isinstance(law, LinearCombination) else 1e-9
    assert verify(noise, steps) == pytest.approx(law.loss(1.0), rel=tolerance, abs=1e-11)
    assert verify(noise, 1000) <= noise.loss(1000)


@pytest.mark.parametrize("law", [Gamma(3.0, 0.1), Uniform(0.05, 0.9), TwoPoint(0.02, 1.7, 0.3)], ids=str)
def test_rounding_a_continuous_noise_is_post_processing(law: SecondFold) -> None:
    """The continuous noise rounded to integers loses no more than Theorem 4.1 says (mathematics, section 3)."""
    edges = np.arange(0, 400) + 0.5
    upper = np.exp(law.log_mgf(-edges))
    rounded = np.concatenate([[1 - upper[0]], -np.diff(upper) / 2])
    assert rounded[0] + 2 * rounded[1:].sum() + upper[-1] == pytest.approx(1, abs=1e-12)
    rates, weights = R2DP(law).rates, R2DP(law).weights
    mixture = weights @ (np.sinh(rates / 2)[:, None] * np.exp(-np.outer(rates, np.arange(1, 400))))
    assert rounded[1:200] == pytest.approx(mixture[:199], rel=1e-6)
    for shift in (1, 3, 20):
        loss = math.log(rounded[0] / rounded[shift])
        assert loss <= law.loss(shift) * (1 + 1e-9)
        assert loss == pytest.approx(R2DP(law).loss(shift), rel=0.5)


def test_weights_far_below_the_precision_of_a_word() -> None:
    """At epsilon = 60 the wide atom has weight 1e-20: the law really sampled keeps it to the last bit."""
    steps = 2**20
    law = certify(lattice_objective(L1(), 1.0), 60.0, steps, lattice=True).law
    assert isinstance(law, TwoPoint)
    assert law.weight < 2.0**-60
    noise = R2DP(law)
    assert noise.weights[0] == law.weight
    assert noise.loss(steps) == pytest.approx(60.0, abs=1e-9)
    assert verify(noise, steps) <= noise.loss(steps)


def test_mechanisms_travel_light() -> None:
    """A pickled mechanism is its law: below 64 KiB by far, and it samples the same noise when it arrives."""
    for law in LAWS:
        noise = R2DP(law)
        text = pickle.dumps(noise)
        assert len(text) < 1024
        again = pickle.loads(text)
        assert again == noise
        assert np.array_equal(goodness.draw(again, 1000, seed=5), goodness.draw(noise, 1000, seed=5))


def planned(kind: str, epsilon: float, steps: int) -> R2DP:
    phi = lattice_objective(Usefulness(0.1), 1 / steps)
    budget = epsilon - 1e-9
    if kind == "two-point":
        law: SecondFold = certify(phi, max(budget, 3.0), steps, lattice=True).law
        if epsilon < 3:  # Laplace is optimal there: a true mixture is asked for all the same
            law = law.scaled(calibrate(*law.atoms(2), budget, steps, lattice=True))
        return R2DP(law)
    if kind == "gamma":
        return R2DP(best_family("gamma", phi, budget, steps, lattice=True).law, FINAL_ATOMS)
    return R2DP(best_ensemble(phi, budget, steps, lattice=True).best.law, FINAL_ATOMS)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("kind", ["two-point", "gamma", "ensemble"])
def test_no_attacker_shows_more_than_epsilon(kind: str, epsilon: float) -> None:
    """10**6 draws at the two worst neighbours; false alarm 1e-8 each, 1.2e-7 together."""
    steps = 64
    noise: Additive = planned(kind, epsilon, steps)
    goodness.check_loss(noise, steps, epsilon)
    bound = goodness.check_audit(noise, steps, epsilon, seed=60)
    if epsilon <= 3:
        assert bound > 0.5 * noise.loss(steps), "the audit sees most of the loss, so it would see an excess"


def test_the_audit_catches_the_papers_two_point_formula() -> None:
    """E1: noise calibrated by Theorem B.2 to 0.62038 loses 0.998, and 10**6 draws show it; false alarm 1e-8."""
    steps = 256
    noise = R2DP(TwoPoint(0.001 / steps, 1.0 / steps, 0.5))
    with pytest.raises(AssertionError, match="attacker"):
        goodness.check_audit(noise, steps, 0.62038, seed=70)
    samples = [noise.release(np.full(10**6, v), goodness.seeded_bits(10**6, 70 + i)) for i, v in enumerate((0, steps))]
    assert audit(*samples, alpha=1e-8) <= noise.loss(steps)
