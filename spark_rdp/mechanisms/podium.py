"""Podium: two levels of probability on one fixed support, the higher one on a step that moves with the input."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from spark_rdp.mechanisms.local import exponent_for, in_units
from spark_rdp.mechanisms.window import MOST_CELLS, WORD, Window, window_threshold

#: Second moment of the input about the centre of the range, in squares of the range, behind each choice of the step.
CENTER, UNIFORM, WORST = 0.0, 1 / 12, 1 / 4
#: The support has at least 2**22 cells and the step, where the support may have enough cells for it, 64.
_SUPPORT_BITS, _STEP_CELLS = 22, 64


def support_ratio(epsilon: float, fraction: float) -> float:
    """Length of the support over the range, for a step that covers ``fraction`` of the support."""
    inverse = _inverse_gain(epsilon)
    return (inverse + fraction) / (fraction * (1 - fraction))


def variance_at(epsilon: float, fraction: float, second_moment: float) -> float:
    """Variance over the squared range, averaged over inputs of a given second moment about the centre.

    Source: Pihur 2019; mathematics, section 4. Written in 1/(e^epsilon - 1), which cannot overflow.
    """
    inverse = _inverse_gain(epsilon)
    top = (inverse + fraction) * (inverse + fraction**3)
    return top / (12 * fraction**2 * (1 - fraction) ** 2) + second_moment * inverse / fraction


def best_fraction(epsilon: float, second_moment: float) -> float:
    """The step, as a share of the support, with the least variance for inputs of a given second moment.

    Args:
        epsilon: The budget.
        second_moment: E[(x - centre)^2] / range^2: CENTER for the paper's EXACT step, UNIFORM, WORST, or of a prior.
    """
    inverse = _inverse_gain(epsilon)
    if inverse < 1e-80:  # the step is far narrower than any lattice
        return 1e-30
    if second_moment == 0:

        def quartic(t: float) -> float:
            """The quartic of the paper over (1 + A r)(1 + A r^3), A = e^epsilon - 1, r = e^t: all terms near 1."""
            r = math.exp(t)
            return r * (1 - r) / (inverse + r) + 3 * r**3 * (1 - r) / (inverse + r**3) + 4 * r - 2

        return math.exp(brentq(quartic, math.log(1e-30), math.log(0.6), xtol=1e-14))
    bounds = (math.log(1e-30), math.log(0.5))
    found = minimize_scalar(
        lambda t: math.log(variance_at(epsilon, math.exp(t), second_moment)), bounds=bounds, options={"xatol": 1e-12}
    )
    return math.exp(found.x)


def approximate_fraction(epsilon: float) -> float:
    """The paper's approximate step, 1 / (1 + e^(epsilon/3))."""
    return _logistic(epsilon / 3)


def piecewise_fraction(epsilon: float) -> float:
    """The step of the piecewise mechanism, 1 / (1 + e^(epsilon/2)) (Wang et al. 2019)."""
    return _logistic(epsilon / 2)


def _logistic(exponent: float) -> float:
    return max(math.exp(-exponent) / (1 + math.exp(-exponent)), 1e-30)


def _inverse_gain(epsilon: float) -> float:
    """1 / (e^epsilon - 1)."""
    return math.exp(-epsilon) / -math.expm1(-epsilon)


