"""What an attacker can show about the local mechanisms from their outputs, and that broken ones are found out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from spark_rdp.mechanisms.additive_local import AdditiveLocal, sensitivity
from spark_rdp.mechanisms.exact import exp_below
from spark_rdp.mechanisms.fitted import Fitted
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.hybrid import Hybrid
from spark_rdp.mechanisms.local import Local
from spark_rdp.mechanisms.podium import WORST, Podium, best_fraction
from spark_rdp.mechanisms.two_point import TwoPoint
from spark_rdp.mechanisms.window import WORD, window_threshold
from spark_rdp.planning.fitting import Goal, fit_shape
from spark_rdp.privacy.audit import audit
from spark_rdp.randomness import SystemBits

DRAWS = 1_000_000
LOWER, UPPER = -3.0, 4.5


def podium(epsilon: float) -> Podium:
    return Podium.fit(epsilon, LOWER, UPPER, best_fraction(epsilon, WORST))


def fitted(epsilon: float) -> Fitted:
    shape = fit_shape(epsilon, Goal(worst=True))
    return Fitted.of_shape(epsilon, LOWER, UPPER, shape.step, shape.levels)


def laplace(epsilon: float) -> AdditiveLocal:
    exponent = -12
    rate = 0.999999 * epsilon / sensitivity(LOWER, UPPER, exponent)
    return AdditiveLocal(LOWER, UPPER, exponent, Geometric(rate))


MAKERS: dict[str, Callable[[float], Local]] = {
    "podium": podium,
    "duchi": lambda epsilon: TwoPoint.fit(epsilon, LOWER, UPPER),
    "hybrid": lambda epsilon: Hybrid.fit(epsilon, LOWER, UPPER),
    "fitted": fitted,
    "laplace": laplace,
}


def shown(mechanism: Local, x: float, y: float, draws: int = DRAWS) -> float:
    """The epsilon that ``draws`` outputs for each of two inputs prove, wrongly with probability 1e-6 at most."""
    samples = [mechanism.release(np.full(draws, value), SystemBits(draws)) for value in (x, y)]
    return audit(samples[0], samples[1], alpha=1e-6)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("name", MAKERS)
def test_audit_at_the_worst_inputs(name: str, epsilon: float) -> None:
    """No more than epsilon can be shown (false alarms 1e-6), and a good part of it can, so that the audit has teeth."""
    found = shown(MAKERS[name](epsilon), LOWER, UPPER)
    assert found <= epsilon
    assert found >= (0.8 * epsilon if epsilon <= 3 else 3.0)


class MovingSupport(Podium):
    """Mutant: the support follows the input, as in a naive reading of the paper."""

    def draw(self, values: np.ndarray, *arguments: object, **more: object) -> np.ndarray:
        shift = np.rint(np.ldexp(values, -self.exponent) / 50).astype(np.int64)
        return super().draw(values, *arguments, **more) + shift  # type: ignore[arg-type]


class Unclamped(Podium):
    """Mutant: inputs are taken as they come, and so is where the step lies."""

    def clamp(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)


class UnclampedTwoPoint(TwoPoint):
    """Mutant: inputs are taken as they come, and the probability with them."""

    def clamp(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.float64)


class LastRowForgotten(Podium):
    """Mutant: the last row of a batch keeps its value."""

    def release(self, values: np.ndarray, bits: object) -> np.ndarray:
        result = super().release(values, bits)  # type: ignore[arg-type]
        result[-1] = round(math.ldexp(values[-1], -self.exponent))
        return result


def support_is_fixed(mechanism: Local) -> bool:
    """Whether inputs at both ends, in the middle and far outside have one support; half a million draws reach
    the last thousandth of it at either end with certainty (missing it: below 1e-100)."""
    draws = 500_000
    first, last = mechanism.support
    slack = (last - first) / 1000
    for x in (LOWER, 0.0, UPPER, LOWER - 1e6, UPPER + 1e6):
        drawn = mechanism.release(np.full(draws, x), SystemBits(draws))
        if not (first <= drawn.min() <= first + slack and last - slack <= drawn.max() <= last):
            return False
    return True


def clamps(mechanism: Local) -> bool:
    """Whether inputs outside the range are treated like its ends, word for word."""
    bits = SystemBits(2000)
    for outside, inside in ((LOWER - 1e6, LOWER), (LOWER - 0.01, LOWER), (UPPER + 1.0, UPPER)):
        noised = mechanism.release(np.full(2000, outside), bits)
        if not np.array_equal(noised, mechanism.release(np.full(2000, inside), bits)):
            return False
    return True


def every_row_is_noised(mechanism: Local) -> bool:
    """Whether the last row of 40 batches is noised; all unchanged by chance: below 1e-200."""
    x = 0.5
    unchanged = round(math.ldexp(x, -mechanism.exponent))
    return any(mechanism.release(np.full(n, x), SystemBits(n))[-1] != unchanged for n in range(1, 41))


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "laplace"])
def test_sound_mechanisms_pass_the_checks(name: str) -> None:
    mechanism = MAKERS[name](1.0)
    assert support_is_fixed(mechanism)
    assert clamps(mechanism)
    assert every_row_is_noised(mechanism)


def test_mutant_moving_support_is_caught() -> None:
    mutant = MovingSupport(**podium(1.0).parameters())
    assert not support_is_fixed(mutant)
    assert shown(mutant, LOWER, UPPER) > 1.0


def test_mutant_unclamped_input_is_caught() -> None:
    mutants = (
        Unclamped(**podium(1.0).parameters()),
        UnclampedTwoPoint(**TwoPoint.fit(1.0, LOWER, UPPER).parameters()),
    )
    for mutant in mutants:
        with np.errstate(invalid="ignore"):
            assert not clamps(mutant)


def test_mutant_last_row_is_caught() -> None:
    assert not every_row_is_noised(LastRowForgotten(**podium(1.0).parameters()))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_mutant_threshold_rounded_up_is_caught(epsilon: float) -> None:
    """One unit in 2**64 more, and the ratio of two cells is above e^epsilon: exact arithmetic sees it."""
    sound = podium(epsilon)
    assert sound.threshold == window_threshold(epsilon, sound.cells, sound.step)
    assert cell_ratio(sound) <= exp_below(epsilon)
    assert cell_ratio(replace(sound, threshold=sound.threshold + 1)) > exp_below(epsilon)


def cell_ratio(mechanism: Podium) -> Fraction:
    """The probability of a cell inside the step over that of one outside it."""
    rest = Fraction(WORD - mechanism.threshold, mechanism.cells)
    return (rest + Fraction(mechanism.threshold, mechanism.step)) / rest
