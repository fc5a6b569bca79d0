"""The best noise for one bounded value in the local model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scipy.optimize import minimize_scalar

from spark_rdp.domains import EPSILON, SENSITIVITY, check_bounds
from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.mechanisms.additive_local import AdditiveLocal, sensitivity
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.fitted import Fitted
from spark_rdp.mechanisms.hybrid import Hybrid
from spark_rdp.mechanisms.local import Local
from spark_rdp.mechanisms.podium import (
    CENTER,
    WORST,
    Piecewise,
    Podium,
    approximate_fraction,
    best_fraction,
    piecewise_fraction,
)
from spark_rdp.mechanisms.two_point import TwoPoint
from spark_rdp.metrics import L2, Usefulness
from spark_rdp.planning import additive
from spark_rdp.planning.fitting import fit_shape
from spark_rdp.planning.limits import variance_limit
from spark_rdp.planning.local_metrics import AVERAGE, LocalMetric
from spark_rdp.planning.plan import Plan, remember
from spark_rdp.planning.problem import preferred, tie

AUTO = "auto"
#: Budgets the fitted mechanism is offered for. Below, two points are as good; above, windows are narrower than cells.
FITTED_RANGE = (0.01, 10.0)
#: Budgets a limit is known for. Above, 21 inputs lie too far apart beside the noise for the limit to be close.
LIMIT_RANGE = (0.01, 6.0)


@dataclass(frozen=True)
class LocalProblem:
    """A checked question."""

    epsilon: float
    lower: float
    upper: float
    metric: LocalMetric


def _podium(problem: LocalProblem, fraction: float) -> Podium:
    return Podium.fit(problem.epsilon, problem.lower, problem.upper, fraction)


def _podium_for_metric(problem: LocalProblem) -> Podium:
    if not problem.metric.higher_is_better:
        return _podium(problem, best_fraction(problem.epsilon, problem.metric.second_moment))
    smallest = min(best_fraction(problem.epsilon, CENTER) / 4, 0.1)
    found = minimize_scalar(
        lambda t: -problem.metric.value(_podium(problem, math.exp(t))), bounds=(math.log(smallest), math.log(0.5))
    )
    return _podium(problem, math.exp(found.x))


def _piecewise(problem: LocalProblem) -> Podium:
    return Piecewise.fit(problem.epsilon, problem.lower, problem.upper, piecewise_fraction(problem.epsilon))


def _fitted(problem: LocalProblem) -> Fitted:
    low, high = FITTED_RANGE
    if problem.metric.higher_is_better or not low <= problem.epsilon <= high:
        raise InvalidInput(f"mechanism fitted minimises a variance, for epsilon between {low} and {high}. Use auto.")
    shape = fit_shape(problem.epsilon, problem.metric.goal())
    return Fitted.of_shape(problem.epsilon, problem.lower, problem.upper, shape.step, shape.levels)


def _additive(name: str) -> Callable[[LocalProblem], AdditiveLocal]:
    """Additive noise planned for the whole range as its sensitivity."""

    def candidate(problem: LocalProblem) -> AdditiveLocal:
        gamma = problem.metric.gamma

        def make(steps: int) -> Additive:
            goal = L2() if gamma is None else Usefulness(gamma / granularity)
            plan = additive.plan(epsilon=problem.epsilon, sensitivity=steps, metric=goal, mechanism=name, granularity=1)
            return plan.build()

        exponent = AdditiveLocal.exponent_for(problem.epsilon, problem.lower, problem.upper)
        granularity = math.ldexp(1.0, exponent)
        steps = sensitivity(problem.lower, problem.upper, exponent)
        return AdditiveLocal(problem.lower, problem.upper, exponent, make(steps))

    return candidate


#: The mechanisms `auto` compares, the simplest first. One that cannot serve a question raises InvalidInput.
CANDIDATES: dict[str, Callable[[LocalProblem], Local]] = {
    "duchi": lambda problem: TwoPoint.fit(problem.epsilon, problem.lower, problem.upper),
    "podium": _podium_for_metric,
    "podium-center": lambda problem: _podium(problem, best_fraction(problem.epsilon, CENTER)),
    "podium-approximate": lambda problem: _podium(problem, approximate_fraction(problem.epsilon)),
    "podium-worst": lambda problem: _podium(problem, best_fraction(problem.epsilon, WORST)),
    "piecewise": _piecewise,
    "hybrid": lambda problem: Hybrid.fit(problem.epsilon, problem.lower, problem.upper),
    "fitted": _fitted,
}


#: Additive noise that is tried when it is asked for: random scales, whose search takes a while.
ON_REQUEST = tuple(name for name in additive.ON_REQUEST if name not in additive.NEED_DELTA)
#: A second or two of search: left out of the comparison where another mechanism is named.
SLOW = ("fitted",)


def candidates() -> dict[str, Callable[[LocalProblem], Local]]:
    """Every mechanism by name: those for bounded values, and each pure additive noise the central planner knows."""
    return {**CANDIDATES, **{name: _additive(name) for name in (*additive.CANDIDATES, *ON_REQUEST)}}


def names() -> list[str]:
    """What ``mechanism`` may be: ``auto`` and the name of each mechanism."""
    return [AUTO, *candidates()]


def plan_local(
    epsilon: Any,
    lower: Any,
    upper: Any,
    metric: Any = AVERAGE,
    mechanism: str = AUTO,
    prior: Any = None,
    limit: bool = False,
) -> Plan:
    """Find the noise that serves a metric best for one value in [lower, upper], every other value being its neighbour.

    Args:
        epsilon: The budget of one report, 1e-6 to 1e4.
        lower, upper: The range; values outside it will be clamped.
        metric: ``average-variance``, ``worst-variance``, ``center-variance``, ``prior-variance`` (with ``prior``) or
            ``{"usefulness": gamma}``: the probability that the error is at most gamma, averaged over uniform inputs.
        mechanism: ``auto`` for the best for the metric, or one of `names`.
        prior: A histogram ``{"edges": [...], "weights": [...]}`` of the inputs one expects.
        limit: Also work out how far from the best possible the plan is; takes some seconds.

    Returns:
        A plan of model ``local``; ``verified_epsilon`` is the exact loss of the thresholds drawn with. It names the
        alternatives compared: with a named mechanism all but `SLOW`.

    Raises:
        InvalidInput: An argument is outside its domain, or the mechanism cannot serve this question.

    Example:
        >>> plan_local(epsilon=1, lower=0, upper=100, mechanism="podium").mechanism
        'podium'
    """
    began = time.perf_counter()
    budget = EPSILON.check(epsilon)
    low, high = check_bounds(lower, upper)
    SENSITIVITY.named("upper - lower").check(high - low)
    problem = LocalProblem(budget, low, high, LocalMetric.of(metric, low, high, prior))
    if mechanism not in names():
        raise invalid("mechanism", f"one of {', '.join(names())}", mechanism, f"Use {AUTO} for the best.")
    return remember(_plan(problem, mechanism, bool(limit)), began)


@lru_cache(maxsize=256)
def _plan(problem: LocalProblem, mechanism: str, limit: bool) -> Plan:
    """The plan for a checked question; asking again takes no time."""
    left_out = ON_REQUEST if mechanism == AUTO else (*ON_REQUEST, *SLOW)
    skipped = {name for name in left_out if name != mechanism}
    builders = {name: builder for name, builder in candidates().items() if name not in skipped}
    built: dict[str, Local] = {}
    for name, builder in builders.items():
        try:
            built[name] = builder(problem)
        except InvalidInput:
            if name == mechanism:
                raise
    values = {name: problem.metric.value(built[name]) if name in built else None for name in builders}
    chosen, best = preferred(values, problem.metric.higher_is_better)
    if mechanism != AUTO:
        chosen = mechanism
    winner, value = built[chosen], values[chosen]
    assert value is not None
    return Plan(
        model="local",
        mechanism=chosen,
        parameters=winner.parameters(),
        epsilon=problem.epsilon,
        verified_epsilon=winner.loss(),
        delta=0.0,
        sensitivity=problem.upper - problem.lower,
        coordinates=1,
        granularity=winner.lattice.granularity,
        integer_sensitivity=winner.lattice.steps(problem.upper - problem.lower),
        metric=problem.metric.spec(),
        metric_value=value,
        certificate=_certificate(problem, value, limit),
        alternatives=values,
        why=_why(problem.metric, chosen, best, mechanism, values),
    )


def limit(epsilon: Any, lower: Any, upper: Any, metric: Any = AVERAGE, prior: Any = None) -> float:
    """The least a variance metric can be for any unbiased mechanism of this budget; some seconds.

    Args:
        epsilon: The budget.
        lower, upper: The range.
        metric, prior: As for `plan_local`; not usefulness, whose best noise need not be unbiased.

    Returns:
        A lower limit, in squared units of the value, certified by the dual of a programme over 21 inputs.
    """
    budget = EPSILON.check(epsilon)
    low, high = check_bounds(lower, upper)
    return _limit(LocalProblem(budget, low, high, LocalMetric.of(metric, low, high, prior)))


def _limit(problem: LocalProblem) -> float:
    if problem.metric.higher_is_better:
        raise invalid("metric", "a variance", problem.metric.spec(), "No limit is known for usefulness.")
    low, high = LIMIT_RANGE
    if not low <= problem.epsilon <= high:
        raise invalid("epsilon", f"between {low} and {high} for a limit", problem.epsilon, "Leave the limit out.")
    goal = problem.metric.goal()
    return variance_limit(problem.epsilon, goal.points, goal.weights).lower * (problem.upper - problem.lower) ** 2


def _certificate(problem: LocalProblem, value: float, wanted: bool) -> dict[str, Any]:
    reason = "The limit is worked out on demand."
    if wanted:
        try:
            bound = _limit(problem)
        except InvalidInput as refused:
            reason = str(refused)
        else:
            reason = "No unbiased mechanism of this budget has less, by a linear programme over 21 inputs."
            return {"bound": bound, "relative_gap": value / bound - 1, "reason": reason}
    return {"bound": None, "relative_gap": None, "reason": reason}


def _why(metric: LocalMetric, chosen: str, best: str, asked: str, values: dict[str, float | None]) -> str:
    """One sentence on the choice."""
    rivals = [f"{value:.4g} for {name}" for name, value in values.items() if name != chosen and value is not None]
    figures = f"{metric.kind} {values[chosen]:.4g} against {', '.join(rivals)}"
    if asked != AUTO:
        return f"{chosen} was asked for: {figures}."
    if chosen != best:
        return f"{tie(chosen, best)}: {figures}."
    return f"{chosen} is the best for this metric: {figures}."
