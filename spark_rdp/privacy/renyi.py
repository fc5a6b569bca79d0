"""Renyi differential privacy: closed forms, the bound for R2DP noise, and exact divergences of mass functions.

Source: Mironov 2017; R2DP, Theorem F.4 and Table 3; mathematics, section 1.4.
"""

from __future__ import annotations

import math

import numpy as np

from spark_rdp.domains import ORDER
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.fold_base import SecondFold
from spark_rdp.series import block_sums, tail_sum


def randomised_response(probability: float, order: float) -> float:
    """The divergence of a coin that tells the truth with ``probability``, above 1/2 and below 1."""
    a = ORDER.check(order)
    odds = math.log(probability) - math.log1p(-probability)
    if a == 1:
        return (2 * probability - 1) * odds
    p, q = math.log(probability), math.log1p(-probability)
    return float(np.logaddexp(a * p + (1 - a) * q, a * q + (1 - a) * p)) / (a - 1)


def laplace(epsilon: float, order: float) -> float:
    """The divergence of continuous Laplace noise whose loss is ``epsilon``."""
    a = ORDER.check(order)
    if a == 1:
        return epsilon + math.expm1(-epsilon)
    terms = math.log(a) + (a - 1) * epsilon, math.log(a - 1) - a * epsilon
    return (float(np.logaddexp(*terms)) - math.log(2 * a - 1)) / (a - 1)


def gaussian(sigma: float, order: float) -> float:
    """The divergence of Gaussian noise of ``sigma`` times the sensitivity; discrete noise has no more."""
    return ORDER.check(order) / (2 * sigma**2)


def r2dp_bound(law: SecondFold, order: float, shift: float) -> float:
    """An upper bound on the divergence of R2DP Laplace noise; infinite where M(shift (order - 1)) is.

    It follows from the joint convexity of the divergence, is not sharp, and may exceed even the pure loss: `divergence`
    is what the noise really has.

    Args:
        law: Of the inverse scale u.
        order: 1 to 64.
        shift: Sensitivity, in the unit of 1/u.

    Source: R2DP, Theorem F.4.
    """
    a = ORDER.check(order)
    if a == 1:
        return law.mean * shift + float(np.expm1(law.log_mgf(-shift)))
    if (a - 1) * shift >= law.reach:
        return math.inf
    near, far = float(law.log_mgf((a - 1) * shift)), float(law.log_mgf(-a * shift))
    return (float(np.logaddexp(math.log(a) + near, math.log(a - 1) + far)) - math.log(2 * a - 1)) / (a - 1)


def divergence(mechanism: Additive, order: float, shift: int) -> float:
    """The divergence of the noise from the noise shifted, from its mass function; never above its pure loss.

    Args:
        mechanism: The noise.
        order: 1 to 64.
        shift: In lattice units, at least 1.
    """
    a = ORDER.check(order)
    limit = mechanism.loss(shift)

    def exponent(k: np.ndarray) -> np.ndarray:
        return a * mechanism.log_mass(k) + (1 - a) * mechanism.log_mass(k + shift)

    # about the largest exponent, taken out so as not to overflow; Gaussian noise has it at (a - 1) shift
    scale = float(exponent(shift * np.arange(-3.0, math.ceil(a) + 3)).max())

    def term(k: np.ndarray) -> np.ndarray:
        if a > 1:
            return np.exp(exponent(k) - scale)
        here = mechanism.log_mass(k)
        loss = here - mechanism.log_mass(k + shift)
        return np.exp(here) * (loss + np.expm1(-loss))  # p ln(p/q) - p + q: not negative, and it adds up to the same

    settled = a * shift + mechanism.quantile(0.999)
    total = tail_sum(term, 0, settled) + tail_sum(lambda j: term(-shift - j), 0, settled)
    total += float(block_sums(lambda k: term(k - shift), np.ones(1), shift - 1)[0])
    value = total if a == 1 else (math.log(total) + scale) / (a - 1)
    slack = mechanism.sampling_slack * (2 * a - 1) / max(a - 1, 0.5)
    return min(max(value, 0.0) + slack, limit)
