"""Composition over many releases: privacy loss distributions of our own mass functions, added up by `dp-accounting`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from spark_rdp.domains import DELTA
from spark_rdp.errors import invalid
from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.staircase import Staircase
from spark_rdp.series import gauss_rule

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from spark_rdp.planning.plan import Plan

#: Noise further out than this (its probability, as a logarithm) is given the largest loss there is.
_BEYOND = -36.0
#: Steps of the loss distribution within the loss of one coordinate, and within that of everything together.
_FINE, _WHOLE = 200, 2**20
#: ln p varies by less than this within a block whose mass is summed by one Gauss rule.
_VARIATION = 4.0


def loss_distribution(mechanism: Additive, shift: int, interval: float) -> PrivacyLossDistribution:
    """The privacy loss distribution of one coordinate, for composition with `dp_accounting`.

    Every loss is rounded up to a multiple of ``interval``, so that what is worked out from the distribution is never
    below the truth.

    Args:
        mechanism: The noise.
        shift: The most one coordinate changes, in lattice units.
        interval: The step between losses, positive.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    losses, masses = _losses(mechanism, shift, interval)
    slack, largest = mechanism.sampling_slack, mechanism.loss(shift)
    steps = np.ceil(np.minimum(losses + slack, largest) / interval).astype(np.int64)
    lowest = int(steps.min())
    table = np.bincount(steps - lowest, masses * math.exp(slack))
    missing = max(0.0, 1 - float(masses.sum()))
    infinity = missing if math.isinf(largest) else 0.0
    if math.isfinite(largest):
        places = max(len(table), math.ceil(largest / interval) - lowest + 1)
        table = np.append(table, np.zeros(places - len(table)))
        table[-1] += missing
    table *= (1 - infinity) / table.sum()
    probabilities: dict[int, float] = {lowest + int(i): float(table[i]) for i in np.flatnonzero(table)}
    pmf = pld_pmf.create_pmf(probabilities, interval, infinity, True)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def composed_epsilon(plans: Sequence[Plan], delta: Any) -> float:
    """The epsilon that all the noise of several plans together spends at ``delta``; their plain sum if that is less.

    Args:
        plans: Additive plans of the central model, independent releases about the same units.
        delta: 0 for the plain sum, or the chance of failure of the whole, that of the single plans included.

    Raises:
        InvalidInput: delta is smaller than the plans need.
    """
    chance = DELTA.check(delta)
    parts = [(plan.build(), plan) for plan in plans]
    pure = [plan for mechanism, plan in parts if math.isfinite(mechanism.loss(plan.integer_sensitivity))]
    total = math.fsum(plan.verified_epsilon for plan in plans)
    if chance == 0 or not plans:
        if len(pure) < len(plans):
            raise invalid("delta", "above 0 when Gaussian noise is among the plans", delta, "Give a delta.")
        return total
    share = min(plan.verified_epsilon / plan.coordinates for plan in plans)
    interval = max(share / _FINE, total / _WHOLE)
    whole = None
    for mechanism, plan in parts:
        one = loss_distribution(mechanism, plan.integer_sensitivity, interval).self_compose(plan.coordinates)
        whole = one if whole is None else whole.compose(one)
    assert whole is not None
    epsilon = float(whole.get_epsilon_for_delta(chance))
    if math.isinf(epsilon):
        raise invalid("delta", "larger for these plans", delta, "Add up the deltas of the plans at least.")
    return min(epsilon, total) if len(pure) == len(plans) else epsilon


def _losses(mechanism: Additive, shift: int, interval: float) -> tuple[np.ndarray, np.ndarray]:
    """Upper bounds on the loss ln p(k)/p(k + shift) within blocks of integers, and the masses of the blocks."""
    reach = 1
    while mechanism.log_tail(reach) > _BEYOND and reach < 2**60:
        reach *= 2
    middle = [(-shift + 1 + start, length) for start, length in _powers(shift - 1)]
    stack = np.array([(0, reach), (-shift - reach + 1, reach), *middle], dtype=np.int64)
    losses, masses = [], []
    while len(stack):
        starts, lengths = stack[:, 0], stack[:, 1]
        ends = starts + lengths - 1
        highest, lowest, variation = _bounds(mechanism, starts, ends, shift)
        done = ((highest - lowest <= interval / 2) & (variation <= _VARIATION)) | (lengths == 1)
        losses.append(highest[done])
        masses.append(_masses(mechanism, starts[done], lengths[done]))
        left, half = starts[~done], lengths[~done] // 2
        stack = np.concatenate([np.stack([left, half], axis=1), np.stack([left + half, half], axis=1)])
    return np.concatenate(losses), np.concatenate(masses)


def _bounds(
    mechanism: Additive, starts: np.ndarray, ends: np.ndarray, shift: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The largest and smallest loss within blocks that lie on one side of 0 and of -shift, and how much ln p varies."""
    here = np.stack([mechanism.log_mass(starts), mechanism.log_mass(ends)])
    there = np.stack([mechanism.log_mass(starts + shift), mechanism.log_mass(ends + shift)])
    variation = np.maximum(np.ptp(here, axis=0), np.ptp(there, axis=0))
    if isinstance(mechanism, Staircase):  # jumps: all that is known is that ln p falls away from 0
        return here.max(axis=0) - there.min(axis=0), here.min(axis=0) - there.max(axis=0), variation
    # ln p is convex (R2DP) or concave (Gaussian) on either side of 0, so the loss is monotone within a block
    losses = here - there
    return losses.max(axis=0), losses.min(axis=0), variation


def _masses(mechanism: Additive, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    result = np.empty(len(starts))
    for length in np.unique(lengths).tolist():
        chosen = lengths == length
        nodes, weights = gauss_rule(length)
        result[chosen] = np.exp(mechanism.log_mass(starts[chosen, None] + nodes)) @ weights
    return result


def _powers(length: int) -> list[tuple[int, int]]:
    """A range of integers cut into blocks whose lengths are powers of two: starts and lengths."""
    blocks, start = [], 0
    for power in range(length.bit_length() - 1, -1, -1):
        if length >> power & 1:
            blocks.append((start, 1 << power))
            start += 1 << power
    return blocks
