"""Quantiles of an estimated distribution."""

from __future__ import annotations

import numpy as np

from spark_rdp.estimation.histogram import Distribution
from spark_rdp.estimation.moments import Estimate

_PLACES = 8


def quantiles(distribution: Distribution, levels: np.ndarray, confidence: float) -> Estimate:
    """Quantiles with intervals: all values whose share at or below is compatible with the level.

    Args:
        distribution: Of the values.
        levels: Between 0 and 1; 0.5 is the median.
        confidence: Of each interval.

    Source: Woodruff 1952.
    """
    cells = len(distribution.edges) - 1
    x = np.interp(np.arange(cells * _PLACES + 1) / _PLACES, np.arange(cells + 1), distribution.edges)
    share = distribution.below(x, confidence)
    # Where the share rises through the level; the upper end of the share gives the lower end of the quantile.
    value, low, high = (_rises_to(part, levels, x) for part in (share.value, share.high, share.low))
    return Estimate(value, np.minimum(low, value), np.maximum(high, value))


def _rises_to(shares: np.ndarray, levels: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The first x at which the share reaches each level; the last one where it never does."""
    return np.interp(levels, np.maximum.accumulate(shares), x)
