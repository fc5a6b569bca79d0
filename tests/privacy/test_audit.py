"""The audit itself, and audits of the mechanisms (known-faults, row 163)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from statistical import goodness

from spark_rdp.errors import InvalidInput
from spark_rdp.planning.additive import plan
from spark_rdp.privacy.audit import audit


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("mechanism", ["laplace", "staircase"])
def test_an_attacker_cannot_show_more_than_epsilon(mechanism: str, epsilon: float) -> None:
    """10**6 draws at the two worst neighbours; false alarm 1e-8. The bound is also tight: the audit can see."""
    chosen = plan(epsilon=epsilon, sensitivity=1, metric="l1", mechanism=mechanism)
    bound = goodness.check_audit(chosen.build(), chosen.integer_sensitivity, epsilon, seed=10)
    assert bound >= 0.95 * epsilon - 0.02


@pytest.mark.parametrize("granularity", [1, 2.0**-10])
def test_other_lattices_are_no_easier(granularity: float) -> None:
    """As above on coarse lattices; false alarm 1e-8."""
    chosen = plan(epsilon=1, sensitivity=1, metric={"usefulness": 0.1}, granularity=granularity)
    goodness.check_audit(chosen.build(), chosen.integer_sensitivity, 1.0, seed=20)


def test_too_little_noise_is_seen() -> None:
    """Noise of 90 % of the scale is shown to exceed epsilon; the same check accepted the right scale."""
    chosen = plan(epsilon=1 / 0.9, sensitivity=1, metric="l1", mechanism="laplace")
    with pytest.raises(AssertionError, match="an attacker shows"):
        goodness.check_audit(chosen.build(), chosen.integer_sensitivity, 1.0, seed=30)


def test_no_noise_is_seen_as_a_large_loss() -> None:
    zeros = np.zeros(10**5)
    assert audit(zeros, zeros + 1) > 7


def test_the_same_law_gives_nothing() -> None:
    """False alarm 1e-6."""
    draws = np.random.default_rng(7).normal(size=(2, 200_000))
    assert audit(draws[0], draws[1]) == 0.0


def test_delta_is_taken_off() -> None:
    """An event of probability 0.01 that only one input has is explained by delta = 0.011, not by 0.005."""
    a = (np.arange(10**6) % 100 == 0).astype(float)
    b = np.zeros(10**6)
    assert audit(a, b, delta=0.011) == 0.0
    assert audit(a, b, delta=0.005) > 4.5


def test_the_confidence_is_what_it_says() -> None:
    """At alpha = 0.1 randomised response with known epsilon is exceeded in at most 10 % of 400 audits.

    A binomial(400, 0.1) exceeds 73 with probability below 1e-6.
    """
    epsilon = 1.0
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    generator = np.random.default_rng(11)
    exceeded = 0
    for _ in range(400):
        a, b = generator.random((2, 500))
        exceeded += audit((a < truth).astype(float), (b < 1 - truth).astype(float), alpha=0.1) > epsilon
    assert exceeded <= 73


@pytest.mark.parametrize("bad", [[1.0, 2.0], [math.nan] * 10, [math.inf] * 10])
def test_unusable_samples_are_refused(bad: list[float]) -> None:
    with pytest.raises(InvalidInput):
        audit(np.array(bad), np.arange(10.0))


@pytest.mark.parametrize("alpha", [0, -1, math.nan, math.inf, "1", True, None, 5e-324, 1e308])
def test_alpha_and_delta_know_their_range(alpha: object) -> None:
    with pytest.raises(InvalidInput, match="alpha must be"):
        audit(np.arange(10.0), np.arange(10.0), alpha=alpha)  # type: ignore[arg-type]
