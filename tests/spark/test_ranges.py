"""Ranges and moving averages on Spark: exact without noise, bounded per unit, published once, the same for no data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from spark_rdp.errors import InvalidInput
from spark_rdp.ledger import Ledger
from spark_rdp.queries.averages import AveragesQuery
from spark_rdp.queries.ranges import RangesQuery
from spark_rdp.spark.ranges import exact_cells
from spark_rdp.spark.release import release
from spark_rdp.spark.vectors import EXACT

SCHEMA = "user LONG, x INT, y DOUBLE"
ROWS = [(1, 0, 0.5), (1, 0, 0.5), (1, 0, 0.5), (1, 3, 2.0), (2, 3, 2.9), (3, 9, 1.0), (None, 1, 1.0), (4, None, 1.0)]
ROWS += [(5, 2, float("nan")), (6, 2, None), (7, 2, float("inf")), (8, 1, 3.0)]


def ranges(**changes) -> RangesQuery:
    given = {
        "name": "r",
        "privacy": {"unit": "user", "epsilon": 1.0, "max_groups": 2},
        "max_per_group": 2,
        "domain": {"x": {"range": [0, 3]}, "y": {"bins": [0, 1, 2, 3]}},
    }
    return RangesQuery.of({**given, **changes})


def averages(**changes) -> AveragesQuery:
    given = {
        "name": "a",
        "privacy": {"unit": "user", "epsilon": 1.0, "max_groups": 2},
        "time": {"x": {"range": [0, 3]}},
        "measure": {"name": "n", "type": "count", "max_per_group": 2},
        "window": 2,
    }
    return AveragesQuery.of({**given, **changes})


def test_cells_are_counted_as_in_a_release(spark):
    frame = exact_cells(spark.createDataFrame(ROWS, SCHEMA), ranges().cells, 5)
    rows = frame.collect()
    cells = {(row["x"], row["y"]): row[EXACT] for row in rows}
    assert list(cells) == [(x, y) for x in range(4) for y in ("[0, 1)", "[1, 2)", "[2, 3]")]
    # User 1 counts twice in one cell and once in another; no user, no x, no y or an outside one: dropped.
    assert {key: count for key, count in cells.items() if count} == {
        (0, "[0, 1)"): 2,
        (3, "[2, 3]"): 2,
        (1, "[2, 3]"): 1,
    }


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        (ranges(), 12),
        (ranges(workload="prefixes"), 12),
        (ranges(workload=[{"x": [1, 3]}, {"y": [0, 2]}], strategy="hierarchy"), 2),
        (averages(), 3),
        (averages(group_by={"y": {"bins": [0, 1, 2, 3]}}, method="windows", stride=2), 6),
    ],
    ids=["ranges", "prefixes", "list", "averages", "grouped averages"],
)
def test_a_release_is_charged_and_drawn_once_and_looks_the_same_without_data(spark, tmp_path, asked, rows):
    query = type(asked).of({**dict(asked), "output": {"path": str(tmp_path / "out")}})
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "d")
    ledger.create(epsilon=2.0)
    df = spark.createDataFrame(ROWS, SCHEMA)
    first = release(df, query, run="1", ledger=ledger)
    table = first.table()
    assert table.num_rows == rows
    assert all(column.null_count == 0 for column in table.columns)
    again = release(df, query, run="1", ledger=ledger)
    assert again.already_published
    assert again.table().equals(table)
    assert ledger.balance().remaining_epsilon == 1.0
    empty = release(spark.createDataFrame([], SCHEMA), query, run="2", ledger=ledger).table()
    assert empty.schema.equals(table.schema)
    assert empty.num_rows == rows
    keys = [name for name in table.column_names if name.partition("_")[0] in ("x", "y")]
    assert empty.select(keys).equals(table.select(keys))
    manifest = json.loads((tmp_path / "out" / "run=1" / "manifest.json").read_text())
    assert manifest["unit"] == "user"
    assert "<svg" in first.report().read_text()


def test_a_large_budget_shows_the_exact_numbers(spark):
    df = spark.createDataFrame(ROWS, SCHEMA)
    privacy = {"unit": "user", "epsilon": 5000.0, "max_groups": 2}
    for strategy in ("hierarchy", "wavelet"):
        found = release(df, ranges(privacy=privacy, strategy=strategy)).table().column("count").to_numpy()
        np.testing.assert_allclose(found, [2, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2], atol=1e-9)
    found = release(df, averages(privacy=privacy)).table().to_pydict()
    assert (found["x_from"], found["x_to"]) == ([0, 1, 2], [1, 2, 3])
    # 2 + 1 rows of users in the periods 0 and 1, 3 in period 2 (their y does not matter here), 2 in period 3.
    np.testing.assert_allclose(found["n"], [1.5, 2.0, 2.5], atol=1e-9)


def test_ages_and_hours_of_adult(spark, shared_data):
    schema = "age INT, a STRING, b STRING, c STRING, d STRING, e STRING, f STRING, g STRING, h STRING, i STRING, "
    schema += "j STRING, k STRING, hours INT, l STRING, m STRING"
    path = str(shared_data / "adult.data.gz")
    df = spark.read.csv(path, schema=schema, ignoreLeadingWhiteSpace=True).where("m IS NOT NULL")
    query = RangesQuery.of(
        {
            "name": "adult",
            "privacy": {"unit": "row", "epsilon": 1.0},
            "domain": {"age": {"range": [17, 90]}, "hours": {"range": [1, 99]}},
        }
    )
    cells = exact_cells(df, query.cells, 1).toArrow()
    counts = cells.column(EXACT).to_numpy()
    assert len(counts) == 74 * 99
    assert counts.sum() == 32561
    assert counts @ cells.column("age").to_numpy() == 1_256_257
    assert counts @ cells.column("hours").to_numpy() == 1_316_684
    plan = release(df, query).plan
    assert [part[0] for part in plan.facts["strategy"]] == ["hierarchy", "hierarchy"]


def test_a_column_that_does_not_fit_is_refused_before_anything_is_charged(spark, tmp_path):
    ledger = Ledger(f"sqlite:///{tmp_path}/budget.db", "d")
    ledger.create(epsilon=2.0)
    df = spark.createDataFrame([], "user LONG, x STRING, y DOUBLE")
    for query in (
        ranges(),
        averages(),
        averages(measure={"name": "n", "type": "sum", "column": "z", "lower": 0, "upper": 1}),
    ):
        with pytest.raises(InvalidInput):
            release(df, query, ledger=ledger)
    assert ledger.balance().remaining_epsilon == 2.0
