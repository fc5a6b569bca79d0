"""Regular grids: map cells, ordered scales and several counts; the distance depends on the offset alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from spark_rdp.errors import invalid
from spark_rdp.mechanisms.finite.domains import MOST_CELLS, Domain

EUCLIDEAN, L1, CHEBYSHEV = "euclidean", "l1", "chebyshev"


@dataclass(frozen=True)
class Grid(Domain):
    """The cells of a box in one or more dimensions, numbered row by row: the last axis runs fastest.

    Args:
        shape: How many cells each axis has.
        steps: The length of a cell along each axis, in the unit of distance.
        norm: ``euclidean``, ``l1`` or ``chebyshev``; all the same for one axis.
        span: How many steps one unit of distance reaches, the distance being rounded up to whole units: with span 5, a
            sum over users who contribute 0 to 5 each has the distance "how many users". Steps are 1 then.
        blend: Between 0 and 1: the distance is moved by this share towards `floor_length`, which is never larger.
    """

    kind: ClassVar[str] = "grid"
    shape: tuple[int, ...]
    steps: tuple[float, ...]
    norm: str = EUCLIDEAN
    span: int = 1
    blend: float = 0.0

    def __post_init__(self) -> None:
        cells = f"a grid of 2 to {MOST_CELLS} cells"
        if not all(n >= 1 for n in self.shape) or not 2 <= math.prod(self.shape) <= MOST_CELLS:
            raise invalid("grid", cells, "x".join(map(str, self.shape)), "Choose larger or smaller cells.")
        if len(self.steps) != len(self.shape) or not all(1e-100 < step < 1e100 for step in self.steps):
            raise invalid("cell", "a positive length for each axis", self.steps, "Give the side of a cell.")
        if self.norm not in (EUCLIDEAN, L1, CHEBYSHEV):
            raise invalid("distance", f"one of {EUCLIDEAN}, {L1}, {CHEBYSHEV}", self.norm, "Choose one of them.")
        if not (self.span >= 1 and (self.span == 1 or set(self.steps) == {1.0})):
            raise invalid("span", "at least 1, and steps 1 beside it", self.span, "Count in steps.")
        if not 0 <= self.blend <= 1:
            raise invalid("blend", "between 0 and 1", self.blend, "Leave it out.")

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def smallest(self) -> float:
        units = np.eye(len(self.shape))[[axis for axis, n in enumerate(self.shape) if n > 1]]
        return float(min(self.length(*unit) for unit in units))

    @property
    def largest(self) -> float:
        return float(self.length(*(np.float64(n - 1) for n in self.shape)))

    @property
    def is_product(self) -> bool:
        """Whether the distance is a sum over the axes: the mechanism is then a product of truncated geometrics."""
        return self.blend == 1 or (self.span == 1 and (self.norm == L1 or self.axes == 1))

    @property
    def axes(self) -> int:
        """How many axes have more than one cell."""
        return sum(n > 1 for n in self.shape)

    @property
    def axis_rates(self) -> tuple[float, ...]:
        """The distance `floor_length` gives one step along each axis."""
        share = {EUCLIDEAN: math.sqrt(self.axes), CHEBYSHEV: float(self.axes), L1: 1.0}[self.norm] * self.span
        return tuple(step / share for step in self.steps)

    def floor_length(self, *offsets: Any) -> np.ndarray:
        """A scaled L1 distance that is nowhere above the norm: for it the tight-constraints mechanism always exists."""
        parts = [np.abs(offset) * rate for offset, rate in zip(offsets, self.axis_rates, strict=True)]
        return np.asarray(sum(parts))

    def length(self, *offsets: Any) -> np.ndarray:
        """The distance between cells that lie ``offsets`` apart: one array per axis, broadcast."""
        if self.is_product:
            return self.floor_length(*offsets)
        parts = [np.abs(offset) * step for offset, step in zip(offsets, self.steps, strict=True)]
        if self.norm == EUCLIDEAN:
            whole = np.sqrt(sum(part * part for part in parts))
        elif self.norm == L1:
            whole = np.asarray(sum(parts))
        else:
            whole = parts[0]
            for part in parts[1:]:
                whole = np.maximum(whole, part)
        if self.span > 1:
            whole = np.ceil(whole / self.span)
        if self.blend:
            whole = (1 - self.blend) * whole + self.blend * self.floor_length(*offsets)
        return np.asarray(whole)

    def between(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        here, there = (np.unravel_index(cells, self.shape) for cells in (first, second))
        return self.length(*((a - b).astype(np.float64) for a, b in zip(here, there, strict=True)))

    def corner(self, size: int) -> Grid:
        """The part of the grid with at most ``size`` cells along each axis."""
        return replace(self, shape=tuple(min(n, size) for n in self.shape))

    def blended(self, share: float) -> Grid:
        """The same cells with another share of `floor_length` in the distance."""
        return replace(self, blend=share)

    def spec(self) -> dict[str, Any]:
        content = {"kind": self.kind, "shape": list(self.shape), "steps": list(self.steps), "norm": self.norm}
        return {**content, "span": self.span, "blend": self.blend}


def line(size: int, step: float = 1.0) -> Grid:
    """An ordered scale of equally spaced values."""
    return Grid((size,), (step,))
