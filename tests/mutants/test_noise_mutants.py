"""Each broken noise is rejected by the check that the real mechanisms pass."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from mutants import noise as broken
from statistical import goodness

from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase

Check = Callable[[np.ndarray, Additive], None]
DRAWS = 10**6
RATE = 0.31

CAUGHT: list[tuple[type[Geometric], Check]] = [
    (broken.TooLittle, goodness.check_law),
    (broken.TooMuch, goodness.check_law),
    (broken.TooLittle, goodness.check_spread),
    (broken.TooMuch, goodness.check_spread),
    (broken.UpsideDown, goodness.check_law),
    (broken.Shifted, goodness.check_law),
    (broken.Shifted, goodness.check_balance),
    (broken.OneSided, goodness.check_balance),
    (broken.TwoZeros, goodness.check_law),
    (broken.CutTail, goodness.check_tails),
    (broken.OtherVariance, goodness.check_spread),
]


@pytest.mark.parametrize(("mutant", "check"), CAUGHT, ids=lambda item: item.__name__)
def test_wrong_noise_is_caught(mutant: type[Geometric], check: Check) -> None:
    """The right mechanism passes on the very draws' size and seed; the mutant does not."""
    check(goodness.draw(Geometric(RATE), DRAWS, seed=41), Geometric(RATE))
    with pytest.raises(AssertionError):
        check(goodness.draw(mutant(RATE), DRAWS, seed=41), mutant(RATE))


@pytest.mark.parametrize("mutant", [broken.RepeatedStream, broken.ShiftedStream])
def test_shared_streams_are_caught(mutant: type[Geometric]) -> None:
    rate = 2.0**-20
    goodness.check_no_repeats(goodness.draw(Geometric(rate), 8000, seed=43), Geometric(rate))
    with pytest.raises(AssertionError):
        goodness.check_no_repeats(goodness.draw(mutant(rate), 8000, seed=43), mutant(rate))


def test_a_staircase_edge_off_by_one_is_caught() -> None:
    arguments = (1.1, 7, 3)
    goodness.check_law(goodness.draw(Staircase(*arguments), DRAWS, seed=47), Staircase(*arguments))
    with pytest.raises(AssertionError):
        goodness.check_law(goodness.draw(broken.RightOpenStep(*arguments), DRAWS, seed=47), Staircase(*arguments))


@pytest.mark.parametrize(
    ("mutant", "right", "shift"),
    [
        (broken.ShortPeriod(1.0, 101, 37), Staircase(1.0, 101, 37), 101),
        (broken.LinearLoss(1.0, 101, 37), Staircase(1.0, 101, 37), 50),
        (broken.ErratumTwoPoint(1.0), Geometric(1.0), 1),
    ],
    ids=["ShortPeriod", "LinearLoss", "ErratumTwoPoint"],
)
def test_a_claimed_loss_below_the_real_one_is_caught(mutant: Additive, right: Additive, shift: int) -> None:
    goodness.check_loss(right, shift, 1.0 + 1e-9)
    with pytest.raises(AssertionError, match="claims"):
        goodness.check_loss(mutant, shift, 1.0 + 1e-9)


def test_an_audit_catches_half_the_noise() -> None:
    class Half(Geometric):
        def noise(self, bits: goodness.KeyedBits) -> np.ndarray:  # type: ignore[override]
            return Geometric(2 * self.rate).noise(bits)

    goodness.check_audit(Geometric(0.1), 10, 1.001, seed=53, size=200_000)
    with pytest.raises(AssertionError, match="an attacker shows"):
        goodness.check_audit(Half(0.1), 10, 1.001, seed=53, size=200_000)
