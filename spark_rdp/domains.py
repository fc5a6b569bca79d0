"""Numbers that know their range.

A public number is declared once, here; the declaration drives the check, the message and the
property tests. A range is one positive condition, so NaN never passes it.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from spark_rdp.errors import invalid


def _text(bound: float) -> str:
    return f"{bound:.0f}" if abs(bound) < 1e16 and bound == int(bound) else repr(bound)


@dataclass(frozen=True)
class Real:
    """A real number in a range whose ends belong to it.

    Args:
        name: How messages call the number.
        lower, upper: The range; both finite, both included.
        remedy: One sentence that says what to write instead.
        or_zero: Accept exactly 0 as well (for numbers where 0 means "none").
    """

    name: str
    lower: float
    upper: float
    remedy: str
    or_zero: bool = False

    @property
    def constraint(self) -> str:
        zero = "0, or " if self.or_zero else ""
        return f"{zero}a number between {_text(self.lower)} and {_text(self.upper)}"

    def named(self, name: str) -> Real:
        """The same range under another name."""
        return replace(self, name=name)

    def check(self, value: Any) -> float:
        """Return ``value`` as a float, or raise InvalidInput.

        Accepts int, float, NumPy numbers, Decimal and Fraction; refuses bool, text, None, NaN and infinity.
        """
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, Decimal, np.number)):
            raise invalid(self.name, self.constraint, value, self.remedy)
        try:
            number = float(value)
        except (OverflowError, TypeError, ValueError):
            raise invalid(self.name, self.constraint, value, self.remedy) from None
        if (self.or_zero and number == 0) or self.lower <= number <= self.upper:
            return number + 0.0  # -0.0 becomes 0.0
        raise invalid(self.name, self.constraint, value, self.remedy)


@dataclass(frozen=True)
class Whole:
    """A whole number in a range whose ends belong to it."""

    name: str
    lower: int
    upper: int
    remedy: str

    @property
    def constraint(self) -> str:
        return f"a whole number between {self.lower} and {self.upper}"

    def named(self, name: str) -> Whole:
        """The same range under another name."""
        return replace(self, name=name)

    def check(self, value: Any) -> int:
        """Return ``value`` as an int, or raise InvalidInput; 3.0 counts as 3, True does not count as 1."""
        number = Real(self.name, self.lower, self.upper, self.remedy)
        try:
            real = number.check(value)
        except ValueError:
            raise invalid(self.name, self.constraint, value, self.remedy) from None
        if real != math.floor(real):
            raise invalid(self.name, self.constraint, value, self.remedy)
        return int(value)


#: Largest magnitude of a bound or a sensitivity. Far below the overflow of a double, so that no product of bounds,
#: caps and counts can become infinite.
LARGEST = 1e100
SMALLEST = 1e-100

EPSILON = Real("epsilon", 1e-6, 1e4, "Common choices lie between 0.1 and 10.")
DELTA = Real(
    "delta", 1e-30, 0.5, "Use 0 for pure differential privacy, or a value well below 1 / number of units.", or_zero=True
)
SENSITIVITY = Real("sensitivity", SMALLEST, LARGEST, "Give the most that one privacy unit can change the value.")
BOUND = Real("bound", -LARGEST, LARGEST, "Give a finite bound that does not depend on the data.")
GAMMA = Real("gamma", SMALLEST, LARGEST, "Give the error that still counts as useful, in the unit of the value.")
EXPONENT = Real("p", 1.0, 16.0, "Use 1 for the mean absolute error or 2 for the root mean square.")
ORDER = Real("order", 1.0, 64.0, "Use 1 for the Kullback-Leibler divergence.")
PRIOR_WEIGHT = Real("prior", 0.0, LARGEST, "Weights are how many, or how much, one expects in each cell.")
GRANULARITY = Real("granularity", SMALLEST, LARGEST, "Use 1 for counts, or leave it out.")
LEVEL = Real("level", 1e-3, 1 - 1e-3, "Use 0.5 for the median.")
WEIGHT = Real("weight", 1e-6, 1e6, "Weights share the budget in proportion; leave it out for 1.")
COORDINATES = Whole("coordinates", 1, 2**31 - 1, "Give the number of published values one privacy unit can change.")
CANDIDATES = Whole("candidates", 2, 10**6, "Declare the values a quantile may be.")
MAX_GROUPS = Whole("max_groups", 1, 2**31 - 1, "Give the most groups one privacy unit may contribute to.")
MAXIMUM = Whole("maximum", 1, 2**53, "Declare the most a count can be, whatever the data.")
MAX_PER_GROUP = Whole("max_per_group", 1, 2**31 - 1, "Give the most rows one privacy unit may contribute to a group.")
CONFIDENCE = Real("confidence", 0.5, 1 - 1e-9, "Use 0.95 for intervals that hold the truth 19 times out of 20.")
HISTOGRAM_BINS = Whole("bins", 1, 1000, "Use about 20 bins, or give their edges.")
ELEMENT = Whole("element", 0, 4095, "Elements are numbered from 0.")
ROWS_PER_UNIT = Whole("rows_per_unit", 1, 2**31 - 1, "Give the most rows of one unit in a group.")
MAX_REPORTS = Whole("max_reports", 1, 2**31 - 1, "Give the most rows of one unit that a run publishes.")
LENGTH = Whole("length", 1, 4096, "Give how many elements every array of the column has.")
SAMPLE = Whole("sample", 1, 2**16, "Give how many of its values a row reports, or auto.")
MAX_DEGREE = Whole("max_degree", 1, 2**20 - 2, "Give the largest degree that is told apart.")
WINDOW = Whole("window", 1, 2**20, "Give a number of periods.")
NODES = Whole("nodes", 2, 2**40, "Give how many nodes the graph has.")


def check_bounds(lower: Any, upper: Any, lower_name: str = "lower", upper_name: str = "upper") -> tuple[float, float]:
    """Check a pair of bounds: both finite, and the lower one below the upper one."""
    low = BOUND.named(lower_name).check(lower)
    high = BOUND.named(upper_name).check(upper)
    if not low < high:
        raise invalid(
            lower_name, f"below {upper_name} ({upper!r})", lower, "Give two different bounds, the smaller one first."
        )
    return low, high
