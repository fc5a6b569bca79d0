"""The Bayes-optimal guess of the input for each output, under a prior: post-processing, which costs no privacy."""

from __future__ import annotations

import numpy as np

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.finite.base import Finite
from spark_rdp.mechanisms.finite.existence import checked_prior

#: Cells with a weight, times outputs, that are gone through.
_MOST_PAIRS = 1e9


def remap(mechanism: Finite, prior: np.ndarray) -> np.ndarray:
    """For each output the likeliest input.

    Args:
        mechanism: What noised the inputs.
        prior: Weights of the cells, for example from a file, or frequencies estimated from a collection.

    Returns:
        int64 of shape (n,): replace every collected cell z by entry z. Of two inputs as likely, the output itself
        wins, then the smaller number.
    """
    return _best(mechanism, prior)[0]


def remapped_utility(mechanism: Finite, prior: np.ndarray) -> float:
    """How often the remapped output is the input, under the prior."""
    return float(_best(mechanism, prior)[1].sum())


def _best(mechanism: Finite, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    size = mechanism.domain.size
    weights = checked_prior(prior, size)
    likely = np.flatnonzero(weights)
    if float(len(likely)) * size > _MOST_PAIRS:
        raise InvalidInput("prior must have fewer cells with a weight on so large a domain. Leave out unlikely cells.")
    guess = np.arange(size)
    record = weights * mechanism.diagonal()
    for cell in likely:
        joint = weights[cell] * mechanism.row(int(cell))
        better = joint > record * (1 + 1e-12)
        guess[better], record[better] = cell, joint[better]
    return guess, record
