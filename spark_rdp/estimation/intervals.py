"""Intervals around estimates."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

#: With fewer reports than this an interval rests on Chebyshev's inequality, which holds for any number of them.
FEW = 30


def critical(confidence: float) -> float:
    """Standard errors to each side of an estimate that is about normally distributed."""
    return float(norm.isf((1 - confidence) / 2))


def chebyshev(confidence: float) -> float:
    """Standard deviations to each side that hold an estimate of any distribution."""
    return 1 / math.sqrt(1 - confidence)


def around_share(share: np.ndarray, error: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    """The ends of intervals for shares of a whole: symmetric on the logistic scale, so that they stay within 0 and 1.

    Args:
        share: Estimates between 0 and 1.
        error: Their standard errors.
        confidence: Between 0 and 1.
    """
    inside = np.clip(share, 1e-12, 1 - 1e-12)
    half = critical(confidence) * error / (inside * (1 - inside))
    return expit(logit(inside) - half), expit(logit(inside) + half)
