"""A lower bound on epsilon from samples: what an attacker could prove."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import beta

from spark_rdp.domains import DELTA, Real
from spark_rdp.errors import InvalidInput

ALPHA = Real("alpha", 1e-12, 0.5, "Give the chance of a false alarm, for example 1e-6.")
_CUTS = 2000


def audit(sample_a: np.ndarray, sample_b: np.ndarray, *, delta: float = 0.0, alpha: float = 1e-6) -> float:
    """A lower confidence bound on epsilon.

    If the two samples come from a mechanism with (epsilon, delta)-differential privacy run on two neighbouring inputs,
    the result exceeds epsilon with probability at most ``alpha``. The most telling event (a tail, or a set of values
    where one input is likelier) is searched on the first half of each sample; its two probabilities are bounded on the
    second half by exact binomial (Clopper-Pearson) limits.

    Args:
        sample_a: Independent outputs for one input; one-dimensional, finite.
        sample_b: Independent outputs for a neighbouring input.
        delta: Taken off the larger probability.
        alpha: The chance of a false alarm.

    Returns:
        The bound, at least 0; 0 when nothing can be shown.
    """
    slack = DELTA.check(delta)
    error = ALPHA.check(alpha)
    samples = [np.asarray(sample, dtype=np.float64).ravel() for sample in (sample_a, sample_b)]
    if any(len(sample) < 4 or not np.all(np.isfinite(sample)) for sample in samples):
        raise InvalidInput("sample_a and sample_b must be finite numbers, at least four each. Draw more outputs.")
    quarters = [np.array_split(sample, 4) for sample in samples]
    rank = [parts[0] for parts in quarters]
    choose = [parts[1] for parts in quarters]
    test = [np.concatenate(parts[2:]) for parts in quarters]
    forward = _bound(rank, choose, test, slack, error / 2)
    backward = _bound(rank[::-1], choose[::-1], test[::-1], slack, error / 2)
    return max(0.0, forward, backward)


def _bound(
    rank: list[np.ndarray], choose: list[np.ndarray], test: list[np.ndarray], delta: float, alpha: float
) -> float:
    """The bound from the one event that looks best.

    Args:
        rank, choose, test: Parts of the samples of two inputs, the one under which the event is likelier first. The
            first part orders the values by likelihood, the second chooses where the event ends, the third is tested.
        delta, alpha: As for `audit`; each of the two limits may fail with probability ``alpha / 2``.
    """
    edges = _edges(np.concatenate(rank))
    first, second = (np.bincount(_cells(edges, part), minlength=len(edges) + 1) for part in rank)
    by_ratio = np.argsort(-(first + 1) / (second + 1), kind="stable")
    likely, rare = (np.bincount(_cells(edges, part), minlength=len(edges) + 1) for part in choose)
    sizes = len(choose[0]), len(choose[1])
    upwards = np.arange(len(likely))
    best, event = -math.inf, by_ratio[:1]
    for order in (by_ratio, upwards, upwards[::-1]):  # an event is the first cells of an order
        values = _log_ratio(np.cumsum(likely[order]), sizes[0], np.cumsum(rare[order]), sizes[1], delta, alpha)
        place = int(np.argmax(values))
        if values[place] > best:
            best, event = float(values[place]), order[: place + 1]
    chosen = np.zeros(len(likely), dtype=bool)
    chosen[event] = True
    hits = [np.array([chosen[_cells(edges, part)].sum()]) for part in test]
    return float(_log_ratio(hits[0], len(test[0]), hits[1], len(test[1]), delta, alpha)[0])


def _cells(edges: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.searchsorted(edges, values, side="right")


def _edges(values: np.ndarray) -> np.ndarray:
    """Cell borders: every distinct value while there are few, else quantiles with finer cells in the tails."""
    distinct = np.unique(values)
    if len(distinct) <= _CUTS:
        return distinct
    tail = np.geomspace(10 / len(values), 0.01, _CUTS // 4)
    levels = np.unique(np.concatenate([tail, np.linspace(0.01, 0.99, _CUTS // 2), 1 - tail]))
    return np.unique(np.quantile(values, levels, method="higher"))


def _log_ratio(hits_a: np.ndarray, n_a: int, hits_b: np.ndarray, n_b: int, delta: float, alpha: float) -> np.ndarray:
    """ln((lower limit of p_a - delta) / upper limit of p_b), both limits at level alpha / 2."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lower = np.where(hits_a > 0, beta.ppf(alpha / 2, hits_a, n_a - hits_a + 1), 0.0)
        upper = np.where(hits_b < n_b, beta.ppf(1 - alpha / 2, hits_b + 1, n_b - hits_b), 1.0)
        return np.log(np.maximum(lower - delta, 0.0)) - np.log(upper)
