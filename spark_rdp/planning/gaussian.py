"""Gaussian noise for (epsilon, delta): the analytic scale, and the best random scale.

Source: [BW] Balle and Wang 2018; R2DP, Appendix F.2.1; mathematics, section 1.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from spark_rdp.errors import InvalidInput, JobFailed, invalid
from spark_rdp.mechanisms.gaussian import ApproximatelyPrivate, DiscreteGaussian, GaussianMixture
from spark_rdp.planning.problem import Builder, Candidate, Problem

#: Above this budget Gaussian noise is nearly none on any lattice.
LARGEST_EPSILON = 100.0
#: No component of a random scale is smaller than this share of the plain Gaussian scale. Without a floor the best law
#: answers almost exactly with a probability near delta: a privacy failure dressed as utility.
FLOOR = 0.5
#: Scales tried, up to so many plain ones.
_SCALES, _WIDEST = 96, 20.0
#: A mixture must lower the expected loss by this share.
_GAIN = 1e-9
#: How far the two routes to delta may lie apart, relatively.
_DISAGREEMENT = 1e-6


def analytic_delta(sigma: np.ndarray, epsilon: float) -> np.ndarray:
    """The exact delta of continuous Gaussian noise for sensitivity 1 [BW, Theorem 8]."""
    half = 1 / (2 * sigma)
    return np.maximum(ndtr(half - epsilon * sigma) - np.exp(epsilon + log_ndtr(-half - epsilon * sigma)), 0.0)


def tail_sigma(epsilon: float, delta: float) -> float:
    """The scale for sensitivity 1 whose loss exceeds epsilon with probability delta: valid, but larger than needed.

    Source: R2DP, Theorem F.1 (kappa): the first term of `analytic_delta` alone.
    """
    quantile = -float(ndtri(delta))
    return (quantile + math.sqrt(quantile**2 + 2 * epsilon)) / (2 * epsilon)


def analytic_sigma(epsilon: float, delta: float) -> float:
    """The smallest scale of continuous (epsilon, delta)-private Gaussian noise for sensitivity 1 [BW, Algorithm 1]."""

    def excess(log_sigma: float) -> float:
        value = float(analytic_delta(np.array(math.exp(log_sigma)), epsilon))
        return math.log(max(value, 1e-300) / delta)

    high = math.log(tail_sigma(epsilon, delta))
    low = high - 1.0
    while excess(low) <= 0:
        low -= 1.0
    return math.exp(brentq(excess, low, high + 1e-9, xtol=1e-13))


def gaussian_candidates() -> dict[str, Builder]:
    """Builders for the planner's registry; both need a delta above 0."""
    return {DiscreteGaussian.name: _plain, GaussianMixture.name: _mixture}


@lru_cache(maxsize=256)
def _plain(problem: Problem) -> Candidate:
    return _candidate(problem, DiscreteGaussian(_plain_sigma(problem)), "one scale")


def _plain_sigma(problem: Problem) -> float:
    """The smallest scale in lattice units; a shift of d in each of k coordinates has Euclidean length sqrt(k) d."""
    if not problem.delta > 0:
        raise invalid("delta", "above 0 for Gaussian noise", problem.delta, "Give a delta, or use laplace.")
    if problem.epsilon > LARGEST_EPSILON:
        constraint = f"at most {LARGEST_EPSILON:g} for Gaussian noise"
        raise invalid("epsilon", constraint, problem.epsilon, "Use laplace or staircase above it.")
    start = analytic_sigma(problem.epsilon, problem.delta) * problem.steps * math.sqrt(problem.coordinates)
    return start * _calibrate(problem, lambda factor: DiscreteGaussian(start * factor))


def _calibrate(problem: Problem, make: Callable[[float], ApproximatelyPrivate]) -> float:
    """The smallest factor with which the noise, as it is sampled, keeps to delta."""

    def excess(log_factor: float) -> float:
        value = make(math.exp(log_factor)).delta(problem.epsilon, problem.steps, problem.coordinates)
        return math.log(max(value, 1e-300) / problem.delta)

    low, high = -1e-3, 1e-3
    while excess(high) > 0:
        low, high = high, high + 4 * (high - low)
    while excess(low) <= 0:
        low, high = low - 4 * (high - low), low
    root, step = float(brentq(excess, low, high, xtol=1e-13)), 1e-13
    while excess(root) > 0:
        root, step = root + step, 2 * step
    return math.exp(root)


