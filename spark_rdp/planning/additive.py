"""The best additive noise for a budget, a sensitivity profile and a metric (central model)."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache
from typing import Any

from spark_rdp.errors import InvalidInput, invalid
from spark_rdp.mechanisms.gaussian import DiscreteGaussian
from spark_rdp.mechanisms.geometric import Geometric
from spark_rdp.mechanisms.staircase import Staircase
from spark_rdp.metrics import RelativeEntropy
from spark_rdp.planning.gaussian import gaussian_candidates
from spark_rdp.planning.plan import Plan, remember
from spark_rdp.planning.problem import Builder, Candidate, Problem, fit, pose, preferred, tie
from spark_rdp.planning.r2dp import CERTIFIED, r2dp_candidates
from spark_rdp.planning.simulation import normalised_divergence

AUTO = "auto"
#: How a sensitivity bounds a vector.
PROFILE, L1_NORM = "profile", "l1"
#: Metric values below this are 0: doubles lose precision there.
SMALLEST_VALUE = 1e-290


@lru_cache(maxsize=256)
def _laplace(problem: Problem) -> Candidate:
    return fit(problem, lambda share: Geometric(share / problem.steps))


@lru_cache(maxsize=256)
def _staircase(problem: Problem) -> Candidate:
    return fit(problem, lambda share: Staircase(share, problem.steps, problem.best_step))


_R2DP = r2dp_candidates()
#: The mechanisms `auto` compares, the simplest first.
CANDIDATES: dict[str, Builder] = {"laplace": _laplace, "staircase": _staircase, CERTIFIED: _R2DP.pop(CERTIFIED)}
#: Those that are tried when they are asked for.
ON_REQUEST: dict[str, Builder] = {**_R2DP, **gaussian_candidates()}
#: Those whose noise is private with a delta above 0 only.
NEED_DELTA = tuple(gaussian_candidates())
#: Also compared when a delta is given.
WITH_DELTA = (DiscreteGaussian.name,)
#: Those whose loss is linear in the shift, so that a vector may be calibrated by its L1 norm.
LINEAR = (Geometric.name,)


def names() -> list[str]:
    """What ``mechanism`` may be: ``auto`` and the name of each mechanism."""
    return [AUTO, *CANDIDATES, *ON_REQUEST]


def plan(
    *,
    epsilon: Any,
    sensitivity: Any,
    metric: Any,
    mechanism: str = AUTO,
    coordinates: Any = 1,
    granularity: Any = None,
    delta: Any = 0.0,
    norm: str = PROFILE,
) -> Plan:
    """Find the additive noise that serves a metric best within a budget.

    Args:
        epsilon: The budget for all coordinates together, 1e-6 to 1e4.
        sensitivity: The most one privacy unit changes one published value, in the unit of the value.
        metric: A `Metric`, or as configuration writes it: ``"l1"``, ``"l2"``, ``{"usefulness": 5}``.
        mechanism: ``auto`` for the best of `CANDIDATES` for the metric, or one of `names`.
        coordinates: How many published values one privacy unit can change, each by ``sensitivity``.
        granularity: The lattice unit, a power of two; 1 for counts. Chosen from the sensitivity when absent.
        delta: 0, or the failure probability allowed; only some mechanisms use it.
        norm: ``profile``: at most ``coordinates`` values change, each by ``sensitivity``. ``l1``: however many values
            change, their changes add up to at most ``sensitivity`` in size; for Laplace noise only. The plan then
            counts as many coordinates as the norm has lattice units, each changing by one.

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
    problem = pose(epsilon, sensitivity, metric, coordinates, granularity, delta)
    if mechanism not in names():
        raise invalid("mechanism", f"one of {', '.join(names())}", mechanism, f"Use {AUTO} for the best.")
    if norm != PROFILE:
        _check_norm(norm, mechanism, problem)
    return remember(_plan(problem, mechanism, norm), began)


