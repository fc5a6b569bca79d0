"""The selectors for a quantile, and for an interval around it, over declared candidates."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

from spark_rdp.domains import CANDIDATES, EPSILON, LEVEL, MAX_GROUPS, MAX_PER_GROUP
from spark_rdp.errors import invalid
from spark_rdp.mechanisms.exponential import SELECTORS, quantile_sensitivity
from spark_rdp.mechanisms.quantile import QuantileSelector
from spark_rdp.planning.plan import SELECTION, Plan

AUTO = "auto"
#: Levels are fractions with denominators up to this one.
FINEST_LEVEL = 1000
#: The error shown is not exceeded with this probability.
CONFIDENCE = 0.95
#: Shares of the budget: of the value, and of each end of its interval.
VALUE_SHARE, END_SHARE = 0.5, 0.25
#: The ends aim at most so far from the level, in scores.
MOST_SHIFT = 2.0**60


def names() -> list[str]:
    """What ``mechanism`` may be: ``auto`` and the name of each selector."""
    return [AUTO, *SELECTORS]


def level_fraction(level: Any) -> tuple[int, int]:
    """The level of a quantile as a fraction: 0.5 is (1, 2).

    Raises:
        InvalidInput: The level is not a multiple of 1/d for a d up to FINEST_LEVEL.
    """
    number = LEVEL.check(level)
    fraction = Fraction(number).limit_denominator(FINEST_LEVEL)
    if abs(float(fraction) - number) > 1e-12:
        raise invalid(
            "level", f"a fraction with a denominator up to {FINEST_LEVEL}", level, "For example 0.5 or 0.999."
        )
    return fraction.numerator, fraction.denominator


def plan_quantile(
    *,
    epsilon: Any,
    level: Any,
    candidates: Any,
    max_per_group: Any = 1,
    max_groups: Any = 1,
    replace: bool = False,
    mechanism: str = AUTO,
) -> Plan:
    """Plan the selection of a quantile, and of the ends of its interval, in each group.

    The value gets VALUE_SHARE of the budget, each end END_SHARE. An end is at or beyond the exact quantile with
    probability (1 + CONFIDENCE) / 2, so that both are with CONFIDENCE.

    Args:
        epsilon: The budget of all groups of a unit together.
        level: 0.5 for the median.
        candidates: How many candidates there are, at least 2.
        max_per_group: The most values one unit contributes to a group.
        max_groups: The most groups one unit contributes to; each spends an equal share.
        replace: Whether neighbours replace one unit: one is then removed from some groups, and one added to others.
        mechanism: ``auto`` (permute-and-flip, which is never worse), ``permute-and-flip`` or ``exponential``.

    Returns:
        A plan of model ``selection``. Its metric value bounds, with CONFIDENCE, how many ranks the value is away from
        the quantile; scores count 1/denominator of a rank, and ``integer_sensitivity`` is what one unit changes in a
        score.
    """
    began = time.perf_counter()
    budget = EPSILON.check(epsilon)
    numerator, denominator = level_fraction(level)
    count = CANDIDATES.check(candidates)
    groups = MAX_GROUPS.check(max_groups) * (2 if replace else 1)
    if mechanism not in names():
        raise invalid("mechanism", f"one of {', '.join(names())}", mechanism, f"Use {AUTO}.")
    sensitivity = quantile_sensitivity(numerator, denominator, MAX_PER_GROUP.check(max_per_group))
    chosen = next(iter(SELECTORS)) if mechanism == AUTO else mechanism
    share = budget / groups
    EPSILON.named(f"epsilon / {groups} groups * {END_SHARE:g}").check(share * END_SHARE)
    while share * groups > budget:  # a share is rounded to a double; its halves and quarters are exact
        share *= 1 - 2.0**-53
    value, ends = (SELECTORS[chosen]((share * part,), sensitivity) for part in (VALUE_SHARE, END_SHARE))
    shift = ends.error(count, (1 + CONFIDENCE) / 2)
    if shift > MOST_SHIFT:
        remedy = "Let one unit contribute to fewer groups."
        raise invalid("epsilon", f"larger for {groups} groups and {max_per_group} rows", epsilon, remedy)
    selector = QuantileSelector(value, ends, numerator, denominator, math.ceil(shift))
    error = value.error(count, CONFIDENCE) / denominator
    why = (
        f"With {CONFIDENCE:.0%} the value is at most {error:.4g} ranks away from the quantile, and the ends of the "
        f"interval, which aim {shift / denominator:.4g} ranks lower and higher, lie around it."
    )
    return Plan(
        model=SELECTION,
        mechanism=chosen,
        parameters=selector.parameters(),
        epsilon=budget,
        verified_epsilon=selector.loss * groups,
        delta=0.0,
        sensitivity=sensitivity / denominator,
        coordinates=groups,
        granularity=1 / denominator,
        integer_sensitivity=sensitivity,
        metric={"rank_error": numerator / denominator},
        metric_value=error,
        certificate={
            "bound": None,
            "relative_gap": None,
            "reason": "Permute-and-flip is never worse than the exponential mechanism (McKenna and Sheldon).",
        },
        alternatives=dict.fromkeys(SELECTORS, error),
        why=why,
        seconds=time.perf_counter() - began,
    )


def build_quantile(plan: Plan) -> QuantileSelector:
    """The selector of a plan of model ``selection``."""
    return QuantileSelector.of(plan.mechanism, plan.parameters)
