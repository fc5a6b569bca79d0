"""Finite sets of values with a distance between them. Cells are numbered 0, 1, ..."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from spark_rdp.errors import InvalidInput, invalid

#: The most points whose distances are kept as a matrix.
MOST_POINTS = 2048
#: The most cells of a domain that is described by a rule.
MOST_CELLS = 2**21
#: A distance may exceed the way over a third point by this share: rounding of the numbers in a file.
_ROUNDING = 1e-9


class Domain(ABC):
    """A finite set with a metric."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def size(self) -> int:
        """How many cells there are."""

    @property
    @abstractmethod
    def smallest(self) -> float:
        """The smallest distance between two different cells; 1 where there is only one cell."""

    @property
    @abstractmethod
    def largest(self) -> float:
        """The largest distance between two cells."""

    @abstractmethod
    def between(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Distances between cells, elementwise; the two arrays are broadcast."""

    @abstractmethod
    def spec(self) -> dict[str, Any]:
        """What `domain_of` rebuilds the domain from; JSON-able and exact."""

    def distances(self) -> np.ndarray:
        """The whole distance matrix, for domains of at most MOST_POINTS cells."""
        if self.size > MOST_POINTS:
            raise InvalidInput(f"The domain must have at most {MOST_POINTS} cells for a distance matrix.")
        cells = np.arange(self.size)
        return self.between(cells[:, None], cells[None, :])


@dataclass(frozen=True)
class Categories(Domain):
    """Tuples of unordered values; the distance is how many of them differ (Hamming), for one value 0 or 1 (discrete).

    Args:
        values: How many values each coordinate has, at least 2.
        coordinates: How many coordinates a cell has; a cell is the number that they write in base ``values``.
    """

    kind: ClassVar[str] = "categories"
    values: int
    coordinates: int = 1

    def __post_init__(self) -> None:
        if not self.values >= 2:
            raise invalid("categories", "at least two different values", self.values, "One value hides nothing.")
        if not (self.coordinates >= 1 and self.values**self.coordinates <= MOST_CELLS):
            raise invalid("categories", f"at most {MOST_CELLS} combinations", self.size, "Merge some of them.")

    @property
    def size(self) -> int:
        return int(self.values**self.coordinates)

    @property
    def smallest(self) -> float:
        return 1.0

    @property
    def largest(self) -> float:
        return float(self.coordinates)

    def digits(self, cells: np.ndarray) -> np.ndarray:
        """The coordinates of cells, as an additional first axis."""
        return np.stack(np.unravel_index(cells, (self.values,) * self.coordinates))

    def between(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return np.asarray(
            sum((a != b).astype(np.float64) for a, b in zip(self.digits(first), self.digits(second), strict=True))
        )

    def spec(self) -> dict[str, Any]:
        return {"kind": self.kind, "values": self.values, "coordinates": self.coordinates}


@dataclass(frozen=True)
class Points(Domain):
    """Listed points, all different.

    Args:
        points: Coordinates of each point; with the distance ``matrix``, its distances to all points.
        distance: ``euclidean``, ``l1``, ``chebyshev``, ``hamming`` (how many coordinates differ) or ``matrix``.
        blend: Between 0 and 1: all distances are moved by this share towards the smallest one.
    """

    kind: ClassVar[str] = "points"
    points: tuple[tuple[float, ...], ...]
    distance: str = "euclidean"
    blend: float = 0.0
    _matrix: np.ndarray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 2 <= len(self.points) <= MOST_POINTS:
            raise invalid("domain", f"2 to {MOST_POINTS} points", len(self.points), "Use a grid for larger ones.")
        if len({len(point) for point in self.points}) != 1:
            raise InvalidInput("domain must have as many coordinates in each point. Look for a short line.")
        places = np.array(self.points, dtype=np.float64)
        if not np.all(np.isfinite(places)):
            raise InvalidInput("domain must consist of finite numbers.")
        matrix = _as_metric(places) if self.distance == "matrix" else _distances(places, self.distance)
        if np.any(matrix + np.eye(len(matrix)) <= 0):
            raise InvalidInput("domain must not hold a point twice: no mechanism needs to tell it from itself.")
        if self.blend:
            apart = ~np.eye(len(matrix), dtype=bool)
            matrix = (1 - self.blend) * matrix + self.blend * np.where(apart, matrix[apart].min(), 0.0)
        object.__setattr__(self, "_matrix", matrix)

    def blended(self, share: float) -> Points:
        """The same points with another share of the smallest distance in all of them."""
        return replace(self, blend=share)

    @property
    def size(self) -> int:
        return len(self.points)

    @property
    def smallest(self) -> float:
        return float(self._matrix[~np.eye(self.size, dtype=bool)].min())

    @property
    def largest(self) -> float:
        return float(self._matrix.max())

    def between(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return self._matrix[first, second]

    def spec(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "points": [list(point) for point in self.points],
            "distance": self.distance,
            "blend": self.blend,
        }


def _distances(places: np.ndarray, distance: str) -> np.ndarray:
    known = ("euclidean", "l1", "chebyshev", "hamming")
    if distance not in known:
        raise invalid("distance", f"one of {', '.join((*known, 'matrix'))}", distance, "See spark-rdp plan --help.")
    total = np.zeros((len(places), len(places)))
    for axis in places.T:
        gap = np.abs(axis[:, None] - axis[None, :])
        if distance == "euclidean":
            total = np.hypot(total, gap)
        elif distance == "chebyshev":
            total = np.maximum(total, gap)
        else:
            total += gap if distance == "l1" else gap != 0
    return total


def _as_metric(matrix: np.ndarray) -> np.ndarray:
    """A matrix that was found to be a metric, with rounding smoothed away downwards: the safe side."""
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidInput("domain must be a square matrix with distance matrix: one line and one column a point.")
    if np.any(matrix < 0) or np.any(np.diag(matrix) != 0):
        raise InvalidInput("domain must have distances of at least 0, and 0 on the diagonal, to be a metric.")
    if not np.allclose(matrix, matrix.T, rtol=_ROUNDING, atol=0):
        raise InvalidInput("domain must be a symmetric matrix to be a metric; two points disagree on their distance.")
    safe = np.minimum(matrix, matrix.T)
    for third in range(len(matrix)):
        np.minimum(safe, safe[:, third, None] + safe[third, None, :], out=safe)
    if np.any(matrix > safe * (1 + _ROUNDING)):
        raise InvalidInput("domain must obey the triangle inequality to be a metric; one way over a third is shorter.")
    return safe


def domain_of(spec: Mapping[str, Any]) -> Domain:
    """Rebuild a domain from `Domain.spec`."""
    from spark_rdp.mechanisms.finite.grids import Grid

    content = dict(spec)
    kind = content.pop("kind", None)
    if kind == Categories.kind:
        return Categories(**content)
    if kind == Points.kind:
        return Points(**{**content, "points": tuple(tuple(point) for point in content["points"])})
    if kind == Grid.kind:
        return Grid(**{**content, "shape": tuple(content["shape"]), "steps": tuple(content["steps"])})
    raise invalid("domain", "of a known kind", kind, "The plan was made by another version.")
