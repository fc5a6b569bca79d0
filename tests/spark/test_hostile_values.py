"""No value, however odd, gets past a bound, makes a job fail, or makes a result depend on how it was computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import reference
from pyspark.sql import functions as F

from spark_rdp.queries import ReleaseQuery
from spark_rdp.releases import plan_release
from spark_rdp.spark.aggregate import aggregate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROW = {"unit": "row", "epsilon": 1.0}
UNIT = {"unit": "unit", "epsilon": 1.0}
SINGLE = float(np.finfo(np.float32).max)
BIG = Decimal("99999999999999999999.999999999999999999")
VALUES: dict[str, list[Any]] = {
    "DOUBLE": [math.nan, None, math.inf, -math.inf, -0.0, 1e308, -1e308, 5e-324, 2.0**53, 0.5, 1.5, 2.5, 10.0],
    "FLOAT": [math.nan, None, math.inf, -math.inf, -0.0, SINGLE, -SINGLE, 2.0**-149, 16777217.0, 0.5, 2.5],
    "DECIMAL(38,18)": [
        None,
        BIG,
        BIG.copy_negate(),
        Decimal("1e-18"),
        Decimal("0.5"),
        Decimal("2.5"),
        Decimal("-7.25"),
    ],
    "BIGINT": [None, 2**63 - 1, -(2**63), 2**62, 2**62 + 1, 2**53 + 1, 0, 1, -1, 7],
    "INT": [None, 2**31 - 1, -(2**31), 0, 1, -1, 7],
    "TINYINT": [None, 127, -128, 0, 3],
}


def make_query(measures: list[dict[str, Any]], privacy: dict[str, Any]) -> ReleaseQuery:
    return ReleaseQuery(name="hostile", privacy=privacy, measures=measures)


def measures_of(privacy: dict[str, Any]) -> list[dict[str, Any]]:
    cap = {} if privacy is ROW else {"max_per_group": 4}
    return [
        {"name": "n", "type": "count", "column": "x", **cap},
        {"name": "total", "type": "sum", "column": "x", "lower": -3, "upper": 8},
        {"name": "whole", "type": "sum", "column": "x", "lower": 0, "upper": 1024, "granularity": 1},
        {"name": "wide", "type": "sum", "column": "x", "lower": -1e100, "upper": 1e100},
        {"name": "tiny", "type": "sum", "column": "x", "lower": 0, "upper": 1e-90},
        {"name": "mean", "type": "mean", "column": "x", "lower": -5, "upper": 6, **cap},
        {"name": "bins", "type": "histogram", "column": "x", "bins": [-10, 0, 0.5, 1, 100], **cap},
    ]


def exact(frame: DataFrame, query: ReleaseQuery) -> tuple[Any, ...]:
    [row] = aggregate(frame, query, plan_release(query), 3).collect()
    return tuple(row)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    yield
    spark.conf.set(name, str(before))


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("privacy", [ROW, UNIT], ids=["row", "unit"])
def test_special_values_of_every_type(spark: SparkSession, kind: str, privacy: dict[str, Any]) -> None:
    """As in plain Python, ANSI on and off; each unit has two of the values, and one unit has none."""
    pairs = list(itertools.pairwise(VALUES[kind]))
    rows = [{"unit": unit, "x": value} for unit, pair in enumerate(pairs) for value in pair]
    query = make_query(measures_of(privacy), privacy)
    expected = reference.statistics(plan_release(query), rows, [()], lambda row: ())[()][:-1]
    frame = spark.createDataFrame([(row["unit"], row["x"]) for row in rows], f"unit BIGINT, x {kind}")
    for ansi in ("true", "false"):
        with setting(spark, "spark.sql.ansi.enabled", ansi):
            assert exact(frame, query) == tuple(expected)


@pytest.mark.parametrize("privacy", [ROW, UNIT], ids=["row", "unit"])
def test_outliers_stay_within_the_bounds(spark: SparkSession, privacy: dict[str, Any]) -> None:
    """One row of 1e9, of -1e9 and of each infinity for each of 20 units: never more than 20 (80 rows) times a bound."""
    frame = spark.createDataFrame(
        [(unit, value) for unit in range(20) for value in (1e9, -1e9, math.inf, -math.inf)], "unit BIGINT, x DOUBLE"
    )
    outliers = {"high": frame.where("x > 0"), "low": frame.where("x < 0"), "both": frame}
    query = make_query(measures_of(privacy), privacy)
    plan = plan_release(query)
    for name, rows in outliers.items():
        units = rows.count() if privacy is ROW else 20
        for component, value in zip(plan.components, exact(rows, query), strict=True):
            if component.kind == "bins":
                assert sum(value) <= units * component.cap
                assert value[1] == value[2] == 0
            else:
                assert units * component.lower <= value <= units * component.upper, name


@pytest.mark.parametrize("kind", VALUES)
def test_a_column_of_nulls_is_answered_like_any_other(spark: SparkSession, kind: str) -> None:
    frame = spark.range(5).selectExpr("id AS unit", f"CAST(NULL AS {kind}) AS x")
    for privacy in (ROW, UNIT):
        assert exact(frame, make_query(measures_of(privacy), privacy)) == (0, 0, 0, 0, 0, 0, 0, [0, 0, 0, 0])


def test_sums_do_not_depend_on_order_or_partitions(spark: SparkSession) -> None:
    """2**53 and a thousand ones: added as doubles, the ones would vanish in one order and not in the other."""
    measures = [{"name": "s", "type": "sum", "column": "x", "lower": 0, "upper": 2.0**53, "granularity": 2.0**33}]
    fine = [{"name": "s", "type": "sum", "column": "x", "lower": 0, "upper": 2.0**21, "granularity": 1}]
    rows = [(n, 2.0**53 if n == 0 else 1.0) for n in range(1001)]
    found = set()
    for ordered, partitions in itertools.product((rows, rows[::-1]), (1, 7, 64)):
        frame = spark.createDataFrame(ordered, "unit BIGINT, x DOUBLE").repartition(partitions)
        found.add((exact(frame, make_query(measures, ROW)), exact(frame, make_query(fine, ROW))))
    assert found == {((2**20,), (2**21 + 1000,))}


@pytest.mark.parametrize("privacy", [ROW, UNIT], ids=["row", "unit"])
def test_one_row_moves_a_mean_of_huge_values_by_no_more_than_claimed(
    spark: SparkSession, privacy: dict[str, Any]
) -> None:
    """Bounds 2**30 apart at 2**52, 1024 rows: one row replaced changes the sum by at most twice the bound."""
    low, high = 2.0**52, 2.0**52 + 2.0**30
    query = make_query([{"name": "m", "type": "mean", "column": "x", "lower": low, "upper": high}], privacy)
    plan = plan_release(query)
    base = spark.range(1, 1024).selectExpr("id AS unit", f"{low!r}D + id AS x")
    sums = []
    for value in (-math.inf, low, (low + high) / 2, high, math.inf):
        sums.append(exact(base.union(spark.createDataFrame([(0, value)], "unit BIGINT, x DOUBLE")), query))
    assert {count for _, count in sums} == {1024}
    assert max(s for s, _ in sums) - min(s for s, _ in sums) == 2 * plan.components[0].upper
    assert sums[0] == sums[1]
    assert sums[3] == sums[4]


def test_long_values_do_not_wrap(spark: SparkSession) -> None:
    """Values whose sum leaves 64 bits, in every order, ANSI on and off: one answer, no exception."""
    extreme = [2**63 - 1, 1, -1, 2**62, 2**62 + 5, 2**62]
    query = make_query(
        [{"name": "s", "type": "sum", "column": "x", "lower": -(2.0**70), "upper": 2.0**70}],
        {"unit": "u", "epsilon": 1.0},
    )
    granularity, found = 2.0 ** plan_release(query).components[0].exponent, set()
    for ansi, order in itertools.product(("true", "false"), (extreme, extreme[::-1])):
        with setting(spark, "spark.sql.ansi.enabled", ansi):
            [total] = exact(spark.createDataFrame([(1, x) for x in order], "u INT, x BIGINT").repartition(3), query)
            found.add(total * granularity)
    [total] = found
    assert total == pytest.approx(float(sum(extreme)), rel=1e-5)


def test_the_mean_of_many_ints(spark: SparkSession) -> None:
    """3 million rows of 1000: the sum leaves 31 bits."""
    frame = spark.range(3_000_000).select(F.lit(1000).alias("x"))
    query = make_query([{"name": "m", "type": "mean", "column": "x", "lower": 0, "upper": 1000}], ROW)
    component = plan_release(query).components[0]
    total, count = exact(frame, query)
    assert count == 3_000_000
    assert component.centre is not None
    assert total * 2.0**component.exponent / count + component.centre == 1000


@pytest.mark.parametrize("bounds", [(0, 5), (-5, 0), (-3, 100), (5, 7)])
def test_whole_bounds_are_claimed_in_full(spark: SparkSession, bounds: tuple[int, int]) -> None:
    """The largest change by one unit, over all whole values around the bounds, is exactly the claim."""
    query = make_query([{"name": "s", "type": "sum", "column": "x", "lower": bounds[0], "upper": bounds[1]}], UNIT)
    component = plan_release(query).components[0]
    claim = max(abs(component.lower), abs(component.upper))
    values = spark.range(bounds[0] - 3, bounds[1] + 4)
    one_each = values.selectExpr("id AS unit", "id AS x")
    plan = plan_release(query)
    base = one_each.where(f"unit <= {sum(bounds) // 2}")
    changes = []
    for value in (bounds[0] - 3, bounds[0], 0, bounds[1], bounds[1] + 3):
        added = base.union(values.sparkSession.createDataFrame([(999, value)], "unit BIGINT, x BIGINT"))
        changes.append(abs(exact(added, query)[0] - exact(base, query)[0]))
    assert max(changes) == claim == plan.components[0].plan.integer_sensitivity
