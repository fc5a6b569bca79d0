"""Privacy loss distributions of our own mass functions, and composition over releases."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

from spark_rdp.errors import InvalidInput
from spark_rdp.ledger.noises import from_text, losses_of, to_text
from spark_rdp.mechanisms import build
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.gaussian import DiscreteGaussian
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.r2dp import R2DP
from spark_rdp.mechanisms.second_fold import Gamma, TwoPoint
from spark_rdp.mechanisms.staircase import Staircase
from spark_rdp.planning.additive import plan
from spark_rdp.planning.plan import Plan
from spark_rdp.privacy.accounting import Bounded, Loss, Noise, composed_epsilon
from spark_rdp.privacy.loss_distribution import of_noise, of_parameters
from spark_rdp.queries import ReleaseQuery
from spark_rdp.releases import plan_release

NOISES: list[tuple[Additive, int]] = [
    *((Geometric(0.2), 1), (Geometric(0.1), 12), (Staircase(1.0, 9, 4), 9), (Staircase(1.0, 9, 4), 5)),
    *((R2DP(TwoPoint(0.1, 1.7, 0.3)), 3), (R2DP(Gamma(4.0, 0.05)), 6), (DiscreteGaussian(4.0), 3)),
]
K = np.arange(-4000, 4000)


def divergence(noise: Additive, shift: int, epsilon: float) -> float:
    """The hockey-stick divergence of a noise and the same noise shifted, straight from the mass function."""
    p, q = np.exp(noise.log_mass(K)), np.exp(noise.log_mass(K + shift))
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(("noise", "shift"), NOISES, ids=str)
def test_delta_is_never_below_the_mass_functions_and_close_to_it(noise: Additive, shift: int) -> None:
    interval = 1e-3
    found = of_noise(noise, shift, interval)
    for epsilon in (0.0, 0.1, 0.3505, 0.8):
        exact = divergence(noise, shift, epsilon)
        assert exact - 1e-12 <= found.get_delta_for_epsilon(epsilon) <= exact * (1 + 1e-4) + interval / 3
    on_the_grid = found.get_delta_for_epsilon(0.1)
    assert on_the_grid == pytest.approx(divergence(noise, shift, 0.1), rel=1e-4, abs=1e-9), "sharp at grid points"
    if math.isfinite(noise.loss(shift)):
        assert found.get_epsilon_for_delta(0.0) == pytest.approx(noise.loss(shift), abs=1.01 * interval)


@pytest.mark.parametrize(("noise", "shift"), NOISES, ids=str)
def test_a_smaller_change_never_loses_more(noise: Additive, shift: int) -> None:
    """So the distribution of the sensitivity covers every unit that changes less."""
    for epsilon in (-0.4, 0.0, 0.2, 0.7):
        exact = [divergence(noise, smaller, epsilon) for smaller in range(shift + 1)]
        assert all(low <= high + 1e-12 for low, high in pairwise(exact))


def test_two_releases_compose_like_their_product() -> None:
    """The distribution of two kinds of noise against every pair of integers."""
    first, second = Staircase(1.0, 3, 1), R2DP(TwoPoint(0.2, 1.7, 0.3))
    found = of_noise(first, 3, 1e-3).compose(of_noise(second, 2, 1e-3))
    k = np.arange(-200, 200)
    p = np.multiply.outer(np.exp(first.log_mass(k)), np.exp(second.log_mass(k)))
    q = np.multiply.outer(np.exp(first.log_mass(k + 3)), np.exp(second.log_mass(k + 2)))
    for epsilon in (0.2, 0.9, 1.4):
        exact = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
        assert exact - 1e-9 <= found.get_delta_for_epsilon(epsilon) <= exact + 1e-3


def test_whatever_is_private_is_covered_by_its_parameters() -> None:
    found = of_parameters(0.7, 1e-3, 1e-3)
    assert found.get_delta_for_epsilon(0.7) == pytest.approx(1e-3, rel=1e-9)
    assert found.get_epsilon_for_delta(0.0) == math.inf
    for noise, shift in NOISES:
        bound = of_parameters(noise.loss(shift), 0.0, 1e-3) if math.isfinite(noise.loss(shift)) else None
        for epsilon in (0.0, 0.1, 0.3):
            if bound is not None:
                assert bound.get_delta_for_epsilon(epsilon) >= divergence(noise, shift, epsilon) - 1e-12


STAIRCASE, SHIFT, RELEASES, DELTA = Staircase(0.1, 9, 4), 9, 1000, 1e-6


def a_thousand_staircases(delta: float = DELTA, limit: float = 25.0) -> float:
    noise = Noise("staircase", json.dumps(STAIRCASE.parameters()), SHIFT, 1)
    return composed_epsilon([(noise, RELEASES)], delta, limit)


def loss_masses() -> tuple[np.ndarray, np.ndarray]:
    """The three losses of one staircase (-eps, 0, eps) and their probabilities."""
    p, q = STAIRCASE.log_mass(K), STAIRCASE.log_mass(K + SHIFT)
    losses = np.array([-0.1, 0.0, 0.1])
    masses = np.array([np.exp(p[np.abs(p - q - loss) < 1e-9]).sum() for loss in losses])
    assert masses.sum() == pytest.approx(1, abs=1e-12)
    return losses, masses


def test_a_thousand_staircases_agree_with_dp_accounting() -> None:
    """19.217 instead of 100; dp-accounting, which rounds losses up, is above it by what the rounding costs."""
    composed = a_thousand_staircases()
    near = np.arange(-900, 901)
    lower, upper = (
        dict(zip(near.tolist(), STAIRCASE.log_mass(near + move).tolist(), strict=True)) for move in (0, SHIFT)
    )
    own = privacy_loss_distribution.from_two_probability_mass_functions(
        lower, upper, value_discretization_interval=1e-4, log_mass_truncation_bound=-30
    )
    theirs = own.self_compose(RELEASES).get_epsilon_for_delta(DELTA)
    assert theirs - RELEASES * 1e-4 <= composed <= theirs
    assert composed < 0.2 * RELEASES * STAIRCASE.epsilon


@pytest.mark.parametrize("delta", [1e-6, 1e-10])
def test_a_thousand_staircases_are_never_below_the_exact_value(delta: float) -> None:
    """The sum of losses takes 2,001 values, whose probabilities are a polynomial's coefficients."""
    losses, masses = loss_masses()
    power = np.array([1.0])
    for _ in range(RELEASES):
        power = np.convolve(power, masses)
    sums = np.arange(-RELEASES, RELEASES + 1) * losses[-1]

    def exact(epsilon: float) -> float:
        return float((power * np.maximum(0, -np.expm1(np.minimum(epsilon - sums, 0)))).sum())

    composed = a_thousand_staircases(delta)
    assert exact(composed) <= delta <= exact(composed * 0.9995)


