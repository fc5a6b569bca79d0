"""From rows to the public frame, for each kind of query that is released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_rdp.kinds import AnyPlan, AnyQuery
from spark_rdp.queries.averages import AveragesQuery
from spark_rdp.queries.degrees import DegreesQuery
from spark_rdp.queries.ranges import RangesQuery
from spark_rdp.randomness import stream_key
from spark_rdp.releases import ReleasePlan
from spark_rdp.spark.aggregate import aggregate
from spark_rdp.spark.averages import averages_frame
from spark_rdp.spark.degrees import degrees_frame
from spark_rdp.spark.noise import add_noise
from spark_rdp.spark.ranges import ranges_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def public_frame(rows: DataFrame, query: AnyQuery, plan: AnyPlan, secret: bytes, release_id: str) -> DataFrame:
    """The public rows of a query: exact statistics with noise, in one partition, in order. Lazy.

    Args:
        rows: The rows of the source.
        query: What is asked.
        plan: The plan of the query.
        secret: 32 random bytes that nobody has used before and nobody keeps.
        release_id: Separates the noise of releases that share a secret.

    Raises:
        InvalidInput: A column is missing or of a type that does not fit; told from schemas, no row is read. (Files of
            declared keys or nodes are read.)
    """
    salt = int.from_bytes(stream_key(secret, release_id, "bounding")[:8], "big", signed=True)
    if isinstance(plan, ReleasePlan):
        assert not isinstance(query, (DegreesQuery, RangesQuery, AveragesQuery))
        return add_noise(aggregate(rows, query, plan, salt), plan, secret, release_id)
    if isinstance(query, DegreesQuery):
        return degrees_frame(rows, query, plan, secret, release_id, salt)
    if isinstance(query, RangesQuery):
        return ranges_frame(rows, query, plan, secret, release_id, salt)
    assert isinstance(query, AveragesQuery)
    return averages_frame(rows, query, plan, secret, release_id, salt)
