"""Bounding in whole-number arithmetic agrees with exact fractions, up to the largest numbers that can occur."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from spark_rdp.errors import InvalidInput
from spark_rdp.spark.bounding import check_unit, keep_groups, salted_hash, sampled, share_of_total, with_unit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW, MOST = 2**22, 2**31 - 1


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_a_share_of_a_total_is_exact(spark: SparkSession, ansi: str) -> None:
    cases = [
        (total, rows, cap)
        for rows in (1, 2, 3, 7, MOST)
        for cap in (1, 2, 5, MOST - 1, MOST)
        for total in (0, 1, -1, 5 * rows // 2, -(5 * rows) // 2, rows * ROW, -rows * ROW, rows * ROW - 1)
    ]
    before = spark.conf.get("spark.sql.ansi.enabled")
    try:
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        # cap is a number of the plan, so each cap is an expression of its own.
        for cap in sorted({cap for _, _, cap in cases}):
            own = [(total, rows) for total, rows, other in cases if other == cap]
            frame = spark.createDataFrame(own, "total BIGINT, rows BIGINT")
            shares = [row[0] for row in frame.select(share_of_total(F.col("total"), F.col("rows"), cap)).collect()]
            exact = [math.floor(Fraction(t * cap, n) + Fraction(1, 2)) if n > cap else t for t, n in own]
            assert shares == exact
            assert all(abs(share) <= ROW * min(cap, n) for share, (_, n) in zip(shares, own, strict=True))
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))


def test_a_sample_of_bins_has_exactly_as_many_rows_as_the_cap(spark: SparkSession) -> None:
    bins = [
        ("few", [1, 0, 1], 2, 9),
        ("many", [500, 3, 497], 7, -12345),
        ("one", [0, 10**6, 0], 3, 2**63 - 1),
        ("huge", [2**30, 1, 2**30 - 3], MOST - 2, -(2**63)),
        ("halves", [1, 1, 1, 1], 2, 3),
    ]
    rows = [
        (name, place, count, sum(counts[: place + 1]), sum(counts), cap, offset)
        for name, counts, cap, offset in bins
        for place, count in enumerate(counts)
    ]
    schema = "name STRING, place INT, n BIGINT, up BIGINT, total BIGINT, cap BIGINT, start BIGINT"
    frame = spark.createDataFrame(rows, schema)
    kept = sampled(*(F.col(name) for name in ("n", "up", "total", "cap", "start")))
    found: dict[str, list[int]] = {name: [] for name, *_ in bins}
    for name, number in frame.select("name", kept).collect():
        found[name].append(number)
    for name, counts, cap, _ in bins:
        rows_of_unit = sum(counts)
        assert sum(found[name]) == min(cap, rows_of_unit)
        for number, count in zip(found[name], counts, strict=True):
            assert 0 <= number <= count
            assert abs(number - count * min(Fraction(cap, rows_of_unit), 1)) < 1


def test_a_unit_keeps_whole_groups_and_no_more_than_its_cap(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(u, g) for u in range(20) for g in range(u) for _ in range(3)], "u INT, g INT")
    counts = keep_groups(frame, "u", ["g"], 4).groupBy("u").agg(F.count_distinct("g"), F.count("*"), F.max("g"))
    for unit, groups, rows, last in counts.collect():
        assert (groups, rows, last) == (min(unit, 4), 3 * min(unit, 4), min(unit, 4) - 1)


def test_a_new_salt_gives_another_hash_but_no_new_code(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    """Code with a salt in it would be compiled for every release, and run slowly until it is warm."""
    codes, found = [], []
    for salt in (1, -(2**63)):
        frame = spark.range(9, numPartitions=1).select(salted_hash(salt, "id").alias("hash"))
        found.append([row[0] for row in frame.collect()])
        frame.explain("codegen")
        codes.append(capsys.readouterr().out.partition("Generated code:")[2])
    assert "XxHash64" in codes[0] or "XXH64" in codes[0]
    assert codes[0] == codes[1]
    assert len(set(found[0] + found[1])) == 18


def test_which_units_are_the_same(spark: SparkSession) -> None:
    values = spark.createDataFrame([(x,) for x in (0.0, -0.0, 1.5, None, float("nan"))], "x DOUBLE")
    kept = with_unit(values, "x", values.schema["x"].dataType)
    assert sorted(math.copysign(1, row[0]) * row[0] for row in kept.collect()) == [0.0, 0.0, 1.5]
    assert kept.select(F.xxhash64("x")).distinct().count() == 2


def test_units_that_are_equal_in_a_collation_only_are_refused(spark: SparkSession) -> None:
    """Ann and ANN would be one unit to a grouping and two to the hash that chooses its groups."""
    frame = spark.sql("SELECT collate(u, 'UTF8_LCASE') AS u FROM VALUES ('Ann'), ('ANN') AS t(u)")
    with pytest.raises(InvalidInput, match=r"privacy\.unit must be a column of plain text"):
        check_unit("u", frame.schema["u"].dataType)
