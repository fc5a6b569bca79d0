"""Choices of the rows of a unit with one fault each. A named check must catch every one of them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from spark_rdp.spark.bounding import salted_hash


def _ranked(rows: DataFrame, rank: Column, *order: str | Column) -> DataFrame:
    return rows.withColumn("rank", rank.over(Window.partitionBy("unit").orderBy(*order)))


def one_too_many(rows: DataFrame, most: int) -> DataFrame:
    """The cap is off by one."""
    return _ranked(rows, F.rank(), "order").where(F.col("rank") <= most + 1)


def ties_count_once(rows: DataFrame, most: int) -> DataFrame:
    """Rows that share a key have one rank: a unit that gives all its rows one key has no bound."""
    return _ranked(rows, F.rank(), "order").where(F.col("rank") <= most)


def first_ones(rows: DataFrame, most: int) -> DataFrame:
    """The first rows of a unit in the order of their place."""
    return _ranked(rows, F.row_number(), F.monotonically_increasing_id()).where(F.col("rank") <= most)


def largest_values(rows: DataFrame, most: int) -> DataFrame:
    """The rows with the largest values: which are published depends on what is noised."""
    return _ranked(rows, F.row_number(), F.desc("_2"), "order").where(F.col("rank") <= most)  # unit, event, battery


def of_all_units(rows: DataFrame, most: int) -> DataFrame:
    """As many rows as all units may have, whoever has them."""
    return rows.orderBy("order").limit(most * 6)


def with_missing_units(frame: DataFrame, column: str, kind: object) -> DataFrame:
    """Rows without a unit stay: as many as there are."""
    return frame.withColumn(column, F.coalesce(F.col(column), F.expr("uuid()")))


def keyed_by_nothing(salt: int, *columns: str | Column) -> Column:
    """The hash is that of the salt: all rows of a unit come at once."""
    return F.xxhash64(F.lit(salt.to_bytes(8, "big", signed=True)))


def place_by_order(salt: int, *columns: str | Column) -> Column:
    """Rows are published in the order they are chosen by: those of large units, the first of many, come first."""
    return F.col("order") if columns == ("order",) else salted_hash(salt, *columns)