def test_a_thousand_staircases_are_never_below_simulation() -> None:
    """Sums of losses drawn with more probability where they are large, and weighted; the seed is fixed.

    Five standard errors below the simulated delta: a false alarm would have a probability below 1e-6 for another seed.
    """
    losses, masses = loss_masses()
    tilt = 4.7 / math.sqrt(RELEASES) / losses[-1]
    tilted = masses * np.exp(tilt * losses)
    norm = tilted.sum()
    draws = np.random.default_rng(5).multinomial(RELEASES, tilted / norm, size=100_000)
    sums = draws @ losses
    weights = np.exp(RELEASES * math.log(norm) - tilt * sums)

    def at_least(epsilon: float) -> float:
        values = weights * np.maximum(0, -np.expm1(np.minimum(epsilon - sums, 0)))
        return float(values.mean() - 5 * values.std() / math.sqrt(len(values)))

    composed = a_thousand_staircases()
    assert at_least(composed) <= DELTA
    assert at_least(composed * 0.97) > DELTA, "an epsilon 3 % too small is caught"


def planned(**arguments: Any) -> Plan:
    return plan(**{"sensitivity": 1, "metric": "l2", **arguments})


def loss_of(noise: Plan) -> Loss:
    return Noise(noise.mechanism, json.dumps(noise.parameters), noise.integer_sensitivity, noise.coordinates)


