"""Every local mechanism against its own mass function, and the losses by brute force."""

from __future__ import annotations

import json
import math
import pickle

import numpy as np
import pytest

from spark_rdp.mechanisms.additive_local import AdditiveLocal, sensitivity
from spark_rdp.mechanisms.fitted import Fitted
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.hybrid import Hybrid
from spark_rdp.mechanisms.local import Local
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.mechanisms.podium import CENTER, Piecewise, Podium, best_fraction, piecewise_fraction
from spark_rdp.mechanisms.two_point import TwoPoint

LOWER, UPPER = -1.25, 2.125
EPSILONS = (0.3, 1.0, 4.0)


def coarse(epsilon: float) -> dict[str, Local]:
    """Mechanisms with so few outputs that all of them can be listed."""
    exponent = -3
    podium = Podium.fit(epsilon, LOWER, UPPER, best_fraction(epsilon, CENTER), exponent)
    piecewise = Piecewise.fit(epsilon, LOWER, UPPER, piecewise_fraction(epsilon), exponent)
    assert isinstance(piecewise, Piecewise)
    two_point = TwoPoint.fit(epsilon, LOWER, UPPER, exponent)
    rate = 0.999999 * epsilon / sensitivity(LOWER, UPPER, exponent)
    shape = np.sinh(np.linspace(-2, 2, 40)) * 3 / -math.expm1(-epsilon)
    return {
        "podium": podium,
        "piecewise": piecewise,
        "duchi": two_point,
        "hybrid": Hybrid(piecewise, two_point, 2**62),
        "fitted": Fitted.of_shape(epsilon, LOWER, UPPER, 11, shape),
        "laplace": AdditiveLocal(LOWER, UPPER, exponent, Geometric(rate)),
    }


def outputs(mechanism: Local) -> np.ndarray:
    if isinstance(mechanism, Fitted):
        return np.unique(np.array(mechanism.levels))
    first, last = mechanism.support
    if isinstance(mechanism, TwoPoint):
        return np.array([first, last])
    return np.arange(max(first, -4000), min(last, 4000) + 1)


NAMES = tuple(coarse(1.0))
INPUTS = (LOWER, -0.4, 0.0, 0.437, 0.5, 1.99, UPPER)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", NAMES)
def test_mass_function_mean_variance_and_usefulness(name: str, epsilon: float) -> None:
    mechanism = coarse(epsilon)[name]
    cells = outputs(mechanism)
    values = mechanism.lattice.to_values(cells)
    for x in INPUTS:
        mass = mechanism.pmf(x, cells)
        point = np.array([x])
        assert mass.sum() == pytest.approx(1, abs=1e-9)
        assert mass @ values == pytest.approx(x, abs=1e-8)
        assert mechanism.mean_output(point)[0] == pytest.approx(x, abs=1e-9)
        assert mechanism.variance(point)[0] == pytest.approx(mass @ (values - x) ** 2, rel=1e-7)
        for gamma in (0.05, 0.3, 1.0, 4.0):
            useful = mass[np.abs(values - x) <= gamma].sum()
            assert mechanism.usefulness(point, gamma)[0] == pytest.approx(useful, abs=1e-9)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", NAMES)
def test_loss_by_brute_force(name: str, epsilon: float) -> None:
    """The largest log-ratio over inputs and outputs is the claimed loss, which is at most epsilon."""
    mechanism = coarse(epsilon)[name]
    cells = outputs(mechanism)
    masses = np.array([mechanism.pmf(x, cells) for x in np.linspace(LOWER, UPPER, 181)])
    assert np.all(masses > 0)  # whatever can come out at all can come out for every input
    measured = np.log(masses.max(axis=0) / masses.min(axis=0)).max()
    assert mechanism.loss() <= epsilon
    assert measured <= mechanism.loss() + 1e-9
    assert measured >= 0.98 * mechanism.loss()


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.1, 1, 5, 20, 50, 745, 1e4])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-3.3, 17.1), (1e15, 1e15 + 1), (-1e99, 1e99)])
def test_two_point_and_hybrid_at_extremes(epsilon: float, bounds: tuple[float, float]) -> None:
    x = np.array([bounds[0], bounds[0] / 2 + bounds[1] / 2, bounds[1]])
    width = bounds[1] - bounds[0]
    for mechanism in (TwoPoint.fit(epsilon, *bounds), Hybrid.fit(epsilon, *bounds)):
        assert 0 < mechanism.loss() <= epsilon
        assert np.all(np.abs(mechanism.mean_output(x) - x) <= 1e-9 * width / min(epsilon, 1))
        assert np.all(np.isfinite(mechanism.variance(x)))


def test_two_point_is_the_formula() -> None:
    for epsilon in (0.1, 1.0, 3.0):
        reach = (math.exp(epsilon) + 1) / math.expm1(epsilon) / 2
        mechanism = TwoPoint.fit(epsilon, -0.5, 0.5)
        x = np.linspace(-0.5, 0.5, 11)
        assert mechanism.variance(x) == pytest.approx(reach**2 - x**2, rel=1e-9)
        assert mechanism.loss() == pytest.approx(epsilon, rel=1e-9)


def test_hybrid_is_flat() -> None:
    """The mixture is the one for which the variance is the same everywhere (Wang et al. 2019)."""
    variance = Hybrid.fit(2.0, 0.0, 1.0).variance(np.linspace(0, 1, 21))
    assert variance == pytest.approx(variance[0], rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_json_and_pickle(name: str) -> None:
    mechanism = coarse(1.0)[name]
    again = build_local(mechanism.name, json.loads(json.dumps(mechanism.parameters())))
    assert again == mechanism
    assert again.loss() == mechanism.loss()
    assert len(pickle.dumps(mechanism)) < 64 * 1024


def test_density_is_the_mass_per_unit() -> None:
    podium = Podium.fit(1.0, -0.5, 0.5, best_fraction(1.0, CENTER))
    heights = np.unique(podium.density(0.2, np.linspace(-2, 2, 500)).round(4))
    assert len(heights) == 2
    assert heights[1] / heights[0] == pytest.approx(math.e, rel=1e-3)


def test_fitted_refuses_outputs_that_cannot_serve() -> None:
    good = coarse(1.0)["fitted"].parameters()
    with pytest.raises(ValueError, match="reach"):
        Fitted.rebuild(**{**good, "levels": [level // 1000 for level in good["levels"]]})
    with pytest.raises(ValueError, match="decrease"):
        Fitted.rebuild(**{**good, "levels": good["levels"][::-1]})
