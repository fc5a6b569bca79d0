"""Privacy loss distributions of our own mass functions, and composition over releases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.gaussian import DiscreteGaussian
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.r2dp import R2DP
from spark_rdp.mechanisms.second_fold import Gamma, TwoPoint
from spark_rdp.mechanisms.staircase import Staircase
from spark_rdp.planning.additive import plan
from spark_rdp.planning.plan import Plan
from spark_rdp.privacy.accounting import composed_epsilon, loss_distribution

NOISES: list[tuple[Additive, int]] = [
    *((Geometric(0.2), 1), (Geometric(0.1), 12), (Staircase(1.0, 9, 4), 9), (Staircase(1.0, 9, 4), 5)),
    *((R2DP(TwoPoint(0.1, 1.7, 0.3)), 3), (R2DP(Gamma(4.0, 0.05)), 6), (DiscreteGaussian(4.0), 3)),
]


@pytest.mark.parametrize(("noise", "shift"), NOISES, ids=str)
def test_delta_is_never_below_the_mass_functions_and_close_to_it(noise: Additive, shift: int) -> None:
    interval = 1e-3
    found = loss_distribution(noise, shift, interval)
    k = np.arange(-4000, 4000)
    p, q = np.exp(noise.log_mass(k)), np.exp(noise.log_mass(k + shift))
    for epsilon in (0.0, 0.1, 0.35, 0.8):
        exact = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        assert exact - 1e-9 <= found.get_delta_for_epsilon(epsilon) <= exact + 2 * interval
    if math.isfinite(noise.loss(shift)):
        assert found.get_epsilon_for_delta(0.0) == pytest.approx(noise.loss(shift), abs=1.01 * interval)


def test_two_releases_compose_like_their_product() -> None:
    """The distribution of two kinds of noise against every pair of integers."""
    first, second = Staircase(1.0, 3, 1), R2DP(TwoPoint(0.2, 1.7, 0.3))
    found = loss_distribution(first, 3, 1e-3).compose(loss_distribution(second, 2, 1e-3))
    k = np.arange(-200, 200)
    p = np.multiply.outer(np.exp(first.log_mass(k)), np.exp(second.log_mass(k)))
    q = np.multiply.outer(np.exp(first.log_mass(k + 3)), np.exp(second.log_mass(k + 2)))
    for epsilon in (0.2, 0.9, 1.4):
        exact = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        assert exact - 1e-9 <= found.get_delta_for_epsilon(epsilon) <= exact + 3e-3


def planned(**arguments: Any) -> Plan:
    return plan(**{"sensitivity": 1, "metric": "l2", **arguments})


def test_many_releases_cost_less_than_their_sum() -> None:
    """50 releases of Laplace noise at epsilon 1: about 41.6 at delta 1e-6; as 50 coordinates of one the same."""
    one = planned(epsilon=1, mechanism="laplace")
    composed = composed_epsilon([one] * 50, 1e-6)
    assert composed == pytest.approx(41.605, rel=2e-3)
    assert composed >= 41.604
    assert composed_epsilon([planned(epsilon=50, coordinates=50, mechanism="laplace")], 1e-6) == pytest.approx(
        composed, rel=1e-3
    )
    assert composed_epsilon([one] * 50, 0) == pytest.approx(50, rel=1e-6)
    assert composed_epsilon([one], 1e-9) <= 1
    assert composed_epsilon([], 0) == 0


def test_gaussian_noise_needs_a_delta() -> None:
    noise = planned(epsilon=1, delta=1e-6, coordinates=20, mechanism="gaussian")
    assert 1 - 1e-6 <= composed_epsilon([noise], 1e-6) <= 1.01
    assert 1 < composed_epsilon([noise, planned(epsilon=1)], 1e-6) <= 2.01
    with pytest.raises(InvalidInput, match="delta must be above 0"):
        composed_epsilon([noise, planned(epsilon=1)], 0)
