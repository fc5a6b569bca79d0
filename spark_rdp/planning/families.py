"""The families of second folds that are searched, each up to scale.

Source: R2DP, Algorithm 1, Appendix D.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_rdp.mechanisms.second_fold import (
    Gamma,
    NoncentralChiSquared,
    Rayleigh,
    SecondFold,
    TruncatedGaussian,
    Uniform,
)

#: The families of Algorithm 1.
ENSEMBLE = ("gamma", "uniform", "truncnorm")


@dataclass(frozen=True)
class Family:
    """A family of second folds up to scale.

    Args:
        make: The law of some shape parameters, on scales without constraints but ``bounds``.
        bounds: Range of each shape parameter.
        starts: Where searches begin.
    """

    make: Callable[[Sequence[float]], SecondFold]
    bounds: tuple[tuple[float, float], ...]
    starts: tuple[tuple[float, ...], ...]

    def law(self, shape: Sequence[float]) -> SecondFold:
        """The law of a shape, moved into the bounds."""
        return self.make([min(max(x, low), high) for x, (low, high) in zip(shape, self.bounds, strict=True)])


def _gamma(shape: Sequence[float]) -> SecondFold:
    k = math.exp(shape[0])
    return Gamma(k, 1 / k)


def _uniform(shape: Sequence[float]) -> SecondFold:
    return Uniform(math.exp(-math.exp(shape[0])), 1.0)


def _truncated(shape: Sequence[float]) -> SecondFold:
    low = math.exp(shape[1])
    return TruncatedGaussian(shape[0], 1.0, low, low + math.exp(shape[2]))


def _noncentral(shape: Sequence[float]) -> SecondFold:
    return NoncentralChiSquared(math.exp(shape[0]), math.exp(shape[1]), 1.0)


FAMILIES: dict[str, Family] = {
    "gamma": Family(_gamma, ((-1.5, 9.0),), ((-0.5,), (0.5,), (1.5,), (4.0,))),
    "uniform": Family(_uniform, ((-5.0, 3.2),), ((-2.0,), (0.0,), (1.0,), (2.0,))),
    "truncnorm": Family(
        _truncated,
        ((-8.0, 60.0), (-10.0, 4.0), (-3.0, 4.5)),
        ((0.0, -2.0, 2.0), (0.0, -9.0, -2.5), (3.0, 0.0, 2.0), (-3.0, -4.0, 3.0), (20.0, 2.5, 3.0)),
    ),
    "ncx2": Family(_noncentral, ((-1.0, 5.5), (-5.0, 9.0)), ((0.7, 0.0), (2.0, 3.0), (1.0, 6.0))),
    "rayleigh": Family(lambda shape: Rayleigh(1.0), (), ((),)),
}
