"""What more budget buys: the plans for a range of epsilons."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spark_rdp.errors import InvalidInput
from spark_rdp.planning.plan import Plan

#: From strong privacy to weak, in steps of about a half.
EPSILONS = (0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)


def sweep(planner: Callable[[float], Plan], epsilons: Sequence[float] = EPSILONS) -> list[Plan]:
    """The plan for each epsilon, in their order; epsilons for which there is none are left out.

    Raises:
        InvalidInput: There is a plan for none of them; what the last one was refused for.
    """
    plans = []
    refused = None
    for epsilon in epsilons:
        try:
            plans.append(planner(epsilon))
        except InvalidInput as refusal:
            refused = refusal
    if not plans and refused is not None:
        raise refused
    return plans
