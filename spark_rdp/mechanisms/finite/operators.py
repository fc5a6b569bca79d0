"""The matrix Phi = exp(-epsilon d) of a domain: its products, and ``Phi x = b`` with a bound on the error."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from spark_rdp.mechanisms.finite.domains import MOST_POINTS, Categories, Domain
from spark_rdp.mechanisms.finite.grids import Grid

#: Distances count up to here, in units of 1/epsilon: a smaller distance is stricter, and e^-600 is still a double.
FARTHEST = 600.0
_UNIT = 2.0**-53


def decay(scaled: np.ndarray) -> np.ndarray:
    """exp(-distance) for distances in units of 1/epsilon; never 0."""
    return np.exp(-np.minimum(scaled, FARTHEST))


def kernel_slack(domain: Domain, epsilon: float) -> float:
    """How far ln of a value of `decay` can lie from the distance: rounding of the distance, the product and exp."""
    return _UNIT * (6 * min(epsilon * domain.largest, FARTHEST) + 6)


@dataclass(frozen=True)
class Solution:
    """A solution x of ``Phi x = b``.

    Attributes:
        values: The computed x.
        residual: A bound on the largest entry of ``Phi x - b``, rounding included.
        error: A bound on how far any entry of the computed x is from the exact one; infinite where none is known.
    """

    values: np.ndarray
    residual: float
    error: float

    @property
    def nonnegative(self) -> bool:
        """Whether the exact solution has no negative entry, for certain."""
        return bool(self.values.min() >= self.error)


class Operator(ABC):
    """Phi of a domain at an epsilon."""

    domain: Domain
    epsilon: float

    @abstractmethod
    def product(self, x: np.ndarray) -> np.ndarray:
        """Phi x, for x of shape (n,)."""

    @abstractmethod
    def solve(self, b: np.ndarray) -> Solution:
        """Solve ``Phi x = b``."""

    @abstractmethod
    def rounding(self, x: np.ndarray) -> float:
        """A bound on the error of every entry of ``product(x)``."""

    def unit(self) -> Solution:
        """Solve ``Phi z = 1``; by closed form where there is one."""
        return self.solve(np.ones(self.domain.size))

    def exact_unit(self, z: np.ndarray) -> Solution:
        """A closed form for ``Phi z = 1`` whose entries are right to a few roundings, signs included."""
        residual = float(np.abs(self.product(z) - 1).max()) + self.rounding(z)
        return Solution(z, residual, 8 * _UNIT * float(np.abs(z).min()))


class Dense(Operator):
    """Phi as a matrix, for listed points."""

    def __init__(self, domain: Domain, epsilon: float) -> None:
        self.domain, self.epsilon = domain, epsilon
        self._matrix = decay(epsilon * domain.distances())
        try:
            self._inverse: np.ndarray | None = scipy.linalg.inv(self._matrix)
        except scipy.linalg.LinAlgError:
            self._inverse = None

    def product(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self._matrix @ x)

    def rounding(self, x: np.ndarray) -> float:
        return _UNIT * (self.domain.size + 2) * float(self.product(np.abs(x)).max())

    def solve(self, b: np.ndarray) -> Solution:
        if self._inverse is None:
            return Solution(np.full(len(b), np.nan), np.inf, np.inf)
        x = self._inverse @ b
        for _ in range(3):
            x = x + self._inverse @ (b - self.product(x))
        residual = float(np.abs(self.product(x) - b).max()) + self.rounding(x)
        # ||Phi^-1|| <= ||X|| / (1 - ||I - X Phi||) for any X; a row sum of the product is bounded through its defect.
        size = float(np.abs(self._inverse).sum(axis=1).max())
        defect = float(np.abs(self._inverse @ self._matrix - np.eye(len(b))).sum(axis=1).max())
        defect += _UNIT * len(b) * size * float(self._matrix.sum(axis=1).max())
        return Solution(x, residual, size / (1 - defect) * residual if defect < 0.5 else np.inf)


class Discrete(Operator):
    """Phi of unordered values: a product over the coordinates of (1 - q) I + q J, q = e^-epsilon."""

    def __init__(self, domain: Categories, epsilon: float) -> None:
        self.domain, self.epsilon = domain, epsilon
        self._categories = domain
        self._shape = (domain.values,) * domain.coordinates

    def product(self, x: np.ndarray) -> np.ndarray:
        table = x.reshape(self._shape)
        other, rest = np.exp(-self.epsilon), -np.expm1(-self.epsilon)
        for axis in range(table.ndim):
            table = rest * table + other * table.sum(axis=axis, keepdims=True)
        return np.asarray(table.reshape(-1))

    def rounding(self, x: np.ndarray) -> float:
        steps = self._categories.coordinates * (self._categories.values + 4)
        return _UNIT * steps * float(self.product(np.abs(x)).max())

    def solve(self, b: np.ndarray) -> Solution:
        table = b.reshape(self._shape)
        rest = -np.expm1(-self.epsilon)
        total = rest + self._categories.values * np.exp(-self.epsilon)
        for axis in range(table.ndim):
            mean = table.mean(axis=axis, keepdims=True)
            table = (table - mean) / rest + mean / total
        x = table.reshape(-1)
        residual = float(np.abs(self.product(x) - b).max()) + self.rounding(x)
        return Solution(x, residual, residual * (2 / rest) ** self._categories.coordinates)

    def unit(self) -> Solution:
        """k-ary randomised response: ``z = (1 + (k - 1) e^-epsilon)^-coordinates``."""
        values, coordinates = self._categories.values, self._categories.coordinates
        value = (1 + (values - 1) * np.exp(-self.epsilon)) ** -float(coordinates)
        return self.exact_unit(np.full(self.domain.size, value))


def operator_of(domain: Domain, epsilon: float) -> Operator:
    """Phi of a domain by the quickest exact way there is."""
    from spark_rdp.mechanisms.finite.lines import Lines
    from spark_rdp.mechanisms.finite.toeplitz import Toeplitz

    if isinstance(domain, Categories):
        return Discrete(domain, epsilon)
    if isinstance(domain, Grid):
        if domain.is_product:
            return Lines(domain, epsilon)
        found = Toeplitz(domain, epsilon)
        if found.invertible or domain.size > MOST_POINTS:
            return found
    return Dense(domain, epsilon)
