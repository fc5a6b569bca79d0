"""The second route to the loss agrees with the first, and does not believe it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase
from spark_rdp.privacy.verify import verify


def brute_loss(mechanism: Additive, shift: int) -> float:
    """The largest log ratio over every pair of a window with several periods, sampler included."""
    k = np.arange(-6 * shift - 20, 6 * shift + 21)
    mass = mechanism.log_mass(k)
    largest = max(float(np.abs(mass - mechanism.log_mass(k + j)).max()) for j in range(1, shift + 1))
    return largest + mechanism.sampling_slack


@pytest.mark.parametrize("epsilon", [1e-6, 1e-4, 0.1, 1.0, 50.0, 708.0, 709.0, 710.0, 745.0, 800.0, 1e4])
@pytest.mark.parametrize("steps", [1, 7, 1_000_003])
def test_both_routes_agree(epsilon: float, steps: int) -> None:
    """Known-faults, rows 51 and 57: the emitted mass function, tails included, at every size of epsilon."""
    for mechanism in (Geometric(epsilon / steps), Staircase(epsilon, steps, (steps + 1) // 2)):
        claimed = mechanism.loss(steps)
        verified = verify(mechanism, steps)
        assert verified <= claimed
        assert verified == pytest.approx(claimed, rel=1e-9, abs=1e-13)
        assert claimed == pytest.approx(epsilon, rel=1e-9, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.01, 20), st.integers(1, 40), st.data())
def test_staircase_loss_of_any_shift_equals_brute_force(epsilon: float, period: int, data: st.DataObject) -> None:
    staircase = Staircase(epsilon, period, data.draw(st.integers(1, period)))
    shift = data.draw(st.integers(1, 90))
    assert staircase.loss(shift) == pytest.approx(brute_loss(staircase, shift), rel=1e-9)
    assert verify(staircase, shift) == pytest.approx(brute_loss(staircase, shift), rel=1e-9)


def test_a_shift_of_one_more_than_the_period_costs_double() -> None:
    staircase = Staircase(1.0, 2**20, 300_000)
    assert verify(staircase, 2**20) == pytest.approx(1.0, rel=1e-9)
    assert verify(staircase, 2**20 + 1) == pytest.approx(2.0, rel=1e-9)


def test_a_staircase_is_not_protected_better_at_small_shifts() -> None:
    """Mathematics, section 1.2: h(d) = epsilon already at one lattice unit, so an L1 norm must not be used."""
    staircase = Staircase(1.0, 2**20, 300_000)
    assert verify(staircase, 1) == pytest.approx(1.0, rel=1e-9)
    assert verify(Geometric(2.0**-20), 1) == pytest.approx(2.0**-20, rel=1e-6)


class _Hole(Geometric):
    """No mass at one place far out."""

    def log_mass(self, k: np.ndarray) -> np.ndarray:
        return np.where(np.asarray(k) == 4096, -np.inf, super().log_mass(k))


class _Plateau(Geometric):
    """Falls by three units at once in the tail, where no formula says so."""

    def log_mass(self, k: np.ndarray) -> np.ndarray:
        return super().log_mass(k) - 2.0 * (np.abs(np.asarray(k)) > 777_777)


def test_faults_in_the_tail_are_found() -> None:
    assert verify(_Hole(0.001), 10) == float("inf")
    assert verify(_Plateau(0.0001), 10) > 2.0
