"""Degrees on Spark: exact on real graphs, deaf to how an edge list is written, projected in order, published once."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from spark_rdp.consistency import nonincreasing
from spark_rdp.degrees import kept_edges, plan_degrees
from spark_rdp.errors import InvalidInput
from spark_rdp.folders import NOISED_FILE
from spark_rdp.ledger import Ledger
from spark_rdp.queries.degrees import DegreesQuery
from spark_rdp.spark import io
from spark_rdp.spark.bounding import salted_hash
from spark_rdp.spark.degrees import exact_degrees
from spark_rdp.spark.graph import projected, simple_edges
from spark_rdp.spark.release import release

DEEZER = {"nodes": 47538, "edges": 222887, "largest": 112, "head": [2701, 3411, 3683, 3655, 3535, 3422, 3015, 2778]}
FACEBOOK = {"nodes": 4039, "edges": 88234, "largest": 1045, "head": [75, 98, 93, 99, 93, 98, 98, 111, 100, 95]}


def question(**changes) -> DegreesQuery:
    given = {
        "name": "g",
        "edges": {"source": "a", "target": "b"},
        "privacy": {"epsilon": 1.0, "protect": "edge"},
        "max_degree": 5,
    }
    return DegreesQuery.of({**given, **changes})


def exact(df, query: DegreesQuery) -> list[int]:
    return [row.nodes for row in exact_degrees(df, query, plan_degrees(query), 7)[0].collect()]


def frame(spark, edges, schema="a LONG, b LONG"):
    return spark.createDataFrame(edges, schema)


@pytest.mark.parametrize(
    ("file", "options", "facts"),
    [
        ("deezer_hu_edges.csv.gz", {"header": True}, DEEZER),
        ("facebook_combined.txt.gz", {"sep": " "}, FACEBOOK),
    ],
)
def test_real_graphs_without_noise(spark, shared_data, file, options, facts):
    names = ("node_1", "node_2") if options.get("header") else ("a", "b")
    query = question(
        source={
            "format": "csv",
            "path": str(shared_data / file),
            "options": options,
            "schema": ", ".join(f"{name} INT" for name in names),
        },
        edges=dict(zip(("source", "target"), names, strict=True)),
        max_degree=facts["largest"],
        nodes=facts["nodes"],
    )
    counts = np.array(exact(io.read(spark, query.source), query))
    assert counts[: len(facts["head"])].tolist() == facts["head"]
    assert counts.sum() == facts["nodes"], "no node of these graphs is without an edge"
    assert (counts @ np.arange(1, len(counts) + 1)) == 2 * facts["edges"]
    assert counts[facts["largest"] - 1] == 1
    assert counts[facts["largest"]] == 0, "nobody has more"


MESSY = [(1, 2), (2, 1), (1, 2), (3, 3), (None, 4), (4, None), (None, None), (2, 3), (3, 2), (5, 1)]


def test_however_often_and_in_whichever_direction_an_edge_is_listed_it_is_one_edge(spark):
    clean = [(1, 2), (2, 3), (1, 5)]
    for shuffled in (MESSY, MESSY[::-1]):
        assert exact(frame(spark, shuffled), question()) == exact(frame(spark, clean), question()) == [2, 2, 0, 0, 0, 0]
    texts = [tuple(None if end is None else f"n{end}" for end in edge) for edge in MESSY]
    assert exact(frame(spark, texts, "a STRING, b STRING"), question()) == [2, 2, 0, 0, 0, 0]
    mixed = frame(spark, MESSY).select(F.col("a").cast("int"), "b")
    assert exact(mixed, question()) == [2, 2, 0, 0, 0, 0]


def test_larger_degrees_count_as_more_and_an_empty_graph_is_answered_like_any_other(spark):
    star = [(0, leaf) for leaf in range(1, 10)]
    assert exact(frame(spark, star), question(max_degree=3)) == [9, 0, 0, 1]
    assert exact(frame(spark, []), question(max_degree=3)) == [0, 0, 0, 0]


def test_edges_of_nodes_that_are_not_listed_are_dropped(spark, tmp_path):
    listed = tmp_path / "nodes.csv"
    listed.write_text("node\n1\n2\n3\n3\n9\n")
    query = question(nodes={"file": str(listed)}, max_degree=2)
    counts, nodes = exact_degrees(frame(spark, MESSY), query, plan_degrees(query), 7)
    assert (nodes, [row.nodes for row in counts.collect()]) == (4, [2, 1, 0])
    listed.write_text("node\n1\nx\n")
    with pytest.raises(InvalidInput, match=r"nodes\.file must be a file of bigint nodes"):
        exact_degrees(frame(spark, MESSY), query, plan_degrees(query), 7)


@pytest.mark.parametrize("most", [1, 3])
def test_the_projection_takes_edges_one_after_another_in_the_order_of_their_keys(spark, most):
    rng = np.random.default_rng(most)
    pairs = [pair for pair in itertools.combinations(range(40), 2) if rng.random() < 0.15]
    edges = simple_edges(frame(spark, pairs))
    salt = 12345
    keyed = edges.select("low", "high", salted_hash(salt, "low", "high").alias("order")).collect()
    queue = [(row.low, row.high) for row in sorted(keyed, key=lambda row: (row.order, row.low, row.high))]
    kept: dict[int, int] = {}
    expected = {edge for edge, fits in zip(queue, kept_edges(queue, most, kept), strict=True) if fits}
    for partitions in (1, 7):
        found = projected(edges.repartition(partitions), most, salt).collect()
        assert {(row.low, row.high) for row in found} == expected
        assert len(found) == len(expected)
    assert max(kept.values()) == most
    other = projected(edges, most, salt + 1).collect()
    assert {(row.low, row.high) for row in other} != expected, "the order is keyed"


@pytest.mark.parametrize("kinds", ["a DOUBLE, b DOUBLE", "a LONG, b STRING", "a DATE, b DATE"])
def test_columns_that_do_not_name_nodes_are_refused_from_the_schema(spark, kinds):
    with pytest.raises(InvalidInput, match=r"^edges\."):
        exact(frame(spark, [], kinds), question())


@pytest.mark.parametrize("publish", ["histogram", "sequence", "distribution"])
def test_a_release_is_charged_and_drawn_once(spark, tmp_path, publish):
    query = question(publish=publish, nodes=30, output={"path": str(tmp_path / "out")})
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "graph")
    ledger.create(epsilon=1.0)
    first = release(frame(spark, MESSY), query, run="1", ledger=ledger)
    rows = first.df.collect()
    assert len(rows) == {"histogram": 7, "sequence": 30, "distribution": 7}[publish]
    assert all(value is not None for row in rows for value in row)
    assert first.df.collect() == rows
    files = {file.name: file.read_bytes() for file in first.folder.iterdir()}
    again = release(frame(spark, MESSY), query, run="1", ledger=ledger)
    assert {file.name: file.read_bytes() for file in first.folder.iterdir()} == files
    assert again.already_published
    assert again.df.collect() == rows
    assert again.plan == first.plan
    assert ledger.balance().remaining_epsilon == 0
    manifest = json.loads((tmp_path / "out" / "run=1" / "manifest.json").read_text())
    assert manifest["epsilon"]["total"] == 1.0
    assert manifest["unit"] == "edge"
    page = first.report(tmp_path / "page.html").read_text()
    assert "when one edge is added or removed" in page
    assert "<svg" in page
    with pytest.raises(InvalidInput, match="another query"):
        release(frame(spark, MESSY), question(publish=publish, nodes=31, output=query.output), run="1", ledger=ledger)


@pytest.mark.parametrize("publish", ["histogram", "sequence", "distribution"])
def test_the_noised_numbers_are_kept_beside_what_was_made_of_them(spark, tmp_path, publish):
    """One draw: the consistent numbers are the isotonic regression of the noised ones, which nobody can exchange."""
    privacy = {"epsilon": 0.1, "protect": "edge"}
    query = question(publish=publish, nodes=300, max_degree=40, privacy=privacy, output={"path": str(tmp_path / "out")})
    done = release(frame(spark, MESSY), query, run="1")
    table, beside = done.table(), pq.ParquetFile(done.folder / NOISED_FILE).read()
    key = table.column_names[0]
    assert beside.column_names == [key, "noised"]
    assert beside.column(key).equals(table.column(key))
    assert "noised" not in table.column_names
    assert "noised" not in spark.read.parquet(str(next(done.folder.glob("part-*")))).columns
    assert "noised" not in done.manifest["columns"]
    found = spark.read.option("pathGlobFilter", "*.parquet").parquet(str(done.folder))
    assert (found.count(), found.columns) == (table.num_rows, table.column_names), "nor in the folder as a whole"
    noised = beside.column("noised").to_numpy()
    if publish == "sequence":
        expected, found = nonincreasing(noised, 0, 41), table.column("degree").to_numpy()
    elif publish == "histogram":
        expected, found = nonincreasing(noised[1:], 0, 300), np.cumsum(table.column("nodes").to_numpy()[::-1])[-2::-1]
    else:
        assert done.plan.facts["form"] == "at least"
        expected, found = nonincreasing(300 * noised[1:], 0, 300) / 300, table.column("at_least").to_numpy()[1:]
    np.testing.assert_allclose(found, expected)
    assert not np.array_equal(noised[-len(expected) :], expected), "with so much noise something had to be moved"
    (done.folder / NOISED_FILE).unlink()
    with pytest.raises(InvalidInput, match="not those that were published"):
        release(frame(spark, MESSY), query, run="1")


def test_the_page_draws_the_noised_numbers_also_of_a_release_that_was_not_written(spark, tmp_path):
    page = release(frame(spark, MESSY), question(nodes=30)).report(tmp_path / "page.html").read_text()
    assert "before they were made consistent" in page


def test_neighbouring_graphs_and_no_graph_look_alike(spark):
    """Same schema, same number of rows, same order: only the numbers may differ."""
    shapes = set()
    for edges in (MESSY[:-1], []):
        for protect in ("edge", "node"):
            query = question(privacy={"epsilon": 1.0, "protect": protect}, nodes=9)
            result = release(frame(spark, edges), query)
            degrees = tuple(result.table().column("degree").to_pylist())
            shapes.add((protect, str(result.table().schema), degrees, result.manifest["rows"]))
    assert len(shapes) == 2


def test_two_releases_draw_different_noise(spark):
    query = question(max_degree=200, nodes=10_000)
    df = frame(spark, MESSY)
    first, second = (release(df, query).table().column("nodes_low").to_numpy() for _ in range(2))
    assert np.sum(first != second) > 0
