"""The cell of a value, as a Spark expression: numbers of map cells and of categories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, IntegralType, NumericType, StringType

from spark_rdp.errors import invalid
from spark_rdp.queries import CategoryColumn, CellColumn, PlaceColumn
from spark_rdp.spark.cell_noise import NO_CELL

if TYPE_CHECKING:
    from pyspark.sql import Column


def cell_of(
    where: str, item: CellColumn, columns: Mapping[str, Column], kinds: Mapping[str, DataType], clamp: bool
) -> Column:
    """The cell of each row as BIGINT: null where a value is missing, NO_CELL where it is none of the cells.

    Args:
        where: The place of the column in the query, for messages.
        item: The cells.
        columns, kinds: Each used column of the source, and its type.
        clamp: Whether places outside the box count as the nearest cell.

    Raises:
        InvalidInput: A column has a type that cells are not made of.
    """
    if isinstance(item, PlaceColumn):
        return _place(where, item, columns, kinds, clamp)
    assert isinstance(item, CategoryColumn)
    column, kind = columns[item.column], kinds[item.column]
    if not isinstance(kind, (StringType, IntegralType, BooleanType)):
        constraint = f"a column of texts, whole numbers or booleans, not of {kind.simpleString()}"
        raise invalid(f"{where}.column", constraint, item.column, "Derive a text with source.derive.")
    # A collation of the source must not make categories equal that are not.
    text = column.cast("string") if not isinstance(kind, StringType) else F.collate(column, "UTF8_BINARY")
    numbers = F.create_map(*(F.lit(part) for place, name in enumerate(item.labels) for part in (name, place)))
    unknown = NO_CELL if item.missing_cell is None else item.missing_cell
    known = F.coalesce(F.try_element_at(numbers, text), F.lit(unknown))
    return F.when(text.isNotNull(), known).cast("bigint")


def _place(
    where: str, item: PlaceColumn, columns: Mapping[str, Column], kinds: Mapping[str, DataType], clamp: bool
) -> Column:
    box = item.grid.map
    for name, key in item.sources.items():
        if not isinstance(kinds[name], NumericType):
            constraint = f"a column of numbers, not of {kinds[name].simpleString()}"
            remedy = "Cast it with source.derive, for example try_cast(x AS DOUBLE)."
            raise invalid(f"{where}.{key}", constraint, name, remedy)
    latitude, longitude = (columns[name].cast("double") for name in (item.grid.latitude, item.grid.longitude))
    row = _index(latitude, box.south, box.north, box.rows)
    cell = row * box.columns + _index(longitude, box.west, box.east, box.columns)
    there = latitude.isNotNull() & ~F.isnan(latitude) & longitude.isNotNull() & ~F.isnan(longitude)
    if not clamp:
        inside = latitude.between(box.south, box.north) & longitude.between(box.west, box.east)
        cell = F.when(inside, cell).otherwise(F.lit(NO_CELL))
    return F.when(there, cell).cast("bigint")


def _index(value: Column, low: float, high: float, count: int) -> Column:
    """As `MapGrid.cells`, in the same steps of double precision."""
    moved = F.least(F.greatest(value, F.lit(low)), F.lit(high))
    share = (moved - F.lit(low)) / F.lit(high - low)
    return F.least(F.floor(share * F.lit(float(count))), F.lit(count - 1))
