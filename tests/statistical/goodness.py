"""What noise must satisfy, as checks that raise AssertionError; one set for the real mechanisms and the mutants."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from scipy import stats

from spark_rdp.mechanisms.base import Additive
from spark_rdp.metrics import L1, L2
from spark_rdp.privacy.audit import audit
from spark_rdp.privacy.verify import verify
from spark_rdp.randomness import KeyedBits

#: The chance that a check rejects a right mechanism. Some 50 checks run in the suite: 5e-7 together.
FALSE_ALARM = 1e-8


def seeded_bits(size: int, seed: int) -> KeyedBits:
    """Reproducible bits for ``size`` rows."""
    digests = np.zeros((size, 2), dtype=np.uint64)
    digests[:, 0] = np.arange(size)
    key = hashlib.sha256(f"test {seed}".encode()).digest()
    return KeyedBits(key, digests.view(np.uint8), np.zeros(size, dtype=np.int64))


def draw(mechanism: Additive, size: int, seed: int) -> np.ndarray:
    """``size`` draws of the noise alone."""
    return mechanism.release(np.zeros(size, dtype=np.int64), seeded_bits(size, seed))


def check_law(noise: np.ndarray, mechanism: Additive) -> None:
    """Chi-square of the noise against the mass function, signs apart; false alarm FALSE_ALARM."""
    tails = np.concatenate([np.linspace(0.98, 0.02, 25), [0.01, 3e-3, 1e-3]])
    edges = sorted({mechanism.quantile(1 - tail) + 1 for tail in tails})
    upper = [math.exp(mechanism.log_tail(m)) / 2 for m in edges]  # P(X >= m), m >= 1
    beyond = np.array(upper)
    cells = np.concatenate([[1 - 2 * upper[0]], np.repeat(beyond - np.append(beyond[1:], 0.0), 2)])
    place = np.searchsorted(edges, np.abs(noise), side="right")
    position = np.where(place == 0, 0, 2 * place - (noise > 0))
    observed = np.bincount(position, minlength=len(cells))
    expected = cells * len(noise)
    kept = expected >= 100
    pooled = [np.append(part[kept], part[~kept].sum()) for part in (observed, expected)]
    if pooled[1][-1] < 100:  # too few to be a cell of its own
        pooled = [np.append(part[:-2], part[-2:].sum()) for part in pooled]
    if len(pooled[0]) < 2:
        return
    p_value = stats.chisquare(pooled[0], pooled[1] * (pooled[0].sum() / pooled[1].sum())).pvalue
    assert p_value > FALSE_ALARM, f"chi-square p-value {p_value:.2g}"


def check_balance(noise: np.ndarray, mechanism: Additive) -> None:
    """Mean 0 and as many positive as negative draws; false alarm FALSE_ALARM each (known-faults, row 7)."""
    limit = stats.norm.isf(FALSE_ALARM / 2)
    deviation = math.sqrt(mechanism.expectation(L2(), 1.0))
    assert abs(noise.mean()) <= limit * deviation / math.sqrt(len(noise)), "the mean is not 0"
    signs = int((noise > 0).sum()), int((noise < 0).sum())
    assert stats.binomtest(signs[0], max(1, sum(signs))).pvalue > FALSE_ALARM, "the signs are not balanced"


def check_spread(noise: np.ndarray, mechanism: Additive) -> None:
    """Reported standard deviation and mean absolute error are the measured ones, within 1 % (known-faults, row 62).

    With 10**6 draws the relative standard error of both is below 0.16 %: 1 % is six of them, false alarm below 1e-8.
    """
    deviation = math.sqrt(mechanism.expectation(L2(), 1.0))
    assert abs(math.sqrt(np.mean(np.square(noise, dtype=np.float64))) / deviation - 1) <= 0.01, "standard deviation"
    assert abs(np.abs(noise).mean() / mechanism.expectation(L1(), 1.0) - 1) <= 0.01, "mean absolute error"


def check_no_repeats(noise: np.ndarray, mechanism: Additive) -> None:
    """No more equal draws than chance, and no correlation between near or far rows; false alarm FALSE_ALARM each.

    For noise on a fine lattice: two draws agree with probability at most P(X = 0).
    """
    counts = np.unique(noise, return_counts=True)[1].astype(np.float64)
    pairs = float((counts * (counts - 1) / 2).sum())
    most = math.exp(float(mechanism.log_mass(np.zeros(1, dtype=np.int64))[0])) * len(noise) * (len(noise) - 1) / 2
    assert pairs <= stats.poisson.isf(FALSE_ALARM, most), "draws repeat"
    ranks = stats.rankdata(noise) / len(noise) - 0.5
    limit = stats.norm.isf(FALSE_ALARM / 16)
    for lag in (1, 2, 3, 8, 16, 1000, len(noise) // 8, len(noise) // 2):
        correlation = 12 * float(np.mean(ranks[lag:] * ranks[:-lag]))
        assert abs(correlation) <= limit / math.sqrt(len(noise) - lag), f"rows {lag} apart are correlated"


def check_tails(noise: np.ndarray, mechanism: Additive) -> None:
    """As many draws far out as the mass function says; false alarm FALSE_ALARM for each of three lengths."""
    for share in (1e-2, 1e-3, 1e-4):
        length = mechanism.quantile(1 - share) + 1
        beyond = int((np.abs(noise) >= length).sum())
        assert stats.binomtest(beyond, len(noise), math.exp(mechanism.log_tail(length))).pvalue > FALSE_ALARM, "tails"


def check_loss(mechanism: Additive, shift: int, epsilon: float) -> None:
    """The loss claimed covers the loss of the mass function, and both stay within the budget."""
    verified = verify(mechanism, shift)
    claimed = mechanism.loss(shift)
    assert verified <= claimed * (1 + 1e-9), f"claims {claimed}, has {verified}"
    assert max(claimed, verified) <= epsilon * (1 + 1e-9), f"{max(claimed, verified)} is above {epsilon}"


def check_audit(mechanism: Additive, shift: int, epsilon: float, seed: int, size: int = 10**6) -> float:
    """No event tells the two worst neighbours apart by more than epsilon; false alarm 1e-8. Returns the bound."""
    samples = [
        mechanism.release(np.full(size, value, dtype=np.int64), seeded_bits(size, seed + place))
        for place, value in enumerate((0, shift))
    ]
    bound = audit(*samples, alpha=1e-8)
    assert bound <= epsilon, f"an attacker shows {bound}"
    return bound
