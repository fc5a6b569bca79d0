"""Second folds: the laws of the random inverse scale u of a Laplace noise.

A noise whose inverse scale is drawn from such a law has tail P(abs X > x) = M(-x) and privacy loss
ln M'(0) / M'(-D) for a shift of D, where M is the moment generating function of u [R2DP, Theorem 4.1].

Source: [R2DP] Mohammady et al., CCS 2020; mathematics, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import special

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.fold_base import Atoms, SecondFold, add_up, check
from spark_rdp.mechanisms.fold_continuous import Gamma, NoncentralChiSquared, Rayleigh, TruncatedGaussian, Uniform

__all__ = [
    "Atoms",
    "Degenerate",
    "Gamma",
    "LinearCombination",
    "NoncentralChiSquared",
    "Rayleigh",
    "SecondFold",
    "TruncatedGaussian",
    "TwoPoint",
    "Uniform",
    "law_from_spec",
]

#: Fewest atoms of one member of a sum.
_FEWEST = 64


@dataclass(frozen=True)
class Degenerate(SecondFold):
    """u = rate: the Laplace noise itself."""

    name: ClassVar[str] = "degenerate"
    rate: float

    def __post_init__(self) -> None:
        check("rate", self.rate, 1e-300, 1e300)

    def log_mgf(self, t: np.ndarray | float) -> np.ndarray:
        return self.rate * np.asarray(t, dtype=np.float64)

    def log_mgf_derivative(self, t: np.ndarray | float) -> np.ndarray:
        return math.log(self.rate) + self.rate * np.asarray(t, dtype=np.float64)

    @property
    def order(self) -> float:
        return math.inf

    def _negative_moment(self, p: float) -> float:
        return self.rate**-p

    def scaled(self, factor: float) -> Degenerate:
        return Degenerate(self.rate * factor)

    def atoms(self, count: int) -> Atoms:
        return Atoms(np.array([self.rate]), np.array([1.0]))


@dataclass(frozen=True)
class TwoPoint(SecondFold):
    """u = low with probability ``weight``, else u = high."""

    name: ClassVar[str] = "two-point"
    low: float
    high: float
    weight: float

    def __post_init__(self) -> None:
        check("low", self.low, 1e-300, 1e300)
        check("high", self.high, self.low, 1e300)
        check("weight", self.weight, 5e-324, math.nextafter(1.0, 0.0))

    def _logs(self) -> tuple[float, float]:
        return math.log(self.weight), math.log1p(-self.weight)

    def log_mgf(self, t: np.ndarray | float) -> np.ndarray:
        t = np.asarray(t, dtype=np.float64)
        low, high = self._logs()
        return np.logaddexp(low + self.low * t, high + self.high * t)

    def log_mgf_derivative(self, t: np.ndarray | float) -> np.ndarray:
        t = np.asarray(t, dtype=np.float64)
        low, high = self._logs()
        return np.logaddexp(low + math.log(self.low) + self.low * t, high + math.log(self.high) + self.high * t)

    @property
    def order(self) -> float:
        return math.inf

    def _negative_moment(self, p: float) -> float:
        return self.weight * self.low**-p + (1 - self.weight) * self.high**-p

    def scaled(self, factor: float) -> TwoPoint:
        return TwoPoint(self.low * factor, self.high * factor, self.weight)

    def atoms(self, count: int) -> Atoms:
        return Atoms(np.array([self.low, self.high]), np.array([self.weight, 1 - self.weight]))


@dataclass(frozen=True)
class LinearCombination(SecondFold):
    """A sum of independent second folds with non-negative weights [R2DP, Corollary 4.2]."""

    name: ClassVar[str] = "linear-combination"
    weights: tuple[float, ...]
    laws: tuple[SecondFold, ...]

    def __post_init__(self) -> None:
        if len(self.weights) != len(self.laws) or not self.laws:
            raise invalid(
                "weights", "as many as there are laws, and at least one", len(self.weights), "Give one weight a law."
            )
        for weight in self.weights:
            check("weight", weight, 1e-300, 1e300)

    def spec(self) -> dict[str, Any]:
        return {"law": self.name, "weights": list(self.weights), "laws": [law.spec() for law in self.laws]}

    def log_mgf(self, t: np.ndarray | float) -> np.ndarray:
        t = np.asarray(t, dtype=np.float64)
        return np.sum([law.log_mgf(a * t) for a, law in zip(self.weights, self.laws, strict=True)], axis=0)

    def log_mgf_derivative(self, t: np.ndarray | float) -> np.ndarray:
        t = np.asarray(t, dtype=np.float64)
        pairs = [
            (a, law.log_mgf(a * t), law.log_mgf_derivative(a * t))
            for a, law in zip(self.weights, self.laws, strict=True)
        ]
        slope = np.sum([a * np.exp(derivative - value) for a, value, derivative in pairs], axis=0)
        return np.sum([value for _, value, _ in pairs], axis=0) + np.log(slope)

    @property
    def order(self) -> float:
        return sum(law.order for law in self.laws)

    @property
    def reach(self) -> float:
        return min(law.reach / a for a, law in zip(self.weights, self.laws, strict=True))

    def _negative_moment(self, p: float) -> float:
        # E[u^-p] Gamma(p) is the integral of x^(p-1) M(-x) over x > 0; trapezoidal in ln x
        logs = np.arange(-60.0, 120.0, 1 / 32) - math.log(self.mean)
        terms = p * logs + self.log_mgf(-np.exp(logs))
        return float(np.exp(special.logsumexp(terms) - math.log(32) - special.gammaln(p)))

    def scaled(self, factor: float) -> LinearCombination:
        return LinearCombination(tuple(a * factor for a in self.weights), self.laws)

    def atoms(self, count: int) -> Atoms:
        parts = [law.scaled(a).atoms(max(count // 2, _FEWEST)) for a, law in zip(self.weights, self.laws, strict=True)]
        return add_up(parts, count)


def law_from_spec(spec: dict[str, Any]) -> SecondFold:
    """Rebuild a law from `SecondFold.spec`."""
    values = dict(spec)
    kind = SecondFold.kinds.get(values.pop("law", ""))
    if kind is None:
        raise invalid(
            "law", "one of " + ", ".join(sorted(SecondFold.kinds)), spec.get("law"), "Use a plan as it was written."
        )
    if kind is LinearCombination:
        return LinearCombination(tuple(values["weights"]), tuple(law_from_spec(law) for law in values["laws"]))
    return kind(**values)
