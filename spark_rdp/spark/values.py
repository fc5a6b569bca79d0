"""From a column of values to lattice integers and bins, row by row, in expressions that no value can make fail.

Every numeric type is widened to double first. Missing are null and, in FLOAT and DOUBLE columns, NaN. Infinite values
are values: they are clamped like any other. Nothing here raises or overflows, with ANSI arithmetic on or off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType, NumericType

from spark_rdp.errors import invalid
from spark_rdp.lattice import ROW_LIMIT

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_rdp.releases import Component


def check_numeric(where: str, name: str, kind: DataType) -> None:
    """Refuse a column without numbers, by its type.

    Raises:
        InvalidInput: The type is not numeric.
    """
    if not isinstance(kind, NumericType):
        remedy = "Cast it with source.derive, for example try_cast(x AS DOUBLE)."
        raise invalid(where, f"a column of numbers, not of {kind.simpleString()}", name, remedy)


def present(column: Column, kind: DataType) -> Column:
    """Whether there is a value: neither null nor NaN."""
    there = column.isNotNull()
    return there & ~F.isnan(column) if isinstance(kind, (FloatType, DoubleType)) else there


def lattice_integer(column: Column, kind: DataType, component: Component) -> Column:
    """The value of one row as a lattice integer (BIGINT), rounded half to even; null if there is none.

    For a total the integer is clamped to the row limit of the lattice. For a mean (kind centred) the value is clamped
    to its bounds first and counted from the centre.
    """
    value, limit = column.cast("double"), float(ROW_LIMIT)
    if component.kind == "centred":
        assert component.value_lower is not None
        assert component.value_upper is not None
        assert component.centre is not None
        value = _clamped(value, component.value_lower, component.value_upper) - F.lit(component.centre)
        limit = float(component.row_limit)
    steps = _clamped(value * F.lit(math.ldexp(1.0, -component.exponent)), -limit, limit)
    return F.when(present(column, kind), F.rint(steps).cast("bigint"))


def bin_number(column: Column, kind: DataType, edges: Sequence[float], outside: bool) -> Column:
    """The bin of one row's value, from 0; bins are ``[edge, next edge)``, the last one is closed.

    Args:
        column: The values.
        kind: Their type.
        edges: Increasing.
        outside: Whether values outside of all bins count in the nearest one; otherwise their bin is null.

    Returns:
        INT; null for a missing value.
    """
    value, inner = column.cast("double"), edges[1:-1]
    there = present(column, kind)
    if not outside:
        there = there & (value >= F.lit(edges[0])) & (value <= F.lit(edges[-1]))
    return F.when(there, _edges_passed(value, inner) if inner else F.lit(0))


def _edges_passed(value: Column, edges: Sequence[float]) -> Column:
    """How many edges the value has reached: a binary search, so that wide histograms stay cheap and plans small."""
    # One literal instead of an expression per edge; repr of a double reads back as the same double.
    listed = F.split(F.lit(",".join(map(repr, edges))), ",").cast("array<double>")
    halves = F.array(*(F.lit(1 << power) for power in reversed(range(len(edges).bit_length()))))

    def step(passed: Column, half: Column) -> Column:
        return F.when(F.try_element_at(listed, passed + half) <= value, passed + half).otherwise(passed)

    return F.aggregate(halves, F.lit(0), step)


def _clamped(column: Column, lower: float, upper: float) -> Column:
    return F.greatest(F.lit(lower), F.least(F.lit(upper), column))


def clamped(column: Column, lower: int, upper: int) -> Column:
    """A whole number (BIGINT, not null) moved into the range."""
    return F.greatest(F.lit(lower).cast("bigint"), F.least(F.lit(upper).cast("bigint"), column))
