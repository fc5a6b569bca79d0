"""How many inputs each cell had, from counts of the outputs: unbiased, or the likeliest."""

from __future__ import annotations

import numpy as np

from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.domains import MOST_POINTS

#: Rounds of expectation maximisation on a domain of more than MOST_POINTS cells, and on a smaller one. There are more
#: cells than the noise can tell apart on a large one, where more rounds turn noise into peaks.
_ROUNDS, _MOST_ROUNDS = 100, 5000
#: It ends where a round gains less log-likelihood than this.
_GAIN = 1e-4


def unbiased_counts(mechanism: Finite, outputs: np.ndarray) -> np.ndarray:
    """Counts of the inputs, right on average; some may be negative, and all sum to the number of rows.

    Args:
        mechanism: What noised the inputs.
        outputs: How often each cell was published, shape (n,).
    """
    return mechanism.invert(np.asarray(outputs, dtype=np.float64))


def likeliest_counts(mechanism: Finite, outputs: np.ndarray, rounds: int | None = None) -> np.ndarray:
    """Counts of the inputs that make the outputs likeliest, by expectation maximisation from a flat start.

    On a large domain it is stopped early, which keeps the counts smooth: structure finer than the noise is left out.

    Args:
        mechanism: What noised the inputs.
        outputs: How often each cell was published, shape (n,).
        rounds: How many steps are made at most.
    """
    counts = np.asarray(outputs, dtype=np.float64)
    total = float(counts.sum())
    if total == 0:
        return np.zeros(len(counts))
    if rounds is None:
        rounds = _ROUNDS if len(counts) > MOST_POINTS else _MOST_ROUNDS
    seen = counts > 0
    found, before = np.full(len(counts), total / len(counts)), -np.inf
    least = 1e-12 * total / len(counts)  # below, rounding of the products would show
    for _ in range(rounds):
        expected = np.maximum(mechanism.forward(found), least)
        likelihood = float(counts[seen] @ np.log(expected[seen]))
        if likelihood - before < _GAIN:
            break
        before = likelihood
        found *= np.maximum(mechanism.backward(counts / expected), 0.0)
        found *= total / found.sum()
    return found


def count_errors(mechanism: Finite, outputs: np.ndarray, counts: np.ndarray, population: bool = False) -> np.ndarray:
    """Standard errors of `unbiased_counts`, cell by cell.

    With ``counts = M outputs`` the variance is ``sum_z M[y, z]^2 E outputs[z] - inputs[y]`` for the very rows that
    were collected; expectations are replaced by what was seen, which keeps it unbiased.

    Args:
        mechanism: What noised the inputs.
        outputs: How often each cell was published.
        counts: What `unbiased_counts` gave for them.
        population: For the counts expected of a large population the rows were drawn from, instead of those rows'.

    Returns:
        Shape (n,).
    """
    published = np.asarray(outputs, dtype=np.float64)
    own = counts * counts / max(float(published.sum()), 1.0) if population else np.clip(counts, 0.0, None)
    return np.sqrt(np.maximum(mechanism.inverse_spread(published) - own, 0.0))
