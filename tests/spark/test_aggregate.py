"""The exact bounded statistics agree with a slow computation in plain Python, for every measure and kind of unit."""

from __future__ import annotations

import datetime
import itertools
import math
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

SALT = 0x1234_5678_9ABC_DEF
SCHEMA = "unit BIGINT, shop STRING, day INT, amount DOUBLE, size INT"
SHOPS = [None, "a", "b", "é"]
DAYS = range(3)
MEASURES: list[dict[str, Any]] = [
    {"name": "orders", "type": "count", "max_per_group": 3},
    {"name": "amounts", "type": "count", "column": "amount", "max_per_group": 2},
    {"name": "units", "type": "count_units"},
    {"name": "revenue", "type": "sum", "column": "amount", "lower": -7, "upper": 50},
    {"name": "pieces", "type": "sum", "column": "size", "lower": 5, "upper": 90},
    {"name": "basket", "type": "mean", "column": "amount", "lower": 0, "upper": 20, "max_per_group": 3},
    {"name": "spread", "type": "histogram", "column": "amount", "bins": [0, 1, 5, 11, 20], "max_per_group": 3},
    {"name": "sizes", "type": "histogram", "column": "size", "bins": [0, 50], "max_per_group": 2},
]


def make_rows(count: int, seed: int) -> list[dict[str, Any]]:
    """Skewed rows: unit 0 has very many, some rows have no unit, a key nobody declared, or a special value."""
    random = np.random.default_rng(seed)
    special = [None, math.nan, math.inf, -math.inf, -0.0, 1e308, 5e-324, 1e20]
    rows: list[dict[str, Any]] = []
    for _ in range(count):
        amount = special[random.integers(8)] if random.random() < 0.1 else float(np.round(random.lognormal(2, 1), 2))
        unit = int(40 * random.random() ** 3)
        rows.append(
            {
                "unit": None if unit == 39 else unit,
                "shop": [*SHOPS, "z", "B"][random.integers(6)],
                "day": [None, -1, 0, 1, 2, 3][random.integers(6)],
                "amount": amount,
                "size": None if random.random() < 0.1 else int(random.integers(-5, 100)),
            }
        )
    return rows


def frame_of(spark: SparkSession, rows: list[dict[str, Any]], schema: str = SCHEMA) -> DataFrame:
    names = [part.split()[0] for part in schema.split(", ")]
    return spark.createDataFrame([tuple(row[name] for name in names) for row in rows], schema)


def make_query(measures: list[dict[str, Any]] | None = None, **changes: Any) -> ReleaseQuery:
    content: dict[str, Any] = {
        "name": "test",
        "privacy": {"unit": "unit", "epsilon": 10.0, "max_groups": 2},
        "group_by": {"shop": SHOPS, "day": {"range": [DAYS[0], DAYS[-1]]}},
        "measures": measures or MEASURES,
    }
    return ReleaseQuery(**{**content, **changes})


def result(frame: DataFrame, query: ReleaseQuery, salt: int = SALT) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in aggregate(frame, query, plan_release(query), salt).collect()]


class Hashes:
    """The documented hashes of (salt, unit, group), computed by Spark for all pairs at once."""

    def __init__(self, spark: SparkSession, units: list[Any], groups: int, packed: bool, slots: int = 2) -> None:
        pairs = spark.createDataFrame([(unit,) for unit in units], "unit BIGINT").crossJoin(spark.range(groups))
        salt, mask = F.lit(SALT.to_bytes(8, "big", signed=True)), (1 << (groups - 1).bit_length()) - 1
        order = F.xxhash64(salt, "unit", "id").bitwiseAND(~mask).bitwiseOR(F.col("id"))
        name = order if packed else F.col("id")
        starts = [F.xxhash64(salt, F.lit("offset"), F.lit(slot), "unit", name) for slot in range(slots)]
        rows = pairs.select("unit", "id", order.alias("order"), F.array(*starts).alias("starts")).collect()
        self.order = {(row["unit"], row["id"]): row["order"] for row in rows}
        self.starts = {(row["unit"], row["id"]): row["starts"] for row in rows}


GROUPS = list(itertools.product(SHOPS, DAYS))