@dataclass(frozen=True)
class Podium(Window):
    """The Podium mechanism on the lattice.

    Args:
        lower, upper: The range, in the unit of the value.
        exponent: Base-2 logarithm of the granularity.
        first: The smallest lattice integer of the support.
        cells: Length of the support in lattice units.
        step: Length of the step.
        threshold: Probability, out of 2**64, of drawing from the step rather than from the whole support.

    Use `Podium.fit` to get one for a budget.

    Source: Pihur 2019; mathematics, section 4.
    """

    name: ClassVar[str] = "podium"
    lower: float
    upper: float
    exponent: int
    first: int
    cells: int
    step: int
    threshold: int
    _offset: float = field(init=False, repr=False, compare=False)
    _span: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        begin, end = (self._exact_place(Fraction(bound)) for bound in (self.lower, self.upper))
        if not 0 <= begin <= end <= self.cells - self.step:
            raise ValueError("the support is too short for the range")
        object.__setattr__(self, "_offset", float(begin))
        object.__setattr__(self, "_span", float(end - begin))

    @classmethod
    def fit(cls, epsilon: float, lower: float, upper: float, fraction: float, exponent: int | None = None) -> Podium:
        """The mechanism of a budget whose step covers ``fraction`` of the support (`best_fraction` and its like).

        Args:
            epsilon: The budget; `loss` is at most this, exactly.
            lower, upper: The range; both finite, the lower one first.
            fraction: Between 0 and 1/2.
            exponent: The lattice; chosen from the length of the support when absent.
        """
        ratio = support_ratio(epsilon, fraction)
        length = (upper - lower) * ratio
        if exponent is None:
            bits = min(max(_SUPPORT_BITS, math.ceil(math.log2(_STEP_CELLS / fraction))), 29)
            exponent = exponent_for(length, 2**bits, max(abs(lower), abs(upper)) + length)
        span = in_units(upper, exponent) - in_units(lower, exponent)
        cells = max(2, math.floor(span * Fraction(ratio)))
        while True:  # the step and the threshold are rounded: lengthen the support until both ends have a place
            step = max(1, round(fraction * cells))
            threshold = window_threshold(epsilon, cells, step)
            missing = (span + 1) * WORD / threshold - (cells - step)
            if missing <= 0:
                break
            cells += max(1, math.ceil(missing))
        if cells > MOST_CELLS:
            raise ValueError("the lattice is too fine for this range")
        first = math.floor(in_units(lower, exponent) - _unshifted(cells, step, threshold))
        return cls(float(lower), float(upper), exponent, first, cells, step, threshold)

    def parameters(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if not name.startswith("_")}

    def _exact_place(self, value: Fraction) -> Fraction:
        """The start of the step with which the mean output is ``value``: the mean is linear in it."""
        units = value / Fraction(2) ** self.exponent - self.first
        return (units - _unshifted(self.cells, self.step, self.threshold)) * WORD / self.threshold

    def place(self, values: np.ndarray) -> np.ndarray:
        share = (values - self.lower) * (1.0 / (self.upper - self.lower))
        share *= self._span
        share += self._offset
        return share

    def outputs(self, drawn: np.ndarray) -> np.ndarray:
        return drawn + self.first

    def cells_between(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        begin = np.ceil(np.ldexp(low, -self.exponent) - self.first)
        end = np.floor(np.ldexp(high, -self.exponent) - self.first) + 1
        return begin, end

    def mean_output(self, x: np.ndarray) -> np.ndarray:
        start, share = self._starts(x)
        inside = start + share + (self.step - 1) / 2
        mean = self.weight * inside + (1 - self.weight) * (self.cells - 1) / 2
        return np.ldexp(mean + self.first, self.exponent)

    def variance(self, x: np.ndarray) -> np.ndarray:
        start, share = self._starts(x)
        inside = start + share + (self.step - 1) / 2
        middle = (self.cells - 1) / 2
        rest = (WORD - self.threshold) / WORD
        within = self.weight * (share * (1 - share) + (self.step**2 - 1) / 12) + rest * (self.cells**2 - 1) / 12
        return np.ldexp(within + self.weight * rest * (inside - middle) ** 2, 2 * self.exponent)


def _unshifted(cells: int, step: int, threshold: int) -> Fraction:
    """Mean cell when the step starts at cell 0."""
    return Fraction(threshold * (step - 1) + (WORD - threshold) * (cells - 1), 2 * WORD)


@dataclass(frozen=True)
class Piecewise(Podium):
    """The piecewise mechanism (Wang et al. 2019): a Podium whose step is `piecewise_fraction` of the support."""

    name: ClassVar[str] = "piecewise"
