"""Composition over many releases: privacy loss distributions of our own mass functions, added up by `dp-accounting`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from spark_rdp.domains import Real
from spark_rdp.mechanisms import build
from spark_rdp.privacy import loss_distribution

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

#: Where losses are composed. Below, the rounding of the Fourier transform is no longer small beside delta.
COMPOSED_DELTA = Real("delta", 1e-10, 0.5, "Loss distributions need a delta, for example 1.0e-6.")
#: Rounding errors of composition, which `dp_accounting` does not bound, are kept below this share of delta.
_MARGIN = 1e-3
#: How many grid points lie between 0 and the epsilon that matters.
_STEPS = 2**14


@dataclass(frozen=True)
class Noise:
    """Noise on published numbers of which one unit changes at most ``coordinates``, each by at most ``shift``.

    Args:
        mechanism, parameters: As in a plan; the parameters as JSON text.
        shift: In lattice units.
        coordinates: How many numbers, each with noise of its own.
    """

    mechanism: str
    parameters: str
    shift: int
    coordinates: int


@dataclass(frozen=True)
class Bounded:
    """Anything that is (epsilon, delta) differentially private; nothing else is known of it."""

    epsilon: float
    delta: float


Loss: TypeAlias = "Noise | Bounded"


def composed_epsilon(losses: Iterable[tuple[Loss, int]], delta: float, limit: float) -> float:
    """The epsilon of all that was published together, at ``delta``.

    Every part may depend on the values published before it, but which mechanism comes next must not: a schedule that
    is changed after looking at results is covered by adding up epsilons only.

    Args:
        losses: What was published, each with how many times.
        delta: In [1e-10, 0.5]; that of the single parts included.
        limit: The epsilon that matters; the answer is sharp to about ``limit / 16384`` near it.

    Returns:
        An upper bound; infinite where ``delta`` is less than the parts need.

    Raises:
        InvalidInput: delta is out of range.
    """
    chance = COMPOSED_DELTA.check(delta)
    interval = limit / _STEPS
    times: dict[Loss, int] = {}
    for loss, count in losses:
        # What is drawn anew for every number composes like so many releases of one number.
        one, numbers = (
            (Noise(loss.mechanism, loss.parameters, loss.shift, 1), loss.coordinates)
            if isinstance(loss, Noise)
            else (loss, 1)
        )
        times[one] = times.get(one, 0) + numbers * count
    whole: PrivacyLossDistribution | None = None
    for loss, count in times.items():
        if count:
            several = _repeated(loss, count, interval)
            whole = several if whole is None else whole.compose(several)
    if whole is None:
        return 0.0
    return float(whole.get_epsilon_for_delta(chance * (1 - _MARGIN)))


@lru_cache(maxsize=1024)
def _single(loss: Loss, interval: float) -> PrivacyLossDistribution:
    if isinstance(loss, Bounded):
        return loss_distribution.of_parameters(loss.epsilon, loss.delta, interval)
    mechanism = build(loss.mechanism, json.loads(loss.parameters))
    return loss_distribution.of_noise(mechanism, loss.shift, interval)


@lru_cache(maxsize=128)
def _repeated(loss: Loss, times: int, interval: float) -> PrivacyLossDistribution:
    single = _single(loss, interval)
    return single if times == 1 else single.self_compose(times)