def by_keys(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["shop"], row["day"]


@pytest.mark.parametrize("max_groups", [2, 100])
def test_units_in_declared_groups(spark: SparkSession, max_groups: int) -> None:
    rows, query = make_rows(3000, 1), make_query(privacy={"unit": "unit", "epsilon": 10.0, "max_groups": max_groups})
    plan = plan_release(query)
    hashes = Hashes(spark, list(range(40)), len(GROUPS), packed=max_groups == 2)
    expected = reference.statistics(
        plan,
        rows,
        GROUPS,
        by_keys,
        lambda unit, group: hashes.order[unit, GROUPS.index(group)],
        lambda slot, unit, group: hashes.starts[unit, GROUPS.index(group)][slot],
    )
    assert result(frame_of(spark, rows), query) == [(*group, *expected[group][:-1]) for group in GROUPS]


def test_every_row_is_a_unit(spark: SparkSession) -> None:
    measures = [{k: v for k, v in measure.items() if k != "max_per_group"} for measure in MEASURES]
    rows, query = make_rows(2000, 2), make_query(measures, privacy={"unit": "row", "epsilon": 10.0})
    expected = reference.statistics(plan_release(query), rows, GROUPS, by_keys)
    frame = frame_of(spark, rows)
    assert result(frame, query) == [(*group, *expected[group][:-1]) for group in GROUPS]
    plan = aggregate(frame, query, plan_release(query), SALT)._jdf.queryExecution().executedPlan().toString()
    assert "Window" not in plan


def test_one_overall_row(spark: SparkSession) -> None:
    rows = make_rows(500, 3)
    query = make_query(MEASURES[:6], group_by=None, privacy={"unit": "unit", "epsilon": 10.0})
    expected = reference.statistics(plan_release(query), rows, [()], lambda row: ())
    assert result(frame_of(spark, rows), query) == [tuple(expected[()][:-1])]


def test_selected_keys_come_with_their_number_of_units(spark: SparkSession) -> None:
    rows = make_rows(1000, 4)
    privacy = {"unit": "unit", "epsilon": 10.0, "max_groups": 100, "delta": 1e-6}
    query = make_query(MEASURES[:6], group_by={"select": ["shop", "day"], "delta": 1e-6}, privacy=privacy)
    found = aggregate(frame_of(spark, rows), query, plan_release(query), SALT)
    expected = reference.statistics(plan_release(query), rows, None, by_keys)
    assert found.columns[-1] == "s0"
    got = [tuple(row) for row in found.collect()]
    assert {row[:2]: list(row[2:]) for row in got} == expected
    assert got == sorted(got, key=lambda row: [(key is not None, key) for key in row[:2]])  # null first


def test_selected_keys_are_cut(spark: SparkSession) -> None:
    rows = [{"unit": u, "shop": f"s{g}", "day": 1, "amount": 1.0, "size": 1} for u in range(30) for g in range(10)]
    privacy = {"unit": "unit", "epsilon": 10.0, "max_groups": 3, "delta": 1e-6}
    query = make_query(MEASURES[:3], group_by={"select": ["shop"], "delta": 1e-6}, privacy=privacy)
    got = result(frame_of(spark, rows), query)
    assert sum(row[-1] for row in got) == 30 * 3
    assert min(row[-1] for row in got) > 0  # another choice for each unit
    assert all(row[1] == row[3] == row[4] for row in got)


def test_keys_by_bins_are_in_the_order_of_the_bins(spark: SparkSession) -> None:
    rows = make_rows(800, 5)
    rows += [{**rows[0], "unit": 1, "amount": value} for value in (0.0, 2.0, 10.0, 100.0, 100.5, -0.0)]
    groups, edges = ["[0, 2)", "[2, 10)", "[10, 100]"], (0.0, 2.0, 10.0, 100.0)
    privacy = {"unit": "unit", "epsilon": 10.0, "max_groups": 3}
    query = make_query(MEASURES[:6], group_by={"amount": {"bins": list(edges)}}, privacy=privacy)

    def group_of(row: dict[str, Any]) -> str | None:
        place = reference.bin_of(edges, row["amount"])
        return None if place is None or not 0 <= row["amount"] <= 100 else groups[place]

    expected = reference.statistics(plan_release(query), rows, groups, group_of)
    assert result(frame_of(spark, rows), query) == [(group, *expected[group][:-1]) for group in groups]


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_a_unit_with_one_row_its_cap_and_very_many(spark: SparkSession, rows: int) -> None:
    """One unit in one group, amounts 1, 2, 3, 1, 2, 3, ...: what it counts for does not exceed its caps."""
    amounts = [{"unit": 7, "shop": "a", "day": 0, "amount": 1.0 + i % 3, "size": 1} for i in range(rows)]
    group_by, privacy = {"shop": ["a"]}, {"unit": "unit", "epsilon": 10.0, "max_groups": 1}
    query = make_query(MEASURES[:7], group_by=group_by, privacy=privacy)
    [(_, orders, with_amount, units, revenue, pieces, basket, basket_rows, spread)] = result(
        frame_of(spark, amounts), query
    )
    total, plan = sum(row["amount"] for row in amounts), plan_release(query)
    granularity = {component.column: 2.0**component.exponent for component in plan.components}
    assert (orders, with_amount, units) == (min(rows, 3), min(rows, 2), 1)
    assert revenue * granularity["c3"] == min(total, 50)
    assert pieces * granularity["c4"] == min(max(rows, 5), 90)
    assert basket_rows == min(rows, 3)
    assert basket * granularity["c5"] == pytest.approx((total / rows - 10) * min(rows, 3), abs=1e-4)
    assert sum(spread) == min(rows, 3)
    assert spread[0] == spread[2] == spread[3] == 0


def test_removing_one_unit_changes_no_more_than_claimed(spark: SparkSession) -> None:
    """At most max_groups groups change, each component by at most its bounds (bins: by at most cap in all)."""
    rows, query = make_rows(1500, 6), make_query()
    plan = plan_release(query)
    frame = frame_of(spark, rows).cache()
    whole = result(frame, query)
    for unit in (0, 1, 5, 20):
        without = result(frame.where(~F.col("unit").eqNullSafe(unit)), query)
        assert [row[:2] for row in without] == [row[:2] for row in whole]
        changed = [(a[2:], b[2:]) for a, b in zip(whole, without, strict=True) if a != b]
        assert 1 <= len(changed) <= plan.max_groups
        for more, less in changed:
            for component, new, old in zip(plan.components, more, less, strict=True):
                if component.kind == "bins":
                    steps = [n - o for n, o in zip(new, old, strict=True)]
                    assert min(steps) >= 0
                    assert sum(steps) <= component.cap
                else:
                    assert min(component.lower, 0) <= new - old <= component.upper
    frame.unpersist()


def test_dates_and_empty_input(spark: SparkSession) -> None:
    """Neighbouring inputs, the empty one included, give the same schema, keys, order and partitions."""
    first, last = datetime.date(2026, 1, 30), datetime.date(2026, 2, 2)
    days = [first + datetime.timedelta(days=n) for n in range(4)]
    query = make_query(MEASURES, group_by={"day": {"range": [first, last]}, "shop": SHOPS})
    schema = SCHEMA.replace("day INT", "day DATE")
    one = [{"unit": 1, "shop": "b", "day": days[2], "amount": None, "size": 5}]
    frames = [
        aggregate(frame_of(spark, rows, schema), query, plan_release(query), SALT)
        for rows in ([], one, one * 50, [{**one[0], "shop": "nobody"}])
    ]
    collected = [frame.collect() for frame in frames]
    assert all(frame.schema == frames[0].schema for frame in frames)
    assert all([row[:2] for row in rows] == list(itertools.product(days, SHOPS)) for rows in collected)
    assert all(frame.rdd.getNumPartitions() == 1 for frame in frames)
    assert all(value is not None for rows in collected for row in rows for value in row[2:])
    assert collected[0] == collected[3]
    assert {row[2] for row in collected[0]} == {0}
    assert [row[:3] for row in collected[1] if row[2]] == [(days[2], "b", 1)]


def test_the_same_at_every_evaluation(spark: SparkSession) -> None:
    """Partitions, adaptive execution, ANSI arithmetic, the order of rows and the time zone change nothing."""
    rows, query = make_rows(600, 7), make_query()
    frame = frame_of(spark, rows)
    settings = [(1, "true", "true", "UTC"), (7, "false", "false", "Asia/Kathmandu"), (64, "true", "false", "UTC")]
    names = ("shuffle.partitions", "adaptive.enabled", "ansi.enabled", "session.timeZone")
    before = [spark.conf.get(f"spark.sql.{name}") for name in names]
    try:
        found = []
        for setting in settings:
            for name, value in zip(names, setting, strict=True):
                spark.conf.set(f"spark.sql.{name}", value)
            found.append(result(frame.repartition(int(setting[0])), query))
    finally:
        for name, old in zip(names, before, strict=True):
            spark.conf.set(f"spark.sql.{name}", old)
    assert found[0] == found[1] == found[2]
    assert result(frame, query, salt=1) != found[0]  # other groups are kept


def test_one_column_as_unit_key_and_value(spark: SparkSession) -> None:
    rows = make_rows(300, 9)
    measures = [{**MEASURES[1], "column": "unit"}, {**MEASURES[3], "column": "unit"}, {**MEASURES[6], "column": "unit"}]
    groups = [0, 3, 7, 38]
    query = make_query(measures, group_by={"unit": groups})
    expected = reference.statistics(plan_release(query), rows, groups, lambda row: row["unit"])
    # All rows of a unit lie in one group and one bin: no hash matters.
    assert result(frame_of(spark, rows), query) == [(group, *expected[group][:-1]) for group in groups]


def test_only_needed_columns_are_read(spark: SparkSession, tmp_path: Any) -> None:
    path = str(tmp_path / "rows")
    frame_of(spark, make_rows(50, 8)).write.parquet(path)
    query = make_query(MEASURES[:3])
    plan = aggregate(spark.read.parquet(path), query, plan_release(query), SALT)
    assert "size" not in plan._jdf.queryExecution().executedPlan().toString()
