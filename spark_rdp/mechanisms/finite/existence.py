"""Where the tight-constraints mechanism exists, for which priors it is optimal, and what no mechanism can do better.

Source: ElSalamouny, Chatzikokolakis, Palamidessi 2014; mathematics, section 5, errata E3 and E4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.finite.domains import Categories, Domain
from spark_rdp.mechanisms.finite.grids import Grid
from spark_rdp.mechanisms.finite.operators import Operator, operator_of

#: How exactly a threshold is known.
THRESHOLD_PRECISION = 1e-6
_LADDER = 2 / 3
#: The search for a threshold ends here, in units of 1/distance of the farthest cells: nothing is hidden any more.
_LEAST = 1e-2
#: Cells along an axis of the corner of a grid that is looked at first.
_CORNER = 32


def always_exists(domain: Domain) -> bool:
    """Whether the tight-constraints mechanism exists at every epsilon, by a closed form."""
    return isinstance(domain, Categories) or (isinstance(domain, Grid) and domain.is_product)


@lru_cache(maxsize=64)
def threshold(domain: Domain) -> float | None:
    """The epsilon from which on the mechanism exists, to THRESHOLD_PRECISION; 0 if it always does, None if unknown.

    It exists for large epsilon. The largest epsilon where it stops existing is looked for downwards in steps of a
    third, then between two of them. What stops it on a large grid happens near a corner: the threshold of a corner
    that no longer changes when the corner is doubled is that of the grid.
    """
    if always_exists(domain):
        return 0.0
    if isinstance(domain, Grid) and max(domain.shape) > 2 * _CORNER:
        near, wide = (threshold(domain.corner(size)) for size in (_CORNER, 2 * _CORNER))
        if near is not None and wide is not None and abs(near - wide) < THRESHOLD_PRECISION / 4:
            return wide
    low = high = (math.log(2 * domain.size) + 1) / domain.smallest  # here Phi is diagonally dominant
    while True:
        low *= _LADDER
        value = _smallest(domain, low)
        if math.isnan(value):
            return None
        if value < 0:
            return _between(domain, low, high)
        if low * domain.largest < _LEAST:
            return 0.0
        high = low


def _smallest(domain: Domain, epsilon: float) -> float:
    return float(operator_of(domain, epsilon).unit().values.min())


def _between(domain: Domain, low: float, high: float) -> float:
    tolerance = THRESHOLD_PRECISION / 4 * min(1.0, high)
    return float(brentq(lambda epsilon: _smallest(domain, epsilon), low, high, xtol=tolerance, rtol=1e-12))


@dataclass(frozen=True)
class PriorBounds:
    """What is known of a prior.

    Attributes:
        regular: Whether ``prior = weights Phi`` with no negative weight: the mechanism is then optimal for this prior.
        weights: These weights (lambda).
        utility: Theorem 2: no d-private mechanism guesses right more often; None where the prior is not regular.
        information: Proposition 5: at most so many bits of min-mutual information; None where it is not regular.
        formula_information: The same formula where it is not valid, for comparison with the paper (erratum E4).
    """

    regular: bool
    weights: np.ndarray
    utility: float | None
    information: float | None
    formula_information: float


def prior_bounds(operator: Operator, prior: np.ndarray) -> PriorBounds:
    """Regularity of a prior and the bounds that follow from it.

    Args:
        operator: Phi of the domain.
        prior: Probabilities of the cells, shape (n,).
    """
    solution = operator.solve(checked_prior(prior, operator.domain.size))
    regular, total = solution.nonnegative, float(solution.values.sum())
    bits = math.log2(total / float(np.max(prior))) if total > 0 else math.nan
    return PriorBounds(regular, solution.values, total if regular else None, bits if regular else None, bits)


def checked_prior(prior: np.ndarray, size: int) -> np.ndarray:
    """A prior as probabilities.

    Raises:
        InvalidInput: It has another length than the domain, an entry that is no weight, or no weight at all.
    """
    weights = np.asarray(prior, dtype=np.float64)
    if weights.shape != (size,) or not np.all((weights >= 0) & (weights < np.inf)) or not weights.sum() > 0:
        raise InvalidInput(f"prior must hold {size} weights, none negative and not all 0: one for each cell.")
    return weights / weights.sum()


def corner_priors(operator: Operator, cells: np.ndarray) -> np.ndarray:
    """Corners of the region of regular priors: rows of Phi, each over its sum. Every regular prior is a mixture.

    Args:
        operator: Phi of the domain.
        cells: Which corners, shape (k,).

    Returns:
        Shape (k, n).
    """
    domain = operator.domain
    rows = np.exp(-operator.epsilon * domain.between(np.asarray(cells)[:, None], np.arange(domain.size)[None, :]))
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def utility_bound(operator: Operator, prior: np.ndarray, weights: np.ndarray) -> float:
    """An upper limit of the probability of a right answer under a prior, for all d-private mechanisms.

    For the diagonal h of any of them, ``Phi h <= 1``. So for any ``w >= 0`` with ``w Phi >= prior``,
    ``prior h <= w Phi h <= sum(w)``. Here w is ``weights`` without its negative entries, scaled to touch the prior.
    Where ``weights`` solves ``w Phi = prior`` and has no negative entry this is Theorem 2, and it is reached.

    Args:
        operator: Phi of the domain.
        prior: Probabilities of the cells.
        weights: The solution of ``weights Phi = prior``, or any stand-in for it.
    """
    w = np.maximum(weights, 0.0)
    reached = operator.product(w) - operator.rounding(w)
    likely = prior > 0
    share = float((reached[likely] / prior[likely]).min())
    return min(float(w.sum()) / share, 1.0) if share > 0 else 1.0


def any_prior_information(values: int, users: int, epsilon: float) -> float:
    """Theorem 3: bits of min-mutual information of any epsilon-differentially private mechanism, whatever the prior.

    Args:
        values: How many values one user can have.
        users: How many users the database has.
        epsilon: The budget.
    """
    return users * (math.log2(values) - math.log2(1 + (values - 1) * math.exp(-epsilon)))
