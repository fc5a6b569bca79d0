"""The privacy loss distribution of a noise: how much one drawn value gives away, and how often."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from spark_rdp.mechanisms.base import Additive
from spark_rdp.mechanisms.staircase import Staircase
from spark_rdp.series import gauss_rule

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

#: Noise further out than this (its probability, as a logarithm) is given the largest loss there is.
_BEYOND = -36.0
#: Losses of more steps than this count as infinite.
_WIDEST = 2**15
#: The losses within one block of integers differ by less than a step, or by this share of the largest loss.
_ALIKE = 1 / 1024
#: ln p varies by less than this within a block whose mass is summed by one Gauss rule.
_VARIATION = 4.0


def of_noise(mechanism: Additive, shift: int, interval: float) -> PrivacyLossDistribution:
    """The privacy loss distribution of one number, for composition with `dp_accounting`.

    It covers every smaller change as well. For noise that is symmetric and does not rise away from 0, the hockey-stick
    divergence of x + X and x + s + X does not fall with s: where p(k) > a p(k + s), for a >= 1, k + s is positive, so
    a larger s makes p(k + s) smaller.

    Args:
        mechanism: The noise.
        shift: The most the number changes, in lattice units.
        interval: The step between losses, positive.
    """
    largest = mechanism.loss(shift)
    alike = max(interval, largest * _ALIKE) if math.isfinite(largest) else interval
    losses, masses = _losses(mechanism, shift, alike)
    losses = np.minimum(losses + mechanism.sampling_slack, largest)
    missing = max(0.0, 1 - float(masses.sum()))
    if math.isfinite(largest):
        losses, masses, missing = np.append(losses, largest), np.append(masses, missing), 0.0
    return on_grid(losses, masses, missing, interval)


def of_parameters(epsilon: float, delta: float, interval: float) -> PrivacyLossDistribution:
    """The worst distribution of anything that is (epsilon, delta) differentially private: randomised response.

    Source: Kairouz, Oh, Viswanath, "The composition theorem for differential privacy", 2015.
    """
    keep = (1 - delta) / (1 + math.exp(-epsilon))
    losses, masses = np.array([epsilon, -epsilon]), np.array([keep, keep * math.exp(-epsilon)])
    return on_grid(losses, masses, delta, interval)


def on_grid(losses: np.ndarray, masses: np.ndarray, infinite: float, interval: float) -> PrivacyLossDistribution:
    """A distribution on the multiples of ``interval`` that is never below the one given.

    Each loss is split between its two neighbours on the grid such that its probability under both inputs is kept; by
    convexity no delta becomes smaller ("connect the dots", which composes with far less excess than rounding up).

    Args:
        losses, masses: Losses and their probabilities.
        infinite: The probability of an infinite loss; together with ``masses`` 1.
        interval: The step between losses, positive.

    Source: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi, "Connect the dots", PoPETs 2022.
    """
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    far = losses >= _WIDEST * interval
    infinite = min(1.0, infinite + float(masses[far].sum()))
    losses, masses = np.maximum(losses[~far], -_WIDEST * interval), masses[~far]
    if not len(losses):
        losses, masses = np.zeros(1), np.zeros(1)
    steps = np.floor(losses / interval)
    part = np.clip(np.expm1(steps * interval - losses) / math.expm1(-interval), 0.0, 1.0)
    lowest = int(steps.min())
    places = (steps - lowest).astype(np.int64)
    length = int(places.max()) + 2
    kept = np.bincount(places, masses * (1 - part), minlength=length)
    table = kept + np.bincount(places + 1, masses * part, minlength=length)
    scale = (1 - infinite) / max(float(table.sum()), 1e-300)
    chances: dict[int, float] = {lowest + int(i): float(table[i]) * scale for i in np.flatnonzero(table)}
    return privacy_loss_distribution.PrivacyLossDistribution(pld_pmf.create_pmf(chances, interval, infinite, True))


def _losses(mechanism: Additive, shift: int, alike: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses ln p(k)/p(k + shift) and their probabilities.

    The integers are cut into blocks with losses no further apart than ``alike``. Like `on_grid`, a block is replaced
    by its smallest and its largest loss such that its probability under both inputs is kept.
    """
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
        done = ((highest - lowest <= alike) & (variation <= _VARIATION)) | (lengths == 1)
        high, low = highest[done], lowest[done]
        here = _masses(mechanism, starts[done], lengths[done])
        there = _masses(mechanism, starts[done] + shift, lengths[done])
        with np.errstate(divide="ignore", invalid="ignore"):
            part = (1 - np.exp(low) * there / here) / -np.expm1(low - high)
        part = np.where((high > low) & (here > 0), np.clip(part, 0.0, 1.0), 1.0)
        losses += [high, low]
        masses += [here * part, here * (1 - part)]
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
