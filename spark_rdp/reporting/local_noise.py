"""What a report draws of the noise on one bounded value: shares of outputs, rivals by name, and a trial."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import numpy as np
from scipy.stats import beta

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.additive_local import AdditiveLocal
from spark_rdp.mechanisms.fitted import Fitted
from spark_rdp.mechanisms.local import Local
from spark_rdp.planning.limits import Limit, variance_limit
from spark_rdp.planning.local import LIMIT_RANGE, LocalProblem, candidates
from spark_rdp.planning.local_metrics import LocalMetric
from spark_rdp.planning.plan import Plan
from spark_rdp.randomness import KeyedBits

#: Mechanisms a picture compares, each the best of its kind.
COMPARED = ("podium", "fitted", "duchi", "hybrid", "piecewise", "staircase", "laplace", "r2dp")
#: Those of the Podium paper, which a trial shows beside the chosen one.
TRIED = ("podium", "staircase", "laplace")
TRIAL_ROWS = 10_000
#: Curves that differ by less than this everywhere are one curve.
SAME = 2e-3
#: A trial is an illustration: it noises made-up values, so that its key can be known to everybody.
_OPEN_KEY = hashlib.sha256(b"spark_rdp: a trial with made-up values").digest()


def problem_of(plan: Plan, mechanism: Local) -> LocalProblem:
    """The question a plan of one bounded value answered."""
    low, high = mechanism.lower, mechanism.upper
    return LocalProblem(plan.epsilon, low, high, LocalMetric.of(plan.metric, low, high, None))


def rivals_of(plan: Plan, mechanism: Local) -> dict[str, Local]:
    """The mechanisms of COMPARED that the plan rejected, made again from its question; those that can serve it."""
    problem, builders = problem_of(plan, mechanism), candidates()
    rivals: dict[str, Local] = {}
    for name in COMPARED:
        if name != plan.mechanism:
            try:
                rivals[name] = builders[name](problem)
            except InvalidInput:
                continue
    return rivals


def limit_of(plan: Plan, mechanism: Local) -> Limit | None:
    """The limit of the plan's metric, for a range of length 1; None where none is known."""
    problem = problem_of(plan, mechanism)
    if problem.metric.higher_is_better or not LIMIT_RANGE[0] <= plan.epsilon <= LIMIT_RANGE[1]:
        return None
    goal = problem.metric.goal()
    return variance_limit(plan.epsilon, goal.points, goal.weights)


def merged(curves: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Curves by name, the ones that coincide under one name."""
    kept: dict[str, np.ndarray] = {}
    for name, curve in curves.items():
        twin = next((other for other, known in kept.items() if np.all(np.abs(curve - known) <= SAME * known)), None)
        if twin is None:
            kept[name] = curve
        else:
            kept = {f"{other}, {name}" if other == twin else other: known for other, known in kept.items()}
    return kept


def output_range(mechanism: Local) -> tuple[float, float]:
    """Where nearly all outputs lie, whatever the input, in the unit of the value."""
    if isinstance(mechanism, AdditiveLocal):
        reach = mechanism.noise.quantile(0.98) * mechanism.lattice.granularity
        return mechanism.lower - reach, mechanism.upper + reach
    low, high = (math.ldexp(end, mechanism.exponent) for end in mechanism.support)
    return low, high


def output_shares(mechanism: Local, x: float, edges: np.ndarray) -> np.ndarray:
    """Share of the outputs between neighbouring edges, when the input is ``x``.

    Args:
        mechanism: What noises the input.
        x: In the unit of the value.
        edges: Increasing, in the unit of the value.
    """
    if isinstance(mechanism, Fitted):
        levels = np.unique(np.array(mechanism.levels))
        return _spread(mechanism.lattice.to_values(levels), mechanism.pmf(x, levels), edges)
    integers = np.floor(np.ldexp(edges, -mechanism.exponent)).astype(np.int64)
    return np.diff(mechanism.cumulative(np.array([x]), integers)[0])


def _spread(points: np.ndarray, mass: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Shares of dense points of mass, each spread as far as its nearer neighbour, so that bins do not count points."""
    gaps = np.diff(points)
    half = np.minimum(np.append(gaps, gaps[-1]), np.insert(gaps, 0, gaps[0]))[:, None] / 2
    reached = (edges[None, :] - (points[:, None] - half)) / (2 * half)
    return mass @ np.diff(np.clip(reached, 0.0, 1.0), axis=1)


def beta_inputs(lower: float, upper: float, count: int = TRIAL_ROWS) -> np.ndarray:
    """Made-up values of a range: the quantiles of Beta(2, 2) on it.

    Source: the experiment of Pihur 2019.
    """
    return lower + (upper - lower) * beta.ppf((np.arange(count) + 0.5) / count, 2, 2)


def trial(mechanism: Local, inputs: np.ndarray) -> np.ndarray:
    """Published values of made-up inputs; the same inputs give the same values.

    Args:
        mechanism: What noises them.
        inputs: float64 of shape (n,), in the unit of the value. Never real data: the key is known to everybody.
    """
    rows = np.zeros((len(inputs), 2), dtype=np.uint64)
    rows[:, 0] = np.arange(len(inputs))
    bits = KeyedBits(_OPEN_KEY, rows.view(np.uint8), mechanism.keys(inputs))
    return mechanism.lattice.to_values(mechanism.release(inputs, bits))
