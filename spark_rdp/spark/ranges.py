"""Range counts on Spark (`spark_rdp.ranges` says what is noised and why)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from spark_rdp.queries.ranges import COUNT, RangesQuery
from spark_rdp.queries.release import ReleaseQuery
from spark_rdp.ranges import RangesVector
from spark_rdp.releases import plan_release
from spark_rdp.spark.aggregate import aggregate
from spark_rdp.spark.vectors import EXACT, add_noise
from spark_rdp.vectors import VectorPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENDS = ("", "_low", "_high")


def exact_cells(df: DataFrame, cells: ReleaseQuery, salt: int) -> DataFrame:
    """The exact bounded statistic of every declared cell (secret): one partition, sorted by key, the last column EXACT.

    Args:
        df: The rows.
        cells: A release with declared keys and one measure of one number; its own noise is not used.
        salt: A whole number of 64 bits.
    """
    frame = aggregate(df, cells, plan_release(cells), salt)
    return frame.toDF(*frame.columns[:-1], EXACT)


def ranges_frame(
    df: DataFrame, query: RangesQuery, plan: VectorPlan, secret: bytes, release_id: str, salt: int
) -> DataFrame:
    """The public rows of a release of ranges."""
    exact = exact_cells(df, query.cells, salt)
    return add_noise(exact, plan, RangesVector(plan), _schema(exact, query), secret, release_id)


def _schema(exact: DataFrame, query: RangesQuery) -> T.StructType:
    """The types of the published columns."""
    keys = exact.drop(EXACT).schema.fields
    ends = ("",) if isinstance(query.workload, str) else ("_from", "_to")
    fields = [T.StructField(key.name + end, key.dataType) for key in keys for end in ends]
    return T.StructType([*fields, *(T.StructField(COUNT + end, T.DoubleType(), nullable=False) for end in _ENDS)])
