"""Private selection of the best candidate: the exponential mechanism and permute-and-flip.

Both accept a candidate with probability e^-x, x being how far its score lies below the best one, in units of privacy
loss: the exponential mechanism draws candidates with replacement until one is accepted, permute-and-flip without. Only
coins and uniform integers are drawn, never a noise in floating point.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from spark_rdp.domains import EPSILON
from spark_rdp.errors import invalid
from spark_rdp.mechanisms.coins import PRECISION, Rows, decays
from spark_rdp.mechanisms.r2dp import AtomChooser
from spark_rdp.randomness import LANES, Bits, uniform_below

#: Scores further below the best one than this (in units of loss) count as this far: rounding then stays harmless. The
#: clipped score has the sensitivity of the score itself, so that the mechanism stays as private.
FARTHEST = 1024.0
#: ln of a ratio of probabilities is off by no more than this.
SLACK = 4 * PRECISION * (FARTHEST + 2)
_BUDGET, _PLACE, _COIN = 0, 1, 2
#: Lanes between two rounds of the exponential mechanism.
_ROUND = 4


@dataclass(frozen=True)
class Selector(ABC):
    """Selects the index of a candidate with a high score.

    Args:
        epsilons: The budget, or several of which one is drawn for each selection. What is charged is the largest: a
            mixture is max(epsilons)-private in general, and no better bound is known.
        sensitivity: The most one privacy unit can change a score; a positive whole number.
        weights: Probabilities of the budgets; equal when left out.
        monotone: Whether one unit moves all scores in one direction (as counts do): twice as much can then be made of
            the same budget.

    Source: McSherry and Talwar 2007; McKenna and Sheldon 2020; mathematics, section 1.5.
    """

    name: ClassVar[str]
    epsilons: tuple[float, ...]
    sensitivity: int
    weights: tuple[float, ...] = ()
    monotone: bool = False
    _rates: np.ndarray = field(init=False, repr=False, compare=False)
    _chooser: AtomChooser | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        epsilons = tuple(EPSILON.check(epsilon) for epsilon in self.epsilons)
        weights = tuple(self.weights) or (1 / len(epsilons),) * len(epsilons)
        if len(weights) != len(epsilons) or not min(weights) > 0 or abs(sum(weights) - 1) > 1e-9:
            raise invalid(
                "weights", "positive, one for each epsilon, adding up to 1", weights, "Leave them out for equal ones."
            )
        if not 1 <= self.sensitivity < 2**62:
            raise invalid("sensitivity", "a positive whole number", self.sensitivity, "Scale the scores.")
        object.__setattr__(self, "epsilons", epsilons)
        object.__setattr__(self, "weights", weights)
        rates = (np.array(epsilons) - SLACK) / self.sensitivity * (1.0 if self.monotone else 0.5)
        if not rates.min() > 0:
            raise invalid("epsilon", f"above {SLACK:.1g}", min(epsilons), "Common choices lie between 0.1 and 10.")
        object.__setattr__(self, "_rates", rates * (1 - 2.0**-50))
        object.__setattr__(self, "_chooser", AtomChooser(np.array(weights)) if len(weights) > 1 else None)

    @property
    def loss(self) -> float:
        """The privacy loss charged: the largest budget."""
        return max(self.epsilons)

    def parameters(self) -> dict[str, Any]:
        """What, with `name`, rebuilds the selector."""
        weights = {"weights": list(self.weights)} if len(self.weights) > 1 else {}
        budget = {"epsilons": list(self.epsilons), **weights}
        return {**budget, "sensitivity": self.sensitivity, "monotone": self.monotone}

    def error(self, candidates: int, level: float) -> float:
        """With probability ``level`` the score selected lies no further than this below the best one.

        Args:
            candidates: How many there are.
            level: Below 1.
        """
        return math.log(candidates / (1 - level)) / float(self._rates.min())

    def release(self, scores: np.ndarray, bits: Bits) -> np.ndarray:
        """Select a candidate for each row.

        Args:
            scores: int64 of shape (n, m), magnitudes at most 2**61.
            bits: The bits of these n rows.

        Returns:
            int64 of shape (n,), positions 0 to m - 1.
        """
        table = np.asarray(scores, dtype=np.int64)
        if table.ndim != 2 or table.shape[1] < 1 or len(table) != bits.size:
            raise ValueError("scores must be of shape (n, m) with m >= 1, for the bits of n rows")
        below = (table.max(axis=1, keepdims=True) - table).astype(np.float64)
        rates = np.full(len(table), self._rates[0])
        if self._chooser is not None:
            rates = self._rates[self._chooser.choose(bits, _BUDGET)]
        return self._select(np.minimum(below * rates[:, None], FARTHEST), bits)

    @abstractmethod
    def _select(self, x: np.ndarray, bits: Bits) -> np.ndarray:
        """A position for each row, candidates being accepted with probability e^-x."""


@dataclass(frozen=True)
class Exponential(Selector):
    """P(i) proportional to e^(epsilon score_i / (2 sensitivity))."""

    name: ClassVar[str] = "exponential"

    def _select(self, x: np.ndarray, bits: Bits) -> np.ndarray:
        count = x.shape[1]
        result = np.zeros(len(x), dtype=np.int64)
        waiting = np.arange(len(x))
        attempt = 0
        while len(waiting):  # at least one of the candidates is always accepted: a round ends 63 % of the rows or more
            own = Rows(bits, waiting)
            lane = attempt * _ROUND
            assert lane + _ROUND < LANES, "thousands of rounds: the bits are not random"
            places = _uniform_table(own, lane + _PLACE, count)
            accepted = decays(own, lane + _COIN, np.take_along_axis(x[waiting], places, axis=1))
            ended = accepted.any(axis=1)
            first = accepted[ended].argmax(axis=1)
            result[waiting[ended]] = places[ended, first]
            waiting = waiting[~ended]
            attempt += 1
        return result


@dataclass(frozen=True)
class PermuteAndFlip(Selector):
    """The first candidate accepted in a random order: never worse than the exponential mechanism.

    Each candidate's coin is tossed once, whatever the order; the first one accepted is therefore a uniform choice among
    those accepted.
    """

    name: ClassVar[str] = "permute-and-flip"

    def _select(self, x: np.ndarray, bits: Bits) -> np.ndarray:
        accepted = decays(bits, _COIN, x)
        numbers = accepted.sum(axis=1)
        chosen = np.zeros(len(x), dtype=np.int64)
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            chosen[rows] = uniform_below(bits, _PLACE, number, rows)
        return (np.cumsum(accepted, axis=1) > chosen[:, None]).argmax(axis=1)


def _uniform_table(bits: Bits, lane: int, bound: int) -> np.ndarray:
    """Uniform integers in [0, bound), exactly: ``bound`` of them in each row."""
    last_fair = np.uint64(2**64 // bound * bound - 1)
    words = bits.words(lane, bound)
    attempt = 0
    while np.any(unfair := words > last_fair):
        attempt += 1
        rows = np.flatnonzero(unfair.any(axis=1))
        fresh = bits.words(lane + attempt * LANES, bound, rows)
        words[rows] = np.where(unfair[rows], fresh, words[rows])
    return (words % np.uint64(bound)).astype(np.int64)


#: Selectors by the name plans carry; each is called with the parameters of the plan.
SELECTORS: dict[str, type[Selector]] = {PermuteAndFlip.name: PermuteAndFlip, Exponential.name: Exponential}


def quantile_sensitivity(numerator: int, denominator: int, cap: int) -> int:
    """How much one privacy unit can change the score of a quantile when its values are added or removed.

    Args:
        numerator, denominator: The level of the quantile; scores count 1 / denominator of a rank.
        cap: The most values one unit contributes to a group.
    """
    return cap * max(numerator, denominator - numerator)
