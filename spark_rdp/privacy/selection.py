"""Private selection of keys: which groups may be published although nobody declared them.

A key with n units is published with probability pi(n), drawn once. The table is the largest one that is (eps, delta)
private for a change of n by one, in every n at once:

    pi(0) = 0,  pi(n+1) = min(e^eps pi(n) + delta,  1 - e^-eps (1 - pi(n) - delta),  1)

Everything is computed and proved in integers: probabilities are thresholds out of 2^64, e^eps is replaced by a rational
number below it, and each step is rounded down.

Source: Desfontaines, Voss, Gipson, Mandayam, "Differentially private partition selection", PoPETs 2022, Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from spark_rdp.errors import invalid

#: Probabilities are whole multiples of 2**-64.
ONE = 2**64
#: A table has at most this many entries (16 MiB).
LONGEST = 2**21
#: Above this many units of epsilon e^eps no longer matters beside 2**64.
_LARGEST_EPSILON = Decimal(64)
_FRACTION_BITS = 96


def exp_below(epsilon: Fraction) -> int:
    """A whole number at most ``2**96 * e**epsilon``, and less than a relative 1e-27 below it (up to epsilon = 64)."""
    floor = Context(prec=60, rounding=ROUND_FLOOR)
    exponent = min(floor.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator)), _LARGEST_EPSILON)
    power = floor.next_minus(floor.exp(exponent))
    return max(1 << _FRACTION_BITS, math.floor(Fraction(power) * (1 << _FRACTION_BITS)))


def _steps(growth: int, delta: int) -> list[int]:
    """The recurrence in integers, up to the last threshold below ONE."""
    scale = 1 << _FRACTION_BITS
    thresholds, current = [0], 0
    while True:
        rising = (growth * current >> _FRACTION_BITS) + delta
        closing = ONE - -(-(ONE - current - delta) * scale // growth) if current + delta < ONE else ONE
        following = min(rising, closing, ONE)
        if following >= ONE:
            return thresholds
        current = following
        thresholds.append(current)
    return thresholds


def _certain_about(epsilon: float, delta: float) -> float:
    """About how many units make publication certain: twice the crossover of Theorem 1, or 1/delta if that is less."""
    growth = math.exp(min(epsilon, 64.0)) - 1
    return min(2 * math.log1p(growth * (1 - delta) / (delta * (growth + 2))) / epsilon + 2, 1 / delta + 1)


def is_private(thresholds: list[int], growth: int, delta: int) -> bool:
    """Whether publishing with ``threshold / 2**64`` is private for every change of the count by one.

    Args:
        thresholds: For n = 0, 1, ..., without the certain publication that follows the last one.
        growth: At most ``2**96 * e**epsilon``.
        delta: At most ``2**64 * delta``.
    """
    scale = 1 << _FRACTION_BITS
    if thresholds[0] != 0:
        return False
    for low, high in zip(thresholds, [*thresholds[1:], ONE], strict=True):
        for less, more in ((low, high), (high, low)):
            kept = scale * (more - delta) <= growth * less
            dropped = scale * (ONE - more - delta) <= growth * (ONE - less)
            if not (kept and dropped):
                return False
    return True


@dataclass(frozen=True)
class KeepTable:
    """The probability of publishing a key, by its number of units.

    Args:
        epsilon: Of one key and one unit.
        delta: Of one key and one unit.
        thresholds: ``uint64``; a key with n units is published with probability ``thresholds[n] / 2**64``, and
            certainly from ``n = len(thresholds)`` on.
    """

    epsilon: Fraction
    delta: Fraction
    thresholds: np.ndarray = field(compare=False)

    @property
    def certain(self) -> int:
        """The smallest number of units with which a key is always published."""
        return len(self.thresholds)

    def probability(self, units: np.ndarray) -> np.ndarray:
        """The probability of publishing keys with so many units each (float64)."""
        thresholds, always = self.keep(units)
        return np.where(always, 1.0, thresholds.astype(np.float64) / float(ONE))

    def keep(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The decision for keys with so many units each.

        Returns:
            Thresholds (uint64): publish if a uniform 64-bit number is below it; and whether to publish in any case.
        """
        units = np.asarray(units, dtype=np.int64)
        always = units >= self.certain
        return self.thresholds[np.clip(units, 0, self.certain - 1)], always


@lru_cache(maxsize=16)
def keep_table(epsilon_millionths: int, delta: float, keys_per_unit: int) -> KeepTable:
    """The best table for a selection in which one unit adds or removes one to the counts of several keys.

    Each key is decided by itself from its own count, so a unit's effect on all of them composes: the losses add up
    and so do the deltas. Every key therefore gets ``epsilon / keys_per_unit`` and ``delta / keys_per_unit``.

    Args:
        epsilon_millionths: The budget of the selection, in millionths.
        delta: The probability budget of the selection, in (0, 0.5].
        keys_per_unit: How many counts one unit changes by one; twice max_groups when units are replaced.

    Raises:
        InvalidInput: The share of one key is too small to publish anything.
    """
    epsilon, per_key = Fraction(epsilon_millionths, 10**6 * keys_per_unit), Fraction(delta) / keys_per_unit
    growth, allowance = exp_below(epsilon), math.floor(per_key * ONE)
    if allowance < 1:
        remedy = "Raise it, or lower privacy.max_groups."
        raise invalid("group_by.delta", f"at least {keys_per_unit / ONE:.3g}", delta, remedy)
    if _certain_about(float(epsilon), float(per_key)) > LONGEST:
        raise invalid(
            "The share of the selection in privacy.epsilon",
            f"large enough to publish a key with fewer than {LONGEST} units",
            float(epsilon * keys_per_unit),
            "Raise it, or lower privacy.max_groups.",
        )
    thresholds = _steps(growth, allowance)
    if not is_private(thresholds, growth, allowance):  # by construction; checked before it is spent all the same
        raise AssertionError("the table of keep probabilities breaks its own bound")
    return KeepTable(epsilon, per_key, np.array(thresholds, dtype=np.uint64))
