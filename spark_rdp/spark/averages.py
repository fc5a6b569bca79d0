"""Moving averages on Spark (`spark_rdp.averages` says what is noised and why)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from spark_rdp.averages import AveragesVector
from spark_rdp.queries.averages import AveragesQuery
from spark_rdp.spark.ranges import exact_cells
from spark_rdp.spark.vectors import EXACT, add_noise
from spark_rdp.vectors import VectorPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def averages_frame(
    df: DataFrame, query: AveragesQuery, plan: VectorPlan, secret: bytes, release_id: str, salt: int
) -> DataFrame:
    """The public rows of a release of moving averages."""
    exact = exact_cells(df, query.cells, salt)
    return add_noise(exact, plan, AveragesVector(plan), _schema(exact, query), secret, release_id)


def _schema(exact: DataFrame, query: AveragesQuery) -> T.StructType:
    """The types of the published columns."""
    keys = exact.drop(EXACT).schema.fields
    fields = [T.StructField(key.name, key.dataType) for key in keys[:-1]]
    fields += [T.StructField(keys[-1].name + end, keys[-1].dataType) for end in ("_from", "_to")]
    name = query.measure.name
    return T.StructType(
        [*fields, *(T.StructField(name + end, T.DoubleType(), nullable=False) for end in ("", "_low", "_high"))]
    )