@lru_cache(maxsize=256)
def _plan(problem: Problem, mechanism: str, norm: str) -> Plan:
    """The plan for a checked question; asking again takes no time."""
    facts: dict[str, Any] = {}
    if norm != PROFILE:
        facts["l1_norm"] = problem.sensitivity
        # The most expensive change is one lattice unit in each of so many values: what samplers add counts each time.
        unit = problem.lattice.granularity
        problem = replace(problem, sensitivity=unit, coordinates=problem.steps, steps=1)
    builders = {name: builder for name, builder in CANDIDATES.items() if norm == PROFILE or name in LINEAR}
    extra = [*(WITH_DELTA if problem.delta > 0 and norm == PROFILE else ()), mechanism]
    builders |= {name: ON_REQUEST[name] for name in extra if name in ON_REQUEST}
    candidates: dict[str, Candidate] = {}
    for name, builder in builders.items():
        try:
            candidates[name] = builder(problem)
        except InvalidInput:
            if name == mechanism:
                raise
    alternatives = {name: candidates[name].value if name in candidates else None for name in builders}
    if not candidates:
        raise InvalidInput("No mechanism can serve this question. Use a larger epsilon or fewer coordinates.")
    chosen, best = preferred(alternatives, problem.metric.higher_is_better)
    if mechanism != AUTO:
        chosen = mechanism
    winner = candidates[chosen]
    if isinstance(problem.metric, RelativeEntropy):
        granularity = problem.lattice.granularity
        facts["normalised_divergence"] = normalised_divergence(problem.metric, winner.mechanism, granularity)
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
        why=_why(problem, chosen, best, mechanism, alternatives),
        facts=facts,
    )


def _check_norm(norm: Any, mechanism: str, problem: Problem) -> None:
    """Refuse the L1 norm where it would break privacy.

    Source: mathematics, section 1.2: the loss of R2DP noise is concave in the shift and that of a staircase does not
    shrink with it, so that a change spread over coordinates costs more than its sum in one.
    """
    if norm != L1_NORM:
        raise invalid("norm", f"{PROFILE} or {L1_NORM}", norm, "Say how the sensitivity bounds a vector.")
    if mechanism not in (AUTO, *LINEAR):
        raise invalid(
            "mechanism",
            f"{' or '.join(LINEAR)} for an L1 norm",
            mechanism,
            "Only for a loss linear in the shift does a change spread over coordinates cost no more than its sum in "
            "one; give coordinates and the most each of them changes.",
        )
    if problem.coordinates != 1:
        raise invalid("coordinates", "left out with an L1 norm", problem.coordinates, "The norm covers all of them.")


def _certificate(problem: Problem, winner: Candidate) -> dict[str, Any]:
    """How good the winner's kind of noise could be, where its builder knows, and else any additive noise."""
    overall = _best_of_all(problem, winner)
    if winner.certificate is None:
        return overall
    reason = winner.certificate["reason"]
    if overall["bound"] is not None:
        reason += f" Over all additive noises the best is {overall['bound']:.6g} (Geng and Viswanath)."
    return {**winner.certificate, "reason": reason}


def _best_of_all(problem: Problem, winner: Candidate) -> dict[str, Any]:
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
    noise = "additive noise" if problem.metric.symmetric else "symmetric additive noise"
    kind = "two-sided geometric noise" if problem.steps == 1 else "the staircase with the best step"
    return {
        "bound": bound,
        "relative_gap": gap,
        "reason": f"No {noise} on this lattice does better than {kind} (Geng and Viswanath).",
    }


def _why(problem: Problem, chosen: str, best: str, asked: str, alternatives: dict[str, float | None]) -> str:
    """One sentence on the choice."""
    value = alternatives[chosen]
    rivals = [f"{other:.4g} for {name}" for name, other in alternatives.items() if name != chosen and other is not None]
    against = f" against {', '.join(rivals)}" if rivals else ""
    figures = f"{problem.metric.key()} {value:.4g}{against}"
    if asked != AUTO:
        return f"{chosen} was asked for: {figures}."
    if chosen != best:
        return f"{tie(chosen, best)}: {figures}."
    if tuple(alternatives) == LINEAR:
        return f"{chosen} is the only noise that an L1 norm is enough for: {figures}."
    simplest = next(name for name in alternatives if alternatives[name] is not None)
    if chosen == simplest:
        return f"{chosen} is the simplest mechanism, and none is better here: {figures}."
    return f"{chosen} is the best for this metric: {figures}."