def test_many_releases_cost_less_than_their_sum() -> None:
    """50 releases of Laplace noise at epsilon 1: about 41.6 at delta 1e-6; as 50 coordinates of one the same."""
    one = loss_of(planned(epsilon=1, mechanism="laplace"))
    composed = composed_epsilon([(one, 50)], 1e-6, 45.0)
    assert composed == pytest.approx(41.605, rel=1e-4)
    many = loss_of(planned(epsilon=50, coordinates=50, mechanism="laplace"))
    assert composed_epsilon([(many, 1)], 1e-6, 45.0) == pytest.approx(composed, rel=1e-4)
    assert composed_epsilon([(one, 20), (one, 30)], 1e-6, 45.0) == composed
    assert composed_epsilon([(one, 1)], 1e-9, 1.0) == pytest.approx(1, rel=1e-4)
    assert composed_epsilon([], 1e-6, 1.0) == composed_epsilon([(one, 0)], 1e-6, 1.0) == 0


def test_gaussian_noise_composes_with_pure_noise() -> None:
    noise, pure = planned(epsilon=1, delta=1e-6, coordinates=20, mechanism="gaussian"), planned(epsilon=1)
    assert 1 - 1e-4 <= composed_epsilon([(loss_of(noise), 1)], 1e-6, 2.0) <= 1.001
    assert 1 < composed_epsilon([(loss_of(noise), 1), (loss_of(pure), 1)], 1e-6, 2.0) <= 2.001


def test_a_delta_that_is_used_up_leaves_no_epsilon() -> None:
    assert composed_epsilon([(Bounded(0.1, 1e-6), 2)], 1e-6, 10.0) == math.inf
    assert composed_epsilon([(Bounded(1e4, 0.0), 1)], 1e-6, 1e-3) == math.inf, "far beyond what matters"
    assert composed_epsilon([(Bounded(0.1, 1e-7), 2)], 1e-6, 10.0) == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize("delta", [0, 1e-11, math.nan, 0.6, -1e-6])
def test_composition_needs_a_delta(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta must be a number between"):
        composed_epsilon([(Bounded(1.0, 0.0), 1)], delta, 1.0)


def release(measure: dict[str, Any], **privacy: Any) -> tuple[Loss, ...]:
    query = ReleaseQuery(
        name="q",
        privacy={"unit": "u", "epsilon": 1.0, "max_groups": 3, **privacy},
        group_by={"k": ["a", "b", "c", "d"]},
        measures=[{"name": "m", **measure}],
    )
    return losses_of(plan_release(query))


def test_own_noise_is_composed_only_where_the_worst_change_is_known() -> None:
    (count,) = release({"type": "count", "max_per_group": 5})
    assert isinstance(count, Noise)
    assert (count.shift, count.coordinates) == (5, 3)
    bins = {"type": "histogram", "column": "x", "bins": [0, 1, 2]}
    (one_row,) = release(bins)
    assert isinstance(one_row, Noise), "one row of a unit lies in one bin"
    for losses in (
        release({**bins, "max_per_group": 2}),  # two rows may share a bin: one change by two
        release({"type": "count", "max_per_group": 5}, neighbours="replace-one"),  # one number may change twice
        release({"type": "quantile", "column": "x", "lower": 0, "upper": 9, "step": 1}),
    ):
        (loss,) = losses
        assert isinstance(loss, Bounded)
        assert 0.999 <= loss.epsilon <= 1
        assert loss.delta == 0


def test_two_rows_in_one_bin_lose_more_than_two_bins() -> None:
    """Why own noise is not composed there: at the same epsilon the distribution of one double change is worse."""
    noise = Geometric(0.2)
    double, two = of_noise(noise, 2, 1e-4), of_noise(noise, 1, 1e-4).self_compose(2)
    assert double.get_delta_for_epsilon(0.3) > two.get_delta_for_epsilon(0.3) + 0.01


def test_losses_survive_the_text_of_a_ledger() -> None:
    noise = planned(epsilon=1, mechanism="r2dp-gamma")
    losses = (Noise(noise.mechanism, json.dumps(noise.parameters, sort_keys=True), 3, 2), Bounded(0.1, 1e-7))
    assert from_text(to_text(losses)) == losses
    assert "\n" not in to_text(losses)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_disjoint_groups_are_charged_once_and_shared_ones_as_a_sum(groups: int) -> None:
    """A unit in one group only changes one of four counts, and the release costs its epsilon, not four times that."""
    (count,) = release({"type": "count", "max_per_group": 1}, max_groups=groups)
    assert isinstance(count, Noise)
    assert count.coordinates == groups
    noise = build(count.mechanism, json.loads(count.parameters))
    assert noise.loss(count.shift) * groups == pytest.approx(1.0, rel=1e-3)
