"""Columns of a collection whose values are cells of a finite domain: places on a map, and categories."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.finite.domains import MOST_CELLS, Categories, Domain
from spark_rdp.mechanisms.finite.geography import MapGrid
from spark_rdp.planning.finite import AUTO, CANDIDATES
from spark_rdp.queries.base import Bound, Epsilon, Refused, Strict, refuse
from spark_rdp.queries.measures import Column

_OUTSIDE = "Places outside of it count as the nearest cell of its border."


def _mechanism(given: Any) -> Any:
    names = [AUTO, *CANDIDATES]
    if given not in names:
        raise refuse("", f"one of {', '.join(names)}", given, f"`{AUTO}` takes the one that is right most often.")
    return given


def _category(given: Any) -> Any:
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, int):
        return str(given)
    if not isinstance(given, str):
        raise refuse("", "a text or a whole number", given, "Write it as the data has it.")
    return given


CellMechanism = Annotated[str, BeforeValidator(_mechanism)]
Category = Annotated[str, BeforeValidator(_category)]


class CellColumn(Strict):
    """What all columns of cells have in common.

    Args:
        column: The name of the published column.
        mechanism: ``auto`` or the name of a mechanism.
    """

    kind: ClassVar[str]

    column: Column = Field(description="Name the published column.")
    mechanism: CellMechanism = AUTO

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """The cells and their distances."""

    @property
    @abstractmethod
    def distance_epsilon(self) -> float:
        """The budget per unit of distance."""

    @property
    @abstractmethod
    def sources(self) -> Mapping[str, str]:
        """The columns of the source the values are made of, and their keys."""

    @property
    @abstractmethod
    def missing_cell(self) -> int | None:
        """The cell that stands for a missing value; None if nothing does."""

    @abstractmethod
    def cells_content(self) -> dict[str, Any]:
        """What the cells are, as JSON values."""

    @property
    def values(self) -> int:
        """How many values a row has in this column."""
        return 1

    @property
    def length(self) -> None:
        """Cells do not come in arrays."""
        return None

    @property
    def sample(self) -> None:
        """A budget of its own has one value to report."""
        return None


class Box(Strict):
    """A grid of cells over a box of latitudes and longitudes.

    Args:
        latitude, longitude: The columns of the places, in degrees.
        south, north, west, east: The box.
        cells: How many cells it has along each side.
        cell_km: Instead: about how long the side of a cell is, in kilometres.
    """

    latitude: Column = Field(description="Name the column of the latitudes, in degrees.")
    longitude: Column = Field(description="Name the column of the longitudes, in degrees.")
    south: Bound = Field(description=_OUTSIDE)
    north: Bound = Field(description=_OUTSIDE)
    west: Bound = Field(description=_OUTSIDE)
    east: Bound = Field(description=_OUTSIDE)
    cells: int | None = Field(default=None, ge=2, le=1448)
    cell_km: float | None = None

    @cached_property
    def map(self) -> MapGrid:
        """The cells."""
        sides = self.south, self.north, self.west, self.east
        if self.cells is not None:
            return MapGrid(*sides, self.cells, self.cells)
        assert self.cell_km is not None
        return MapGrid.of_cell(*sides, self.cell_km)

    @model_validator(mode="after")
    def _checked(self) -> Box:
        if (self.cells is None) == (self.cell_km is None):
            raise Refused("cells", " or cell_km must be given, one of the two. For example cells: 100.")
        try:
            _ = self.map.grid
        except InvalidInput as failure:
            key, _, rest = str(failure).partition(" ")
            known = key in ("south", "north", "west", "east", "cell_km")
            raise Refused(key if known else "cells", f" {rest}" if known else f": {failure}") from None
        return self


class PlaceColumn(CellColumn):
    """A column of places on a map; the cell is published, moved at random.

    Two places d kilometres apart become at most e^(epsilon_per_km d) times more or less likely to be behind what is
    published (geo-indistinguishability): near places are hidden among each other, far ones are told apart.

    Args:
        column: The name of the published column: ``row * columns + column`` of the cell, counted from the south-west.
        grid: The cells, and where the places come from.
        epsilon_per_km: The budget per kilometre.
        mechanism: ``auto`` or the name of a mechanism.
    """

    kind: ClassVar[str] = "grid"

    grid: Box = Field(description="Say which cells there are.")
    epsilon_per_km: Epsilon = Field(description="Common choices lie between 0.1 and 10 for each kilometre.")

    @property
    def domain(self) -> Domain:
        return self.grid.map.grid

    @property
    def distance_epsilon(self) -> float:
        return self.epsilon_per_km

    @property
    def epsilon(self) -> float:
        """The budget between the two cells farthest apart."""
        return self.epsilon_per_km * self.domain.largest

    @property
    def sources(self) -> Mapping[str, str]:
        return {self.grid.latitude: "grid.latitude", self.grid.longitude: "grid.longitude"}

    @property
    def missing_cell(self) -> int:
        """The cell that stands for a missing place: the middle one."""
        box = self.grid.map
        return box.rows // 2 * box.columns + box.columns // 2

    def cells_content(self) -> dict[str, Any]:
        """What the cells are, as JSON values."""
        box = self.grid.map
        sides = {name: getattr(box, name) for name in ("south", "north", "west", "east", "rows", "columns")}
        return {**sides, "kilometres": list(box.grid.steps)}


class CategoryColumn(CellColumn):
    """A column of unordered values from a declared list; one of them is published, exchanged at random.

    Args:
        column: The column: texts, whole numbers or booleans.
        categories: All values it may have.
        other: What values that are not listed, and missing ones, are published as; without it they stop the job.
        epsilon: The budget of one report.
        mechanism: ``auto`` or the name of a mechanism.
    """

    kind: ClassVar[str] = "categories"

    categories: tuple[Category, ...] = Field(description="List all values the column may have.")
    other: Category | None = None
    epsilon: Epsilon = Field(description="Each column has a budget of its own; common choices lie between 0.1 and 10.")

    @model_validator(mode="after")
    def _checked(self) -> CategoryColumn:
        for place, name in enumerate(self.categories):
            if name in self.categories[:place]:
                raise refuse(f"categories[{place}]", "different from the others", name, "Keep each once.")
        if not 2 <= len(self.labels) <= MOST_CELLS:
            remedy = "One value alone hides nothing and tells nothing."
            raise refuse("categories", "a list of at least two values", list(self.categories), remedy)
        return self

    @property
    def labels(self) -> tuple[str, ...]:
        """All values that can be published, in the order of their numbers."""
        extra = () if self.other is None or self.other in self.categories else (self.other,)
        return (*self.categories, *extra)

    @property
    def domain(self) -> Domain:
        return Categories(len(self.labels))

    @property
    def distance_epsilon(self) -> float:
        return self.epsilon

    @property
    def sources(self) -> Mapping[str, str]:
        return {self.column: "column"}

    @property
    def missing_cell(self) -> int | None:
        """What a missing value counts as: the declared `other`."""
        return None if self.other is None else self.labels.index(self.other)

    def cells_content(self) -> dict[str, Any]:
        """What the cells are, as JSON values."""
        return {"labels": list(self.labels), "other": self.other}
