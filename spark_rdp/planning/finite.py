"""The best mechanism on a finite domain with a distance: the answer is right as often as can be."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spark_rdp.domains import EPSILON
from spark_rdp.errors import InvalidInput, JobFailed, invalid
from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.domains import Categories, Domain, Points
from spark_rdp.mechanisms.finite.existence import checked_prior, prior_bounds, threshold, utility_bound
from spark_rdp.mechanisms.finite.grids import Grid
from spark_rdp.mechanisms.finite.operators import Operator, operator_of
from spark_rdp.mechanisms.finite.planar_laplace import planar_laplace_utility
from spark_rdp.mechanisms.finite.remap import remapped_utility
from spark_rdp.mechanisms.finite.tight_constraints import tight
from spark_rdp.mechanisms.finite.unbounded import UnboundedRemap
from spark_rdp.planning.plan import FINITE, Plan
from spark_rdp.privacy.verify import verify_finite

AUTO, EXACT_MATCH = "auto", "exact-match"
#: The tight-constraints mechanism of the distance asked for: optimal where it exists.
TIGHT = "tight-constraints"
#: A mechanism listed later must be better by this share to be preferred.
_TIE = 1e-9
#: Every plan spends at least this share of its budget.
_SPENT = 0.999
#: Larger domains are not offered the mechanism that solves for its distance twenty times over.
_MOST_INTERPOLATED = 20_000
#: How closely the share of the other distance is looked for.
_SHARE_PRECISION = 1e-3


@dataclass(frozen=True)
class _Problem:
    epsilon: float
    domain: Domain


def _interpolated(problem: _Problem, epsilon: float) -> Finite:
    """The mechanism of the distance nearest to the one asked for, towards one for which it always exists."""
    domain = problem.domain
    if not isinstance(domain, (Grid, Points)) or domain.size > _MOST_INTERPOLATED:
        raise InvalidInput("mechanism interpolated is for grids and points of at most 20000 cells. Use auto.")
    low, high = 0.0, 1.0
    while high - low > _SHARE_PRECISION:
        middle = (low + high) / 2
        exists = operator_of(domain.blended(middle), epsilon).unit().nonnegative
        low, high = (low, middle) if exists else (middle, high)
    return tight(domain.blended(high), epsilon)


def _truncated_geometric(problem: _Problem, epsilon: float) -> Finite:
    if not isinstance(problem.domain, Grid):
        raise InvalidInput("mechanism truncated-geometric needs a grid or a scale. Use auto.")
    return tight(problem.domain.blended(1.0), epsilon)


def _randomized_response(problem: _Problem, epsilon: float) -> Finite:
    """All cells as far apart as the nearest two: a smaller distance, so the promise is kept."""
    domain = problem.domain
    if isinstance(domain, Grid):
        raise InvalidInput("mechanism randomized-response is for points and categories: it ignores a grid. Use auto.")
    unordered = domain if isinstance(domain, Categories) else Categories(domain.size)
    return tight(unordered, epsilon * domain.smallest)


def _unbounded(problem: _Problem, epsilon: float) -> Finite:
    if not isinstance(problem.domain, Grid) or problem.domain.axes > 2:
        raise InvalidInput("mechanism unbounded-remap needs a grid of one or two axes. Use auto.")
    return UnboundedRemap(problem.domain, epsilon)


#: The mechanisms `auto` compares, the simplest first. One that cannot serve a question raises InvalidInput.
CANDIDATES: dict[str, Callable[[_Problem, float], Finite]] = {
    TIGHT: lambda problem, epsilon: tight(problem.domain, epsilon),
    "randomized-response": _randomized_response,
    "truncated-geometric": _truncated_geometric,
    "unbounded-remap": _unbounded,
    "interpolated": _interpolated,
}


def plan_finite(epsilon: Any, domain: Domain, mechanism: str = AUTO, prior: Any = None) -> Plan:
    """Find the mechanism that gives the right cell most often, averaged over all cells.

    Args:
        epsilon: Per unit of distance: two cells at distance d are told apart by a factor of e^(epsilon d) at most.
        domain: The cells and their distances.
        mechanism: ``auto``, or a name from CANDIDATES.
        prior: How likely each cell is, as weights. Nothing is optimised for it; the plan then says what is known.

    Returns:
        A plan of model ``finite``. Its facts: ``exists``, whether there is a tight-constraints mechanism at this
        epsilon; ``threshold_epsilon``, where it starts to exist (None where not known); ``utility``, the metric value;
        ``min_diagonal``, the least entry of z, negative where there is no such mechanism (None where not known).

    Raises:
        InvalidInput: An argument is outside its domain, or the mechanism cannot serve this question.

    Example:
        >>> plan_finite(1.0, Grid((100, 100), (1.0, 1.0))).mechanism
        'tight-constraints'
    """
    began = time.perf_counter()
    budget = EPSILON.check(epsilon)
    if mechanism not in [AUTO, *CANDIDATES]:
        raise invalid("mechanism", f"one of {AUTO}, {', '.join(CANDIDATES)}", mechanism, f"Use {AUTO} for the best.")
    problem = _Problem(budget, domain)
    operator = operator_of(domain, budget)
    solution = operator.unit()
    built: dict[str, tuple[Finite, float]] = {}
    for name in CANDIDATES:
        if solution.nonnegative and name == "interpolated" != mechanism:  # the same mechanism
            continue
        try:
            built[name] = _fit(problem, name)
        except InvalidInput:
            if name == mechanism:
                raise
    values: dict[str, float | None] = {name: built[name][0].utility() if name in built else None for name in CANDIDATES}
    chosen = _best(values) if mechanism == AUTO else mechanism
    winner, loss = built[chosen]
    value = values[chosen]
    assert value is not None
    verified = verify_finite(winner, domain)
    if not verified <= loss * (1 + 1e-9):
        raise JobFailed(
            f"The mechanism {chosen!r} loses {verified!r} per unit of distance where its formula claims {loss!r}. "
            "This is a fault of the library: nothing was released; please report it."
        )
    if isinstance(domain, Grid) and (usual := planar_laplace_utility(domain, budget)) is not None:
        values = {TIGHT: values.pop(TIGHT), "planar-laplace": usual, **values}
    smallest = float(solution.values.min())
    facts: dict[str, Any] = {
        "exists": solution.nonnegative,
        "threshold_epsilon": threshold(domain),
        "utility": value,
        "min_diagonal": None if math.isnan(smallest) else smallest,
    }
    if prior is not None:
        facts["prior"] = _prior_facts(operator, winner, prior)
    certificate = _certificate(operator, solution.values, value)
    return Plan(
        model=FINITE,
        mechanism=chosen,
        parameters=winner.parameters(),
        epsilon=budget,
        verified_epsilon=loss,
        delta=0.0,
        sensitivity=domain.largest,
        coordinates=1,
        granularity=1.0,
        integer_sensitivity=domain.size - 1,
        metric=EXACT_MATCH,
        metric_value=value,
        certificate=certificate,
        alternatives=values,
        why=_why(chosen, mechanism, facts),
        facts=facts,
        seconds=time.perf_counter() - began,
    )


def _fit(problem: _Problem, name: str) -> tuple[Finite, float]:
    """The mechanism on the safe side of the budget, and the loss per unit of the distance asked for."""
    budget = problem.epsilon
    epsilon = budget * (1 - 2.0**-32)
    for _ in range(8):
        mechanism = CANDIDATES[name](problem, epsilon)
        loss = mechanism.loss()
        if isinstance(mechanism.domain, Categories):
            loss /= problem.domain.smallest
        if loss <= budget:
            if not loss >= _SPENT * budget and epsilon * problem.domain.smallest < 30:
                break
            return mechanism, loss
        epsilon -= 2 * (loss - budget)
        if not epsilon > 0:
            break
    raise InvalidInput(
        f"epsilon must be larger for distances as small as {problem.domain.smallest!r}; got {budget!r}. "
        "The random words cannot tell so small a difference."
    )


def _best(values: dict[str, float | None]) -> str:
    if values[TIGHT] is not None:
        return TIGHT
    best, record = "", -math.inf
    for name, value in values.items():
        if value is not None and value > record * (1 + _TIE):
            best, record = name, value
    if not best:
        raise InvalidInput("epsilon must be larger for this domain: no mechanism can be drawn from at this one.")
    return best


def _certificate(operator: Operator, z: np.ndarray, value: float) -> dict[str, Any]:
    size = operator.domain.size
    weights = np.ones(size) if np.isnan(z).any() else z / size
    bound = max(utility_bound(operator, np.full(size, 1 / size), weights), value)
    reason = "No mechanism of this budget gives the right cell more often, averaged over all cells"
    return {"bound": bound, "relative_gap": bound / value - 1, "reason": reason}


def _prior_facts(operator: Operator, mechanism: Finite, prior: Any) -> dict[str, Any]:
    """What is known of a prior: regularity, the bounds that hold, and what the mechanism reaches with a remap."""
    weights = checked_prior(prior, operator.domain.size)
    bounds = prior_bounds(operator, weights)
    return {
        "regular": bounds.regular,
        "utility": mechanism.utility(weights),
        "remapped_utility": remapped_utility(mechanism, weights),
        "utility_bound": utility_bound(operator, weights, bounds.weights),
        "information_bound": bounds.information,
    }


def _why(chosen: str, asked: str, facts: dict[str, Any]) -> str:
    """One sentence on the choice."""
    limit = facts["threshold_epsilon"]
    start = "at every epsilon" if limit == 0 else f"from epsilon {limit:.6f} on" if limit else "at a larger epsilon"
    if chosen == TIGHT:
        return f"The tight-constraints mechanism exists here ({start}); for equally likely cells no other is better."
    exists = f"the tight-constraints mechanism for this distance exists {start}"
    if asked != AUTO:
        return f"{chosen} was asked for; {exists}."
    return f"{chosen} is the best of those that exist here; {exists}."
