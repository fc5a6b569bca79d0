"""The best additive noise for a budget, a sensitivity profile and a metric (central model)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spark_rdp.domains import COORDINATES, DELTA, EPSILON, SENSITIVITY
from spark_rdp.errors import InvalidInput, JobFailed, invalid
from spark_rdp.lattice import Lattice
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase, best_step
from spark_rdp.metrics import Metric
from spark_rdp.planning.plan import Plan
from spark_rdp.privacy.verify import verify

AUTO = "auto"
#: The largest sensitivity in lattice units.
LARGEST_STEPS = 2**40
#: The largest scale of the noise in lattice units; a draw beyond 2**62 then has probability e^-128.
LARGEST_SCALE = 2.0**55
#: The smallest budget of one coordinate: below it, what the sampler may add is no longer small beside it.
SMALLEST_SHARE = 1e-10
#: Every plan spends at least this share of its budget.
SPENT = 0.999
#: How far the two routes to the loss may lie apart, relatively.
DISAGREEMENT = 1e-9
#: Metric values below this are 0: doubles lose precision there.
SMALLEST_VALUE = 1e-290
#: Two metric values this close, relatively, are a tie; the simpler mechanism wins it.
TIE = 1e-9


@dataclass(frozen=True)
class Problem:
    """A checked question: at most ``coordinates`` published values change, each by at most ``steps`` lattice units."""

    epsilon: float
    delta: float
    sensitivity: float
    coordinates: int
    lattice: Lattice
    steps: int
    metric: Metric

    @property
    def share(self) -> float:
        """The budget of one coordinate: noise is independent, so losses of coordinates add up (mathematics: 1.2)."""
        return self.epsilon / self.coordinates

    def loss(self, mechanism: Additive) -> float:
        """The verified loss over the whole profile: the larger of the mechanism's own formula and the second route.

        Raises:
            JobFailed: The mass function loses more than the mechanism's formula claims, beyond rounding.
        """
        claimed = mechanism.loss(self.steps)
        if self.coordinates * claimed > self.epsilon:  # too much already: no need to look further
            return self.coordinates * claimed
        verified = verify(mechanism, self.steps)
        if not verified <= claimed * (1 + DISAGREEMENT) + 2.0**-44:
            raise JobFailed(
                f"The noise {mechanism.name!r} loses {verified!r} where its formula claims {claimed!r}. "
                "This is a fault of the library: nothing was released; please report it."
            )
        return self.coordinates * max(claimed, verified)

    def value(self, mechanism: Additive) -> float:
        """What the metric reports for a mechanism."""
        if self.metric.scales:  # measured in lattice units first: high powers of the unit itself could overflow
            return self.lattice.granularity * self.metric.report(mechanism.expectation(self.metric, 1.0))
        return self.metric.report(mechanism.expectation(self.metric, self.lattice.granularity))

    def better(self, value: float, other: float) -> bool:
        """Whether a metric value is better than another by more than a tie."""
        margin = TIE * max(abs(value), abs(other))
        return value > other + margin if self.metric.higher_is_better else value < other - margin

    @cached_property
    def best_step(self) -> int:
        """The staircase step for the metric."""
        unit = 1.0 if self.metric.scales else self.lattice.granularity
        return best_step(self.share, self.steps, self.metric, unit)


@dataclass(frozen=True)
class Candidate:
    """A mechanism that meets the budget, and what the metric says of it."""

    mechanism: Additive
    verified_epsilon: float
    value: float


def fit(problem: Problem, make: Callable[[float], Additive]) -> Candidate:
    """Build a mechanism on the safe side of the budget.

    Args:
        problem: The question.
        make: Builds the mechanism whose loss for ``problem.steps`` is meant to be its argument; it must lose less when
            its argument is smaller.

    Raises:
        InvalidInput: The budget is too small for the sampler's precision.
    """
    share = problem.share
    for _ in range(20):
        mechanism = make(share)
        loss = problem.loss(mechanism)
        if SPENT * problem.epsilon < loss <= problem.epsilon:
            return Candidate(mechanism, loss, problem.value(mechanism))
        share -= 1.25 * (loss - problem.epsilon) / problem.coordinates + 2.0**-53 * share
        if loss <= problem.epsilon or not share > 0:
            break
    raise InvalidInput(
        f"epsilon must be larger for {problem.coordinates} coordinates; got {problem.epsilon!r}. "
        "Fewer coordinates, or a larger epsilon, leave each of them enough."
    )


def _laplace(problem: Problem) -> Candidate:
    return fit(problem, lambda share: Geometric(share / problem.steps))


def _staircase(problem: Problem) -> Candidate:
    return fit(problem, lambda share: Staircase(share, problem.steps, problem.best_step))


#: The mechanisms `auto` compares, the simplest first. A builder that cannot serve a problem raises InvalidInput.
CANDIDATES: dict[str, Callable[[Problem], Candidate]] = {"laplace": _laplace, "staircase": _staircase}


def plan(
    *,
    epsilon: Any,
    sensitivity: Any,
    metric: Any,
    mechanism: str = AUTO,
    coordinates: Any = 1,
    granularity: Any = None,
    delta: Any = 0.0,
) -> Plan:
    """Find the additive noise that serves a metric best within a budget.

    Args:
        epsilon: The budget for all coordinates together, 1e-6 to 1e4.
        sensitivity: The most one privacy unit changes one published value, in the unit of the value.
        metric: A `Metric`, or as configuration writes it: ``"l1"``, ``"l2"``, ``{"usefulness": 5}``.
        mechanism: ``auto`` for the best for the metric, or a name from `CANDIDATES`.
        coordinates: How many published values one privacy unit can change, each by ``sensitivity``.
        granularity: The lattice unit, a power of two; 1 for counts. Chosen from the sensitivity when absent.
        delta: 0, or the failure probability allowed; only some mechanisms use it.

    Returns:
        A plan with SPENT * epsilon < verified_epsilon <= epsilon.

    Raises:
        InvalidInput: An argument is outside its domain, or the mechanism cannot serve this question.
        JobFailed: The verified loss contradicts the formula of a mechanism.

    Example:
        >>> plan(epsilon=1, sensitivity=1, metric={"usefulness": 0.1}).mechanism
        'staircase'
    """
    began = time.perf_counter()
    problem = _problem(epsilon, sensitivity, metric, coordinates, granularity, delta)
    if mechanism not in [AUTO, *CANDIDATES]:
        raise invalid("mechanism", f"one of {AUTO}, {', '.join(CANDIDATES)}", mechanism, f"Use {AUTO} for the best.")
    candidates: dict[str, Candidate] = {}
    for name, builder in CANDIDATES.items():
        try:
            candidates[name] = builder(problem)
        except InvalidInput:
            if name == mechanism:
                raise
    alternatives = {name: candidates[name].value if name in candidates else None for name in CANDIDATES}
    chosen = _choose(problem, candidates) if mechanism == AUTO else mechanism
    winner = candidates[chosen]
    return Plan(
        model="central",
        mechanism=chosen,
        parameters=winner.mechanism.parameters(),
        epsilon=problem.epsilon,
        verified_epsilon=winner.verified_epsilon,
        delta=problem.delta,
        sensitivity=problem.sensitivity,
        coordinates=problem.coordinates,
        granularity=problem.lattice.granularity,
        integer_sensitivity=problem.steps,
        metric=problem.metric.spec(),
        metric_value=winner.value,
        certificate=_certificate(problem, winner),
        alternatives=alternatives,
        why=_why(problem, chosen, mechanism, alternatives),
        seconds=time.perf_counter() - began,
    )


def _problem(epsilon: Any, sensitivity: Any, metric: Any, coordinates: Any, granularity: Any, delta: Any) -> Problem:
    """Check every argument and choose the lattice."""
    budget = EPSILON.check(epsilon)
    change = SENSITIVITY.check(sensitivity)
    goal = Metric.from_spec(metric)
    count = COORDINATES.check(coordinates)
    failure = DELTA.check(delta)
    share = budget / count
    if not share >= SMALLEST_SHARE * (1 - 1e-9):
        least = f"at least {SMALLEST_SHARE * count:g} for {count} coordinates"
        raise invalid("epsilon", least, epsilon, "Let one unit change fewer values.")
    lattice = Lattice.for_sensitivity(change) if granularity is None else Lattice.of_granularity(granularity)
    most = min(LARGEST_STEPS, int(LARGEST_SCALE * share))
    steps = lattice.steps(change)
    if steps > most:
        coarser = f"Use a granularity of at least {change / most:.3g}."
        raise invalid("granularity", f"no finer than sensitivity / {most} here", granularity, coarser)
    return Problem(budget, failure, change, count, lattice, steps, goal)


def _choose(problem: Problem, candidates: dict[str, Candidate]) -> str:
    """The best candidate; of two that tie, the one listed first."""
    if not candidates:
        raise InvalidInput("No mechanism can serve this question. Use a larger epsilon or fewer coordinates.")
    names = iter(candidates)
    best = next(names)
    for name in names:
        if problem.better(candidates[name].value, candidates[best].value):
            best = name
    return best


def _certificate(problem: Problem, winner: Candidate) -> dict[str, Any]:
    """How good any additive noise could be.

    Source: Geng and Viswanath 2016, whose theorem covers the integers too: for one coordinate, pure privacy and a
    symmetric loss that does not fall with the error, the staircase with the best step is optimal among all noises.
    """
    reason = None
    if problem.coordinates > 1:
        reason = "For noise in several coordinates no optimum is known."
    elif problem.delta > 0:
        reason = "With delta above 0 no optimum is known."
    elif not problem.metric.increasing:
        reason = "No optimum is known for a loss that is not known to be symmetric and to grow with the error."
    if reason is not None:
        return {"bound": None, "relative_gap": None, "reason": reason}
    bound = problem.value(Staircase(problem.share, problem.steps, problem.best_step))
    gap = None  # a bound too small for a double has no relative gap
    if abs(bound) > SMALLEST_VALUE:
        gap = abs(winner.value - bound) / abs(bound)
    elif abs(winner.value) <= SMALLEST_VALUE:
        gap = 0.0
    kind = "two-sided geometric noise" if problem.steps == 1 else "the staircase with the best step"
    return {
        "bound": bound,
        "relative_gap": gap,
        "reason": f"No additive noise on this lattice does better than {kind} (Geng and Viswanath).",
    }


def _why(problem: Problem, chosen: str, asked: str, alternatives: dict[str, float | None]) -> str:
    """One sentence on the choice."""
    value = alternatives[chosen]
    rivals = [f"{other:.4g} for {name}" for name, other in alternatives.items() if name != chosen and other is not None]
    against = f" against {', '.join(rivals)}" if rivals else ""
    figures = f"{problem.metric.key()} {value:.4g}{against}"
    if asked != AUTO:
        return f"{chosen} was asked for: {figures}."
    simplest = next(name for name in alternatives if alternatives[name] is not None)
    if chosen == simplest:
        return f"{chosen} is the simplest mechanism, and none is better here: {figures}."
    return f"{chosen} is the best for this metric: {figures}."
