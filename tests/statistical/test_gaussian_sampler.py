"""The Gaussian samplers against their mass functions. Every check rejects a right sampler with chance at most 1e-8."""

from __future__ import annotations

import numpy as np
import pytest
from statistical import goodness

from spark_rdp.mechanisms.coins import decays
from spark_rdp.mechanisms.gaussian import ApproximatelyPrivate, DiscreteGaussian, GaussianMixture
from spark_rdp.privacy.audit import audit

DRAWS = 500_000
NOISES: list[ApproximatelyPrivate] = [
    *(DiscreteGaussian(0.4), DiscreteGaussian(1.0), DiscreteGaussian(30.0), DiscreteGaussian(2.0**22)),
    GaussianMixture((0.8, 50.0), (0.3, 0.7)),
]


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_draws_follow_the_mass_function(noise: ApproximatelyPrivate) -> None:
    """Law, balance and tails; false alarm 1e-8 each."""
    draws = goodness.draw(noise, DRAWS, seed=91)
    goodness.check_law(draws, noise)
    goodness.check_balance(draws, noise)
    goodness.check_tails(draws, noise)


@pytest.mark.parametrize("factor", [0.97, 1.03])
@pytest.mark.parametrize("sigma", [0.4, 1.0, 30.0, 2.0**22])
def test_a_scale_off_by_three_percent_is_rejected(sigma: float, factor: float) -> None:
    """The control of the test above, in both directions."""
    draws = goodness.draw(DiscreteGaussian(sigma), DRAWS, seed=92)
    with pytest.raises(AssertionError):
        goodness.check_law(draws, DiscreteGaussian(sigma * factor))


def test_no_attacker_shows_more_than_epsilon() -> None:
    """10**6 draws at two neighbours, the noise's own delta taken off; false alarm 1e-8."""
    noise, shift, epsilon = DiscreteGaussian(40.0), 40, 1.5
    delta = noise.delta(epsilon, shift)
    samples = [noise.release(np.full(10**6, v), goodness.seeded_bits(10**6, 93 + i)) for i, v in enumerate((0, shift))]
    assert audit(*samples, delta=delta, alpha=1e-8) <= epsilon
    assert audit(*samples, delta=delta / 10, alpha=1e-8) > epsilon - 0.2, "with less delta taken off it sees the loss"


def test_rows_do_not_depend_on_their_batch_or_repeat() -> None:
    noise = DiscreteGaussian(2.0**22)
    whole = noise.noise(goodness.seeded_bits(8000, 94))
    assert np.array_equal(noise.noise(goodness.seeded_bits(700, 94)), whole[:700])
    goodness.check_no_repeats(whole, noise)
    assert noise.noise(goodness.seeded_bits(0, 94)).shape == (0,)


def test_coins_show_heads_as_often_as_they_should() -> None:
    """Counts of 400,000 coins each, from certain to e^-10.5; six standard deviations, false alarm below 1e-7."""
    x = np.array([0.0, 1e-17, 0.3, 2.0, 7.9, 8.0, 8.1, 10.5])
    rows = 400_000
    heads = decays(goodness.seeded_bits(rows, 95), 0, np.tile(x, (rows, 1))).sum(axis=0)
    expected = rows * np.exp(-x)
    assert np.all(heads[:2] == rows)
    assert np.all(np.abs(heads - expected) <= 6 * np.sqrt(expected * (1 - np.exp(-x))) + 6)
    assert not decays(goodness.seeded_bits(1000, 96), 0, np.full((1000, 3), 1024.0)).any()
