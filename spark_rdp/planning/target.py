"""The other direction: the smallest budget that reaches an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from scipy.optimize import brentq

from spark_rdp.domains import EPSILON, Real
from spark_rdp.errors import InvalidInput
from spark_rdp.planning.plan import Plan

ERROR = Real("target_error", 1e-100, 1e100, "Give the metric value to reach, in the unit of the value.")
PROBABILITY = Real("target_error", 1e-6, 1 - 1e-6, "With usefulness, give the probability of a useful answer to reach.")


def smallest(planner: Callable[[float], Plan], target_error: Any) -> Plan:
    """The plan with the smallest epsilon, to three significant digits, whose metric value is as good as the target.

    Args:
        planner: The plan for an epsilon; its metric value gets better as epsilon grows.
        target_error: The metric value to reach, as `Plan.metric_value` reports it: an error to stay below, or, for
            usefulness, a probability to stay above.

    Raises:
        InvalidInput: The target is out of range, or no allowed epsilon reaches it.
    """
    made = lru_cache(maxsize=None)(planner)
    higher = made(1.0).higher_is_better
    aim = (PROBABILITY if higher else ERROR).check(target_error)

    def reached(epsilon: float) -> bool:
        value = made(epsilon).metric_value
        return value >= aim if higher else value <= aim

    def missing(log_epsilon: float) -> float:
        """Positive while the error is above the target; close to linear in the logarithm of epsilon."""
        value = made(min(max(math.exp(log_epsilon), EPSILON.lower), EPSILON.upper)).metric_value
        return aim - value if higher else math.log(max(value, 1e-300) / aim)

    low, high = 1.0, 1.0
    while not reached(high):
        if high == EPSILON.upper:
            raise InvalidInput(
                f"target_error must be a value that an epsilon up to {EPSILON.upper:g} reaches; got {target_error!r}. "
                "Ask for a larger error or lower the sensitivity."
            )
        low, high = high, min(high * 4, EPSILON.upper)
    while reached(low):
        if low == EPSILON.lower:
            return made(low)
        low, high = max(low / 4, EPSILON.lower), low
    root = math.exp(brentq(missing, math.log(low), math.log(high), xtol=1e-4))
    step = 10.0 ** (math.floor(math.log10(root)) - 2)
    steps = max(1, math.floor(root / step) - 1)  # a little below the root: its rounding is not trusted
    while not reached(float(f"{steps * step:.3g}")):
        steps += 1
    return made(float(f"{steps * step:.3g}"))