@lru_cache(maxsize=256)
def _mixture(problem: Problem) -> Candidate:
    """The law of sigma with the smallest expected loss among those whose mean delta is within the budget.

    Objective and constraint are linear in the law, so at most two scales are needed; they are searched on a grid.
    """
    plain = _plain_sigma(problem)
    if problem.coordinates > 1:
        raise invalid(
            "coordinates", "1 for r2dp-gaussian", problem.coordinates, "Use gaussian for several coordinates."
        )
    sigmas = plain * np.geomspace(FLOOR, _WIDEST, _SCALES)
    losses = np.array([DiscreteGaussian(s).expectation(problem.metric, problem.unit) for s in (*sigmas, plain)])
    deltas = analytic_delta(sigmas / problem.steps, problem.epsilon)
    least = losses[-1]
    low, high = np.meshgrid(np.flatnonzero(sigmas < plain), np.flatnonzero(sigmas > plain), indexing="ij")
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = (problem.delta - deltas[high]) / (deltas[low] - deltas[high])
        values = np.where(weights * (1 - weights) > 0, weights * losses[low] + (1 - weights) * losses[high], np.inf)
    place = np.unravel_index(int(np.argmin(values)), values.shape)
    if values[place] < least - _GAIN * abs(least):
        pair = (float(sigmas[low[place]]), float(sigmas[high[place]]))
        weight = float(weights[place])

        def make(factor: float) -> GaussianMixture:
            return GaussianMixture((pair[0] * factor, pair[1] * factor), (weight, 1 - weight))

        found = make(_calibrate(problem, make))
        if found.expectation(problem.metric, problem.unit) < least - _GAIN * abs(least):
            floor = f"a mixture of two scales, none below {FLOOR:g} of the plain one, which would answer almost exactly"
            return _candidate(problem, found, floor)
    return _candidate(problem, GaussianMixture((plain,), (1.0,)), "no mixture of scales beats one scale here")


def _candidate(problem: Problem, mechanism: ApproximatelyPrivate, what: str) -> Candidate:
    epsilon = mechanism.epsilon(problem.delta, problem.steps, problem.coordinates)
    if not epsilon <= problem.epsilon:  # a root that rounding left on the wrong side
        epsilon = problem.epsilon
        if mechanism.delta(epsilon, problem.steps, problem.coordinates) > problem.delta:
            raise InvalidInput("delta cannot be met for this question to the last digit. Use a slightly larger one.")
    if isinstance(mechanism, DiscreteGaussian):
        _check(problem, mechanism)
    reason = f"With delta above 0 no optimum over all noises is known; {what}."
    certificate = {"bound": None, "relative_gap": None, "reason": reason}
    return Candidate(mechanism, epsilon, problem.value(mechanism), certificate)


def _check(problem: Problem, mechanism: DiscreteGaussian) -> None:
    """Delta by a second route: a difference of two tails [Canonne, Kamath, Steinke 2020, Theorem 7]."""
    k = problem.coordinates
    total, shift = DiscreteGaussian(math.sqrt(k) * mechanism.sigma), k * problem.steps
    start = math.ceil(problem.epsilon * total.sigma**2 / shift - shift / 2)
    near, far = (_upper_tail(total, place) for place in (start, start + shift))
    second = math.exp(near) - math.exp(problem.epsilon + far)
    rounding = 1e-9 * math.exp(near)
    if second > problem.delta * (1 + _DISAGREEMENT) + rounding:
        raise JobFailed(
            f"The noise {mechanism.name!r} has delta {second!r} where {problem.delta!r} was planned. "
            "This is a fault of the library: nothing was released; please report it."
        )


def _upper_tail(mechanism: DiscreteGaussian, place: int) -> float:
    """ln P(X >= place)."""
    if place > 0:
        return mechanism.log_tail(place) - math.log(2)
    return math.log1p(-math.exp(mechanism.log_tail(1 - place)) / 2)
