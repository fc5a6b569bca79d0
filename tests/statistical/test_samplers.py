"""Samplers against the mass functions they claim. Every check rejects a right sampler with probability at most 1e-8."""

from __future__ import annotations

import numpy as np
import pytest
from statistical import goodness

from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase

DRAWS = 10**6
MECHANISMS: list[Additive] = [
    Geometric(1.0),
    Geometric(0.1),
    Geometric(3.0),
    Geometric(0.7 * 2.0**-20),
    Staircase(1.0, 2**20, 395_881),
    Staircase(0.1, 2**20, 104_858),
    Staircase(3.0, 7, 3),
    Staircase(0.5, 13, 1),
    Staircase(1.3, 5, 5),
]


def names(mechanism: Additive) -> str:
    return f"{mechanism.name}-{mechanism.parameters()}"


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=names)
def test_draws_follow_the_mass_function(mechanism: Additive) -> None:
    """Law, balance, spread and tails; false alarm 1e-8 each."""
    noise = goodness.draw(mechanism, DRAWS, seed=1)
    goodness.check_law(noise, mechanism)
    goodness.check_balance(noise, mechanism)
    goodness.check_spread(noise, mechanism)
    goodness.check_tails(noise, mechanism)


@pytest.mark.parametrize("factor", [0.97, 1.03])
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=names)
def test_a_scale_off_by_three_percent_is_rejected(mechanism: Additive, factor: float) -> None:
    """The control of the test above, in both directions (known-faults, row 170)."""
    noise = goodness.draw(mechanism, DRAWS, seed=2)
    parameters = dict(mechanism.parameters())
    loss = "rate" if "rate" in parameters else "epsilon"
    wrong = type(mechanism)(**{**parameters, loss: parameters[loss] / factor})
    with pytest.raises(AssertionError):
        goodness.check_law(noise, wrong)


@pytest.mark.parametrize("mechanism", [Geometric(2.0**-20), Staircase(1.0, 2**20, 395_881)], ids=names)
def test_equal_rows_get_unrelated_noise(mechanism: Additive) -> None:
    """8,000 equal values (known-faults, rows 119 to 122); false alarm 1e-8 each."""
    goodness.check_no_repeats(goodness.draw(mechanism, 8000, seed=3), mechanism)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 50.0, 708.0, 709.0, 710.0, 745.0, 800.0, 1e4])
@pytest.mark.parametrize("steps", [1, 2**20])
def test_extreme_budgets_sample_without_overflow(epsilon: float, steps: int) -> None:
    """Known-faults, rows 51 and 53: bounded time, finite noise, and the law where it has spread; false alarm 1e-8."""
    for mechanism in (Geometric(epsilon / steps), Staircase(epsilon, steps, (steps + 1) // 2)):
        noise = goodness.draw(mechanism, 50_000, seed=4)
        goodness.check_law(noise, mechanism)
        assert np.abs(noise).max() <= mechanism.quantile(1 - 1e-13)


@pytest.mark.parametrize("value", [0, 1, -1, 2**52, -(2**62), 2**62])
def test_the_value_moves_the_noise_and_changes_nothing_else(value: int) -> None:
    """Outputs stay on the lattice; noise around any value has one law (known-faults, row 1); false alarm 1e-8."""
    mechanism = Geometric(0.5)
    values = np.full(200_000, value, dtype=np.int64)
    released = mechanism.release(values, goodness.seeded_bits(len(values), seed=5))
    assert released.dtype == np.int64
    if abs(value) < 2**62:
        goodness.check_law(released - value, mechanism)
    else:
        assert np.abs(released).max() <= 2**62
