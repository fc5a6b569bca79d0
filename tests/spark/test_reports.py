"""How many rows of one unit a collection publishes, and which: by attackers with many rows and odd names."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark import report_checks as checks
from spark.report_checks import MOST, ROWS, SECRET, chosen, published, query, rows_of

from spark_rdp.errors import InvalidInput
from spark_rdp.queries import EstimateQuery
from spark_rdp.spark.collect import collect
from spark_rdp.spark.estimate import estimate


@pytest.mark.parametrize(
    "check",
    [
        checks.check_bounded,
        checks.check_values_do_not_choose,
        checks.check_others_do_not_choose,
        checks.check_place_does_not_choose,
        checks.check_rows_of_one_key,
        checks.check_place_tells_nothing,
    ],
    ids=lambda check: check.__name__,
)
def test_which_rows_of_a_unit_are_published(spark: SparkSession, check: Any) -> None:
    check(spark)


def test_the_secret_and_the_name_choose(spark: SparkSession) -> None:
    """Of 1,000 rows 4 are published: that two draws agree has probability 2e-11, and less for all units together."""
    frame = rows_of(spark, ROWS)
    draws = [
        published(frame),
        published(frame, secret=bytes(32)),
        published(frame, query(name="other")),
    ]
    large = [chosen({row for row in draw if row[0] == "large"}) for draw in draws]
    assert [len(each) for each in large] == [MOST] * 3
    assert large[0] != large[1] != large[2] != large[0]
    assert published(frame) == draws[0]


def test_every_row_is_as_likely_as_any_other(spark: SparkSession) -> None:
    """20,000 units with 8 rows, of which 3 are published: how often each place is. A false alarm: below 1e-6.

    The largest of eight binomial counts lies within 5.6 standard deviations but for 1.7e-7; a choice that favours one
    place by 3 % is off by 1.8 % of 7,500 more than that allows, and by keeping the first ones by 12,500.
    """
    units, size, most = 20_000, 8, 3
    frame = spark.range(units * size).selectExpr("id DIV 8 AS device", "id AS event", "id % 8 AS battery")
    asked = query(privacy={"unit": "device", "max_reports": most})
    events = collect(frame, asked, secret=SECRET).df.toArrow()["event"].to_numpy()
    assert len(events) == units * most
    counts = np.bincount(events % size, minlength=size)
    deviation = math.sqrt(units * most / size * (1 - most / size))
    assert np.abs(counts - units * most / size).max() < 5.6 * deviation


def test_one_unit_has_all_the_rows(spark: SparkSession) -> None:
    """500,000 rows of one device: large units are cut before they are moved, and what is left is published."""
    frame = spark.range(500_000).selectExpr("id DIV 500000 AS device", "id AS event", "id % 101 AS battery")
    collection = collect(frame, query(), secret=SECRET)
    assert collection.df.count() == MOST
    plan = collection.df._jdf.queryExecution().executedPlan().toString()
    assert plan.index("Final") < plan.index("Exchange hashpartitioning(unit") < plan.index("Partial"), plan


@pytest.mark.parametrize("kind", ["none", "nulls", "NaN", "negative zero"])
def test_odd_units(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """No rows at all, no named unit, one that is no number, and two spellings of one number."""
    units: list[Any] = {"none": [], "nulls": [None] * 9, "NaN": [math.nan] * 9, "negative zero": [0.0, -0.0] * 9}[kind]
    frame = spark.createDataFrame(
        [(u, n, 5.0) for n, u in enumerate(units)], "device DOUBLE, event INT, battery DOUBLE"
    )
    result = collect(frame, query(output={"path": str(tmp_path / "out")}), secret=SECRET)
    expected = MOST if kind == "negative zero" else 0
    assert result.manifest["rows"] == result.df.count() == expected
    assert result.df.dtypes == [("device", "double"), ("event", "int"), ("battery", "double")]


@pytest.mark.parametrize(
    ("unit", "constraint"),
    [
        ("array(device)", "a column of texts, numbers, dates or binary ids, not of array<string>"),
        ("map(device, 1)", "a column of texts, numbers, dates or binary ids, not of map<string,int>"),
        ("collate(device, 'UTF8_LCASE')", "a column of plain text, not of string collate UTF8_LCASE"),
    ],
)
def test_units_that_cannot_be_told_apart_are_refused(spark: SparkSession, unit: str, constraint: str) -> None:
    frame = rows_of(spark, {"a": 1}).withColumn("device", F.expr(unit))
    with pytest.raises(InvalidInput) as failure:
        collect(frame, query(keep=[]), secret=SECRET)
    assert str(failure.value).startswith(f"privacy.unit must be {constraint}")


def test_a_unit_that_is_not_there_or_has_no_key(spark: SparkSession) -> None:
    frame = rows_of(spark, {"a": 9})
    with pytest.raises(InvalidInput, match=r"^privacy\.unit must be a column of the source; got 'person'"):
        collect(frame, query(privacy={"unit": "person", "max_reports": 3}), secret=SECRET)
    with pytest.raises(InvalidInput, match=r"^row_key\[0\] must be a column of texts"):
        collect(frame.withColumn("event", F.expr("map(event, 1)")), query(keep=[]), secret=SECRET)


def test_missing_values_do_not_let_other_rows_in(spark: SparkSession) -> None:
    """Rows are chosen first: were those without a value left out before, they would decide about the others."""
    frame = rows_of(spark, {"large": 1000})
    whole = published(frame)
    one = min(chosen(whole))
    holed = frame.withColumn("battery", F.when(F.col("event") != one, F.col("battery")))
    assert chosen(published(holed, query(null_policy="drop"))) == chosen(whole) - {one}
    assert chosen(published(holed)) == chosen(whole)


def test_the_budget_of_a_unit_reaches_the_estimate(spark: SparkSession, tmp_path: Path) -> None:
    """What is published, what the manifest says, and what is refused and accepted afterwards."""
    frame = rows_of(spark, ROWS)
    for name, run, privacy in (
        ("bounded", "1", query().privacy),
        ("bounded", "2", query().privacy),
        ("open", "1", None),
    ):
        asked = query(name=name, privacy=privacy, output={"path": str(tmp_path / name)})
        collect(frame, asked, secret=SECRET, run=run)
    manifest = json.loads((tmp_path / "bounded/run=1/manifest.json").read_text())
    assert manifest["rows"] == sum(min(size, MOST) for size in ROWS.values())
    composition = "A run publishes at most 4 of the rows of one device. Budgets add up: 4 times epsilon 0.7 is 2.8, "
    told = manifest["privacy"].pop("composition")
    assert told == composition + "and every further run adds as much."
    assert manifest["privacy"] == {"unit": "device", "max_reports": 4, "unit_epsilon": 2.8}
    assert manifest["unit"] == "row", "every row has noise of its own"

    found = estimate(EstimateQuery(name="e", collection=str(tmp_path / "bounded")))
    assert found.table()["rows"].to_pylist() == [2 * manifest["rows"]]
    told = " ".join(found.assumptions)
    assert "a device that is in all 2 runs has spent at most epsilon 5.6." in told
    assert "Rows beyond the most of a unit were not published" in told

    place = str(tmp_path / "open")
    with pytest.raises(InvalidInput, match=r"^collection must bound the budget of a unit; that of .*open/run=1 is "):
        estimate(EstimateQuery(name="e", collection=place, output={"path": str(tmp_path / "e")}))
    assert not (tmp_path / "e").exists()
    accepted = estimate(EstimateQuery(name="e", collection=place, accept_unbounded=True))
    assert accepted.table()["rows"].to_pylist() == [sum(ROWS.values())]
    assert any(
        text.startswith("The budget of a unit is unbounded, which was accepted.") for text in accepted.assumptions
    )
