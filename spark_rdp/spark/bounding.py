"""How much one privacy unit contributes: which groups it keeps, and what its rows in a group count for.

Every decision is a function of the unit's own rows (and of a salt), so that other units never change it and a second
evaluation decides the same. All arithmetic is on whole numbers that fit 64 bits: caps and row counts stay below 2**31,
lattice integers of a row below 2**31 (2**22 for means).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from spark_rdp.errors import invalid
from spark_rdp.spark.values import clamped, present

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_RANK = "rank"
#: The collation of texts that are equal when their bytes are.
PLAIN_TEXT = "UTF8_BINARY"


def check_unit(name: str, kind: T.DataType) -> None:
    """Refuse a privacy unit whose values cannot be told apart reliably, by its type.

    Raises:
        InvalidInput: The column is an array, a map, a struct or the like.
    """
    atomic = (T.StringType, T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType)
    if not isinstance(kind, atomic):
        constraint = f"a column of texts, numbers, dates or binary ids, not of {kind.simpleString()}"
        raise invalid("privacy.unit", constraint, name, "Derive a text column that names the unit.")
    if isinstance(kind, T.StringType) and getattr(kind, "collation", PLAIN_TEXT) != PLAIN_TEXT:
        # Grouping would follow the collation, the hash that chooses groups the bytes: one unit would count as many.
        constraint = f"a column of plain text, not of {kind.simpleString()}"
        remedy = "Derive one, for example lower(collate(x, 'UTF8_BINARY')), that spells each unit in one way."
        raise invalid("privacy.unit", constraint, name, remedy)


def with_unit(frame: DataFrame, column: str, kind: T.DataType) -> DataFrame:
    """Rows that have a privacy unit; -0.0 and 0.0 are one unit, null and NaN are none."""
    frame = frame.where(present(F.col(column), kind))
    if isinstance(kind, (T.FloatType, T.DoubleType)):
        frame = frame.withColumn(column, F.col(column) + F.lit(0.0).cast(kind))
    return frame


def salted_hash(salt: int, *columns: str | Column) -> Column:
    """A hash (BIGINT) of the salt and the columns.

    Args:
        salt: A whole number of 64 bits.
        columns: What is hashed.
    """
    # The salt goes in as bytes: numbers become part of the code Spark generates, which would be compiled, and be slow
    # at first, for every new salt.
    return F.xxhash64(F.lit(salt.to_bytes(8, "big", signed=True)), *columns)


def keep_groups(frame: DataFrame, unit: str, order: Sequence[str], max_groups: int) -> DataFrame:
    """Keep the rows of at most ``max_groups`` groups of every unit.

    Args:
        frame: Rows.
        unit: The column of the unit.
        order: Columns that name a group; a unit keeps the groups that are smallest in them.
        max_groups: How many groups a unit keeps.
    """
    # The explicit exchange keeps Spark from ranking, and so sorting, before it as well. Cutting rows before they are
    # added up was the fastest of nine ways measured (5 million rows, 300,000 units with 16 groups each); adding up
    # first and keeping the smallest with min_by(cell, group, k) took as long and a fifth more memory.
    window = Window.partitionBy(unit).orderBy(*order)
    ranked = frame.repartition(unit).withColumn(_RANK, F.dense_rank().over(window))
    return ranked.where(F.col(_RANK) <= max_groups)


def share_of_total(total: Column, rows: Column, cap: int) -> Column:
    """``total`` if it is of at most ``cap`` rows, else ``total * cap / rows`` rounded half up; exact.

    Args:
        total: A sum (BIGINT) of ``rows`` integers, each below 2**22 in magnitude.
        rows: How many rows it is the sum of (BIGINT).
        cap: The most rows that count.
    """
    count, most = F.greatest(rows, F.lit(1).cast("bigint")), F.lit(cap).cast("bigint")
    # total = quotient * count + rest with 0 <= rest < count, so that nothing is multiplied beyond 2**62.
    rest = F.pmod(total, count)
    quotient = _div(total - rest, count)
    scaled_rest = rest * most
    up = F.when(scaled_rest % count >= count - scaled_rest % count, 1).otherwise(0)
    return F.when(rows <= most, total).otherwise(quotient * most + _div(scaled_rest, count) + up)


def sampled(rows: Column, up_to_here: Column, all_rows: Column, cap: Column, offset: Column) -> Column:
    """How many of a bin's rows count when a unit may contribute ``cap`` rows to all bins of a group.

    With more rows than that, every (all_rows / cap)-th row in the order of the bins counts, from an offset: exactly
    ``cap`` rows, and each bin its share up to one.

    Args:
        rows: The unit's rows in the bin.
        up_to_here: The unit's rows in this bin and those before it.
        all_rows: The unit's rows in all bins.
        cap: The most rows that count.
        offset: Any whole number that depends on unit and group only.
    """
    start = F.pmod(offset, all_rows)
    kept = _div(cap * up_to_here + start, all_rows) - _div(cap * (up_to_here - rows) + start, all_rows)
    return F.when(all_rows <= cap, rows).otherwise(kept)


def bounded_total(total: Column, rows: Column, lower: int, upper: int) -> Column:
    """A unit's total in a group, clamped; 0 if no row of it has a value."""
    return F.when(rows > 0, clamped(total, lower, upper)).otherwise(F.lit(0).cast("bigint"))


def _div(numerator: Column, denominator: Column) -> Column:
    return F.call_function("div", numerator, denominator)
