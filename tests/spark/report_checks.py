"""Checks of the rows that a collection publishes of each unit; broken choices must fail them (tests/mutants)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rdp.queries import CollectQuery
from spark_rdp.spark.collect import collect

SECRET = bytes(range(32))
MOST = 4
#: Units by the number of their rows: fewer than are published, as many, more, and far more.
ROWS = {"few": 2, "exact": MOST, "more": MOST + 1, "": 40, "row": 30, "large": 1000}

Published = set[tuple[str, int, float]]


def query(**changes: Any) -> CollectQuery:
    column = {"column": "battery", "lower": 0, "upper": 100, "epsilon": 0.7, "mechanism": "podium"}
    asked = {"name": "reports", "row_key": ["event"], "columns": [column], "keep": ["device", "event"]}
    return CollectQuery(**{**asked, "privacy": {"unit": "device", "max_reports": MOST}, **changes})


def rows_of(spark: SparkSession, units: dict[str | None, int] | dict[str, int], salt: int = 0) -> DataFrame:
    """Rows of units, in three partitions; their values depend on ``salt``, their keys do not."""
    events = [
        (unit, place * 10_000 + number, float((number * 37 + salt * (number % 50 + 1)) % 101))
        for place, (unit, size) in enumerate(units.items())
        for number in range(size)
    ]
    frame = spark.createDataFrame(events, "device STRING, event BIGINT, battery DOUBLE")
    return frame.repartition(3, F.col("event"))


def published(frame: DataFrame, asked: CollectQuery | None = None, secret: bytes = SECRET) -> Published:
    """Unit, event and noised value of every row that is published."""
    rows = collect(frame, asked or query(), secret=secret).df.collect()
    found = {(row.device, row.event, row.battery) for row in rows}
    assert len(found) == len(rows), "no row is published twice"
    return found


def chosen(found: Published) -> set[int]:
    return {event for _, event, _ in found}


def check_bounded(spark: SparkSession) -> None:
    """No unit has more than the most; one with fewer keeps all; one without a name has none."""
    found = published(rows_of(spark, {**ROWS, None: 50}))
    assert Counter(unit for unit, _, _ in found) == {unit: min(size, MOST) for unit, size in ROWS.items()}


def check_values_do_not_choose(spark: SparkSession) -> None:
    """Neighbours: all values of all rows are others, and the rows are the same."""
    first, second = (published(rows_of(spark, ROWS, salt)) for salt in (0, 1))
    assert chosen(first) == chosen(second)
    assert len(first & second) < len(first) / 2, "the values themselves are others"


def check_others_do_not_choose(spark: SparkSession) -> None:
    """Another unit more, and the rows of all others, with their noise, are what they were."""
    alone = published(rows_of(spark, ROWS))
    joined = published(rows_of(spark, {**ROWS, "new": 500}))
    assert {row for row in joined if row[0] != "new"} == alone


def check_place_does_not_choose(spark: SparkSession) -> None:
    """However the rows are spread, and however often they are computed."""
    frame = rows_of(spark, ROWS)
    found = published(frame)
    assert published(frame.coalesce(1).sort(F.desc("event"))) == found
    assert published(frame.repartition(5, F.col("battery"))) == found


def check_rows_of_one_key(spark: SparkSession) -> None:
    """A hostile unit gives all its rows one key: they are kept together or, being too many, not at all."""
    frame = rows_of(spark, {"large": 1000, "few": 2}).withColumn("event", F.lit(1).cast("bigint"))
    collection = collect(frame, query(), secret=SECRET)
    assert Counter(row.device for row in collection.df.collect()) == {"few": 2}


def check_place_tells_nothing(spark: SparkSession) -> None:
    """The rows of one unit lie no closer together than chance puts them, also where some units had far more rows.

    Of 159 pairs of neighbours 3 are of one unit on average; 20 or more have probability below 1e-9. The mean place of
    40 of 160 rows is 79.5 with a standard deviation of 6.3, and beyond 40 off with probability below 1e-9.
    """
    sizes = {f"u{number}": 2000 if number % 4 == 0 else 5 for number in range(40)}
    rows = collect(rows_of(spark, sizes), query(), secret=SECRET).df.coalesce(1).collect()
    order = [row.device for row in rows]
    assert len(order) == 40 * MOST
    assert sum(one == other for one, other in pairwise(order)) < 20
    large = [place for place, name in enumerate(order) if sizes[name] == 2000]
    assert 40 < sum(large) / len(large) < 119, "nor do units with more rows come first"
