"""No digit of a published value tells which value was noised: every output lies on one lattice (Mironov 2012)."""

from __future__ import annotations

import numpy as np
import pytest

from spark_rdp.lattice import Lattice
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.planning import additive
from spark_rdp.planning.local import plan_local
from spark_rdp.randomness import SystemBits

DRAWS = 200_000
FINEST = 2.0**-53
MECHANISMS = ["laplace", "staircase", "r2dp", "gaussian"]
LOCAL = ["podium", "piecewise", "duchi", "hybrid", "fitted", "laplace", "staircase"]


def fingerprints(values: np.ndarray) -> tuple[int, int]:
    """How many values near 0 there are, and how many of them are no multiple of 2**-53.

    A value in (-0.5, 0.5) that was rounded from a sum near 1 is always such a multiple; a double drawn near 0 is not.
    """
    near = values[np.abs(values) < 0.5]
    return len(near), int(np.count_nonzero(near / FINEST != np.rint(near / FINEST)))


def noised(mechanism: str, epsilon: float, value: float, draws: int = DRAWS) -> tuple[np.ndarray, Lattice]:
    delta = 1e-6 if mechanism == "gaussian" else 0.0
    plan = additive.plan(epsilon=epsilon, sensitivity=1.0, metric="l1", mechanism=mechanism, delta=delta)
    lattice = Lattice.of_granularity(plan.granularity)
    exact = np.full(draws, lattice.nearest(value))
    return lattice.to_values(plan.build().release(exact, SystemBits(draws))), lattice


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_additive_noise_leaves_no_fingerprint(mechanism: str) -> None:
    """200,000 draws at 0 and at 1: the share of outputs that betray themselves is 0 for both."""
    for value in (0.0, 1.0):
        near, betrayed = fingerprints(noised(mechanism, 1.0, value)[0])
        assert near > 1000
        assert betrayed == 0


@pytest.mark.parametrize("mechanism", LOCAL)
def test_local_noise_leaves_no_fingerprint(mechanism: str) -> None:
    """The same for noise per row, where the value itself is a double."""
    plan = plan_local(1.0, -1.0, 1.0, mechanism=mechanism)
    local = build_local(plan.mechanism, plan.parameters)
    possible = []
    for value in (0.0, 1e-300, 1.0):
        integers = local.release(np.full(DRAWS, value), SystemBits(DRAWS))
        values = local.lattice.to_values(integers)
        assert fingerprints(values)[1] == 0
        possible.append((integers.min() >= local.support[0], integers.max() <= local.support[1]))
    assert np.all(possible)


def test_floating_point_noise_does() -> None:
    """The control: noise added in doubles at 0 is given away by most of its small outputs, and never at 1."""
    noise = np.random.default_rng(1).laplace(size=DRAWS)
    near, betrayed = fingerprints(noise)
    assert betrayed > near / 2
    assert fingerprints(1.0 + noise)[1] == 0


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 50.0])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_outputs_lie_on_the_declared_lattice_whatever_the_value(mechanism: str, epsilon: float) -> None:
    """Extreme values: on the lattice, and balanced around the value.

    The sign of 20,000 draws is balanced to 5.5 standard errors: a false alarm has probability 4e-8 for each of the
    80 combinations.
    """
    for value in (0.0, 1.0, 1e-300, 2.0**21, -1.0):
        values, lattice = noised(mechanism, epsilon, value, 20_000)
        steps = np.ldexp(values, -lattice.exponent)
        assert np.array_equal(steps, np.rint(steps))
        away = np.sign(steps - lattice.nearest(value))
        moved = np.count_nonzero(away)
        assert abs(away.sum()) <= 5.5 * max(moved, 1) ** 0.5
