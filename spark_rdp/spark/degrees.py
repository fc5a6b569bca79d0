"""The degrees of a graph on Spark (`spark_rdp.degrees` says what is noised and why)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_rdp.degrees import DegreesVector
from spark_rdp.errors import invalid
from spark_rdp.queries.degrees import MOST_IN_SEQUENCE, DegreesQuery
from spark_rdp.queries.keys import KeyFile
from spark_rdp.spark.graph import DEGREE, NODES, degree_counts, end_type, projected, simple_edges
from spark_rdp.spark.io import columns_of
from spark_rdp.spark.key_files import key_file, reading_keys
from spark_rdp.spark.vectors import EXACT, add_noise
from spark_rdp.vectors import NOISED, VectorPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENDS = ("", "_low", "_high")


def exact_degrees(df: DataFrame, query: DegreesQuery, plan: VectorPlan, salt: int) -> tuple[DataFrame, int | None]:
    """The exact numbers of nodes by degree (secret), and how many nodes are declared to be there.

    Args:
        df: The edge list.
        query: What is asked.
        plan: The plan of the query.
        salt: A whole number of 64 bits, for the order in which a projection takes edges.

    Returns:
        A lazy frame, one partition, with the columns degree and nodes, and the number of nodes (None: not public). A
        file of nodes is read.

    Raises:
        InvalidInput: A column is missing or of a type that does not fit, or the file of nodes cannot be used.
    """
    names = {query.edges.source: "edges.source", query.edges.target: "edges.target"}
    ends = columns_of(df, names)
    kinds = [end_type(where, name, ends.schema[name].dataType) for name, where in names.items()]
    if kinds[0] != kinds[1]:
        remedy = "Cast one with source.derive."
        raise invalid("edges.target", f"of the type of edges.source ({kinds[0].simpleString()})", names, remedy)
    edges = simple_edges(ends.toDF("one", "other").select(*(F.col(end).cast(kinds[0]) for end in ("one", "other"))))
    nodes = query.known_nodes
    if isinstance(query.nodes, KeyFile):
        listed, nodes = _listed(df, query, query.nodes, kinds[0])
        for end in ("low", "high"):
            edges = edges.join(listed.toDF(end), end, "left_semi")
    if query.privacy.protect == "node":
        edges = projected(edges, query.max_degree, salt)
    return degree_counts(edges, int(plan.facts["highest"])), nodes


def degrees_frame(
    df: DataFrame, query: DegreesQuery, plan: VectorPlan, secret: bytes, release_id: str, salt: int
) -> DataFrame:
    """The public rows of a release of degrees."""
    exact, nodes = exact_degrees(df, query, plan, salt)
    vector = DegreesVector(plan, nodes)
    return add_noise(exact.select(F.col(NODES).alias(EXACT)), plan, vector, public_schema(query), secret, release_id)


def public_schema(query: DegreesQuery) -> T.StructType:
    """The types of the published columns; the last one is set aside in a file of its own."""
    long, double = T.LongType(), T.DoubleType()
    if query.publish == "sequence":
        columns: list[tuple[str, T.DataType]] = [("rank", long), *((f"degree{end}", long) for end in _ENDS)]
    elif query.publish == "histogram":
        columns = [(DEGREE, long), *((f"nodes{end}", long) for end in _ENDS)]
    else:
        columns = [(DEGREE, long), *((f"{name}{end}", double) for name in ("share", "at_least") for end in _ENDS)]
    columns.append((NOISED, double if query.publish == "distribution" else long))
    return T.StructType([T.StructField(name, kind, nullable=False) for name, kind in columns])


def _listed(df: DataFrame, query: DegreesQuery, file: KeyFile, kind: T.DataType) -> tuple[DataFrame, int]:
    """The declared nodes, each once, and how many there are."""
    where = "nodes.file"
    with reading_keys(where, file.file):
        given = key_file(df.sparkSession, file.file, "node", where)
        typed = given.select(F.col("key").try_cast(kind).alias("key"))
        wrong = F.col("key").isNull()
        summary = typed.agg(F.count_if(wrong).alias("wrong"), F.count_distinct("key").alias("nodes")).first()
    assert summary is not None
    if summary["wrong"]:
        constraint = f"a file of {kind.simpleString()} nodes, one per row"
        raise invalid(where, constraint, f"{summary['wrong']} other rows in {file.file}", "Correct the file.")
    if not query.max_degree < summary["nodes"]:
        constraint = f"below the number of nodes in {file.file} ({summary['nodes']})"
        raise invalid("max_degree", constraint, query.max_degree, "A node has at most nodes - 1 neighbours.")
    if query.publish == "sequence" and summary["nodes"] > MOST_IN_SEQUENCE:
        constraint = f"a file of at most {MOST_IN_SEQUENCE} nodes to publish a sequence"
        raise invalid(where, constraint, summary["nodes"], "Publish the histogram: it holds the same degrees.")
    return typed.distinct(), int(summary["nodes"])
