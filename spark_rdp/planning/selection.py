"""The selector for a quantile over declared candidates."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

from spark_rdp.domains import CANDIDATES, EPSILON, LEVEL, MAX_GROUPS, MAX_PER_GROUP
from spark_rdp.errors import invalid
from spark_rdp.mechanisms.exponential import SELECTORS, Selector, quantile_sensitivity
from spark_rdp.planning.plan import Plan

AUTO = "auto"
#: Levels are fractions with denominators up to this one.
FINEST_LEVEL = 1000
#: The error shown is not exceeded with this probability.
CONFIDENCE = 0.95


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
    """Plan the selection of a quantile in each group.

    Args:
        epsilon: The budget of all groups of a unit together.
        level: 0.5 for the median.
        candidates: How many candidates there are, at least 2.
        max_per_group: The most values one unit contributes to a group.
        max_groups: The most groups one unit contributes to; each spends an equal share.
        replace: Whether neighbours replace one unit: one is then removed from some groups, and one added to others.
        mechanism: ``auto`` (permute-and-flip, which is never worse), ``permute-and-flip`` or ``exponential``.

    Returns:
        A plan of model ``selection``. Its metric value bounds, with CONFIDENCE, how much closer to the level the best
        candidate would have been, in values of the group; scores count 1/denominator of a value, and
        ``integer_sensitivity`` is what one unit changes in a score.
    """
    began = time.perf_counter()
    budget = EPSILON.check(epsilon)
    numerator, denominator = level_fraction(level)
    count = CANDIDATES.check(candidates)
    groups = MAX_GROUPS.check(max_groups) * (2 if replace else 1)
    if mechanism not in (AUTO, *SELECTORS):
        raise invalid("mechanism", f"one of {AUTO}, {', '.join(SELECTORS)}", mechanism, f"Use {AUTO}.")
    sensitivity = quantile_sensitivity(numerator, denominator, MAX_PER_GROUP.check(max_per_group))
    share = EPSILON.named("epsilon / max_groups").check(budget / groups)
    while share * groups > budget:  # a share is rounded to a double
        share *= 1 - 2.0**-53
    chosen = next(iter(SELECTORS)) if mechanism == AUTO else mechanism
    selector = SELECTORS[chosen]((share,), sensitivity)
    value = selector.error(count, CONFIDENCE) / denominator
    why = f"With {CONFIDENCE:.0%} the rank of the answer is at most {value:.4g} values worse than the best candidate's."
    return Plan(
        model="selection",
        mechanism=chosen,
        parameters=selector.parameters(),
        epsilon=budget,
        verified_epsilon=selector.loss * groups,
        delta=0.0,
        sensitivity=sensitivity / denominator,
        coordinates=groups,
        granularity=1 / denominator,
        integer_sensitivity=sensitivity,
        metric={"rank_error": float(numerator / denominator)},
        metric_value=value,
        certificate={
            "bound": None,
            "relative_gap": None,
            "reason": "Permute-and-flip is never worse than the exponential mechanism (McKenna and Sheldon).",
        },
        alternatives=dict.fromkeys(SELECTORS, value),
        why=why,
        seconds=time.perf_counter() - began,
    )


def build_selector(plan: Plan) -> Selector:
    """The selector of a plan of model ``selection``."""
    return SELECTORS[plan.mechanism](**plan.parameters)
