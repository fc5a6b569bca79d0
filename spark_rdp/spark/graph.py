"""From an edge list to the exact number of nodes of each degree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.window import Window

from spark_rdp.degrees import kept_edges
from spark_rdp.errors import invalid
from spark_rdp.spark.bounding import PLAIN_TEXT, salted_hash

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The two ends of an edge in a fixed order, and one of them as a node.
_LOW, _HIGH, _NODE, _ORDER, _CROWDED = "low", "high", "node", "order", "crowded"
DEGREE, NODES = "degree", "nodes"


def end_type(where: str, name: str, kind: T.DataType) -> T.DataType:
    """The type nodes of a column are compared in: text or BIGINT.

    Raises:
        InvalidInput: The column holds something else, or texts of which different ones count as equal.
    """
    if isinstance(kind, T.IntegralType):
        return T.LongType()
    if isinstance(kind, T.StringType) and getattr(kind, "collation", PLAIN_TEXT) == PLAIN_TEXT:
        return T.StringType()
    constraint = f"a column of plain texts or whole numbers, not of {kind.simpleString()}"
    raise invalid(where, constraint, name, "Derive a column that names each node in one way.")


def simple_edges(ends: DataFrame) -> DataFrame:
    """Every edge once: neither loops, nor edges without an end, nor the same edge in the other direction.

    Args:
        ends: The two ends of each row, in two columns of one type.

    Returns:
        The columns low and high.
    """
    one, other = (F.col(name) for name in ends.columns)
    edges = ends.where(one.isNotNull() & other.isNotNull() & (one != other))
    return edges.select(F.least(one, other).alias(_LOW), F.greatest(one, other).alias(_HIGH)).distinct()


def projected(edges: DataFrame, most: int, salt: int) -> DataFrame:
    """Edges in the order of a keyed hash, each kept if both ends have kept fewer than ``most`` before.

    Edges between nodes that have no more than ``most`` edges are kept whatever the order; only the others are taken one
    after another, by a single task that remembers how many edges their ends have kept.

    Args:
        edges: As `simple_edges` returns them.
        most: At least 1.
        salt: A whole number of 64 bits; the order of two edges depends on it and on these two edges only.
    """
    order = salted_hash(salt, _LOW, _HIGH).alias(_ORDER)
    count = F.count(F.lit(1)).over(Window.partitionBy(_NODE))
    crowded = _halves(edges).withColumn(_CROWDED, (count > most).cast("int"))
    known = crowded.groupBy(_LOW, _HIGH).agg(F.max(_CROWDED).alias(_CROWDED))
    free = known.where(F.col(_CROWDED) == 0).select(_LOW, _HIGH)
    rest = known.where(F.col(_CROWDED) == 1).select(_LOW, _HIGH, order)
    queue = rest.repartition(1).sortWithinPartitions(_ORDER, _LOW, _HIGH).select(_LOW, _HIGH)

    def keep(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept: dict[object, int] = {}
        for batch in batches:
            pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
            mask = kept_edges(pairs, most, kept)
            yield batch.filter(pa.array(mask, pa.bool_()))

    return free.unionByName(queue.mapInArrow(keep, queue.schema))


def degree_counts(edges: DataFrame, highest: int) -> DataFrame:
    """How many nodes have degree 1, 2, ..., ``highest`` or more.

    Args:
        edges: As `simple_edges` returns them.
        highest: The last degree; nodes of higher ones count here.

    Returns:
        One partition, the columns degree and nodes (BIGINT), sorted by degree; every degree is there.
    """
    degrees = _halves(edges).groupBy(_NODE).agg(F.count(F.lit(1)).alias(DEGREE))
    capped = degrees.select(F.least(F.col(DEGREE), F.lit(highest).cast("bigint")).alias(DEGREE))
    counts = capped.groupBy(DEGREE).agg(F.count(F.lit(1)).alias(NODES))
    none = edges.sparkSession.range(1, highest + 1).select(
        F.col("id").alias(DEGREE), F.lit(0).cast("bigint").alias(NODES)
    )
    every = counts.unionByName(none).groupBy(DEGREE).agg(F.sum(NODES).alias(NODES))
    return every.repartition(1).sortWithinPartitions(DEGREE)


def _halves(edges: DataFrame) -> DataFrame:
    """Each edge twice, once for each of its ends."""
    return edges.select(_LOW, _HIGH, F.explode(F.array(_LOW, _HIGH)).alias(_NODE))
