"""What a second fold is: a law of the random inverse scale u of a Laplace noise, and its approximation by atoms."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from spark_rdp.errors import invalid

#: Rates more than this factor below the largest one are left out of an approximation by atoms.
DEPTH = 1e-14


class Atoms(NamedTuple):
    """A discrete law: increasing rates and their positive probabilities, which add up to 1."""

    rates: np.ndarray
    weights: np.ndarray


def check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise invalid(name, f"a number between {low:g} and {high:g}", value, "It is a parameter of a second-fold law.")


class SecondFold(ABC):
    """A law of the inverse scale u > 0."""

    name: ClassVar[str]
    #: The laws by name, for `law_from_spec`.
    kinds: ClassVar[dict[str, type[SecondFold]]] = {}

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            SecondFold.kinds[cls.name] = cls

    def spec(self) -> dict[str, Any]:
        """The law as JSON-able values; `law_from_spec` reads it back exactly."""
        return {"law": self.name, **{f.name: getattr(self, f.name) for f in fields(self)}}  # type: ignore[arg-type]

    @abstractmethod
    def log_mgf(self, t: np.ndarray | float) -> np.ndarray:
        """ln E[exp(t u)] for t <= 0, and for t > 0 below `reach`."""

    @abstractmethod
    def log_mgf_derivative(self, t: np.ndarray | float) -> np.ndarray:
        """ln E[u exp(t u)] for t <= 0."""

    @property
    def mean(self) -> float:
        """E[u]."""
        return float(np.exp(self.log_mgf_derivative(0.0)))

    @property
    @abstractmethod
    def order(self) -> float:
        """The power of x with which P(u < x) vanishes at 0; infinite when u keeps away from 0."""

    @property
    def reach(self) -> float:
        """E[exp(t u)] is finite for t below this."""
        return math.inf

    def negative_moment(self, p: float) -> float:
        """E[u^-p], infinite where it diverges (``p >= order``)."""
        if p >= self.order:
            return math.inf
        return self._negative_moment(p)

    @abstractmethod
    def _negative_moment(self, p: float) -> float:
        """E[u^-p] for p below the order."""

    @abstractmethod
    def scaled(self, factor: float) -> SecondFold:
        """The law of ``factor * u``."""

    @abstractmethod
    def atoms(self, count: int) -> Atoms:
        """The law as atoms: itself when it is discrete, else about ``count`` quadrature nodes."""

    def loss(self, shift: float) -> float:
        """The privacy loss ln M'(0)/M'(-shift) of the continuous noise [R2DP, Theorem 4.1]."""
        return float(self.log_mgf_derivative(0.0) - self.log_mgf_derivative(-shift))


def compress(rates: np.ndarray, weights: np.ndarray, count: int) -> Atoms:
    """Fewer atoms with nearly the same law.

    ln u is cut into ``count / 2`` equal cells; each cell's atoms become two that keep its mass and its first three
    moments (a two-point Gauss rule).

    Args:
        rates, weights: The atoms, in any order.
        count: How many atoms are left at most.
    """
    logs = np.log(rates)
    low = max(logs.min(), logs.max() + math.log(DEPTH))
    cells = max(count // 2, 1)
    width = max((logs.max() - low) / cells, 1e-12)
    index = np.clip(((logs - low) / width).astype(np.int64), 0, cells - 1)
    mass = np.bincount(index, weights, cells)
    used = mass > 0
    safe = np.where(used, mass, 1.0)
    mean = np.bincount(index, weights * rates, cells) / safe
    deviation = rates - mean[index]
    variance = np.bincount(index, weights * deviation**2, cells) / safe
    third = np.bincount(index, weights * deviation**3, cells) / safe
    spread = np.sqrt(variance)
    skew = third / np.where(spread > 0, spread, 1.0) ** 3 / 2
    longer = np.abs(skew) + np.sqrt(1 + skew**2)  # in units of the spread; the other distance is its reciprocal
    right, left = np.where(skew > 0, longer, 1 / longer), np.where(skew > 0, 1 / longer, longer)
    up = left / (left + right)
    low_rates, high_rates = mean - spread * left, mean + spread * right
    ok = used & (spread > 1e-14 * mean) & (low_rates > 0)
    result = np.concatenate([np.where(ok, low_rates, mean)[used], high_rates[ok]])
    masses = np.concatenate([np.where(ok, mass * (1 - up), mass)[used], (mass * up)[ok]])
    order = np.argsort(result)
    order = order[masses[order] > 0]
    return Atoms(result[order], masses[order] / masses.sum())


def add_up(parts: Sequence[Atoms], count: int) -> Atoms:
    """The law of a sum of independent rates, as about ``count`` atoms."""
    result = parts[0]
    for part in parts[1:]:
        rates = np.add.outer(result.rates, part.rates).ravel()
        result = compress(rates, np.multiply.outer(result.weights, part.weights).ravel(), count)
    return result
