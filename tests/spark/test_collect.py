"""A collection: one noise for each row whatever Spark does, missing and impossible values, and the published folder."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_rdp.errors import InvalidInput
from spark_rdp.mechanisms.local_build import build_local
from spark_rdp.queries import CollectQuery
from spark_rdp.spark.collect import Collection, collect

SECRET = bytes(range(32))
SCHEMA = "device BIGINT, event STRING, battery DOUBLE"
NAN, INF = math.nan, math.inf
Build = Callable[..., CollectQuery]


def query(**changes: Any) -> CollectQuery:
    column = {"column": "battery", "lower": 0, "upper": 101, "epsilon": 0.7, "mechanism": "podium"}
    column |= changes.pop("column", {})
    return CollectQuery(**{"name": "telemetry", "row_key": ["device", "event"], "columns": [column], **changes})


def support(collection: Collection, column: str = "battery") -> tuple[float, float]:
    plan = collection.plans[column]
    mechanism = build_local(plan.mechanism, plan.parameters)
    low, high = mechanism.lattice.to_values(np.array(mechanism.support))
    return float(low), float(high)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """3,001 rows in four partitions, over a batch boundary; the last one differs from the others in nothing."""
    made = spark.range(0, 3001, 1, 4).withColumnRenamed("id", "device")
    return made.select("device", F.format_string("event-%d", "device").alias("event"), F.lit(42.0).alias("battery"))


def by_device(frame: DataFrame) -> dict[int, float]:
    return {row.device: row.battery for row in frame.collect()}


def test_every_row_has_one_noise_whatever_spark_does(spark: SparkSession, rows: DataFrame) -> None:
    collection = collect(rows, query(keep=["device"]), secret=SECRET)
    assert collection.df.columns == ["device", "battery"]
    first = by_device(collection.df)
    assert len(first) == 3001
    assert len(set(first.values())) > 2990  # neither a constant nor a stream that repeats
    assert 42.0 not in first.values()  # no row in clear, the last one included
    assert by_device(collection.df) == first
    assert by_device(collection.df.repartition(7).sort("battery")) == first
    low = {device: value for device, value in first.items() if value < 42}
    assert by_device(collection.df.where("battery < 42")) == low
    twice = collection.df.select("battery", (F.col("battery") + 0).alias("again")).where("battery <> again")
    assert twice.count() == 0
    assert by_device(collect(rows.coalesce(1), query(keep=["device"]), secret=SECRET).df) == first
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        assert by_device(collect(rows.repartition(3), query(keep=["device"]), secret=SECRET).df) == first
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_spark_is_told_that_the_noise_is_not_deterministic(rows: DataFrame) -> None:
    columns = [
        {"column": name, "lower": 0, "upper": 101, "epsilon": 1, "mechanism": "podium"} for name in ("battery", "x")
    ]
    frame = collect(rows.withColumn("x", F.lit(1.0)), query(columns=columns), secret=SECRET).df
    execution = frame._jdf.queryExecution()
    analysed = execution.analyzed().toJSON()
    assert '"udfDeterministic":false' in analysed
    assert '"udfDeterministic":true' not in analysed
    text = execution.toString()
    assert text.count("ArrowEvalPython") == 2  # one call for both columns, in the optimised and the physical plan
    assert SECRET.hex() not in text


def test_other_secrets_columns_names_and_values_have_other_noise(rows: DataFrame) -> None:
    small = rows.limit(200)
    noise = [
        collect(small, query(), secret=SECRET),
        collect(small, query(), secret=bytes(32)),
        collect(small, query(name="other"), secret=SECRET),
        collect(small.withColumnRenamed("battery", "charge"), query(column={"column": "charge"}), secret=SECRET),
        collect(small.withColumn("battery", F.lit(42.5)), query(), secret=SECRET),
        collect(small, query()),
        collect(small, query()),
    ]
    drawn = [{row[0] for row in collection.df.collect()} for collection in noise]
    assert all(len(first & second) < 5 for place, first in enumerate(drawn) for second in drawn[:place])


def test_a_memoised_device_always_says_the_same(spark: SparkSession) -> None:
    reports = spark.range(1000).select((F.col("id") % 2).alias("device"), F.lit(17.0).alias("battery"))
    asked = query(row_key=[], memoize={"by": "device"}, keep=["device"])
    answers = {tuple(row) for row in collect(reports, asked, secret=SECRET).df.collect()}
    assert len(answers) == 2  # one for each device
    again = {tuple(row) for row in collect(reports.limit(700).repartition(3), asked, secret=SECRET).df.collect()}
    assert again == answers
    other = {tuple(row) for row in collect(reports, asked, secret=bytes(32)).df.collect()}
    assert len(other) == 2
    assert not other & answers
    with pytest.raises(InvalidInput, match="secret must be given"):
        collect(reports, asked)


def test_missing_and_impossible_values(spark: SparkSession) -> None:
    """Everything is clamped or taken for the midpoint, so that it is hidden among all values of the range."""
    values = [None, NAN, INF, -INF, 1e308, -1e308, -0.0, 5e-324, 101.0, 50.5]
    frame = spark.createDataFrame([(n, "e", value) for n, value in enumerate(values)], SCHEMA)
    collection = collect(frame, query(keep=["device"]), secret=SECRET)
    low, high = support(collection)
    noisy = by_device(collection.df)
    assert all(low <= value <= high for value in noisy.values())
    stand_in = [50.5, 50.5, 101.0, 0.0, 101.0, 0.0, 0.0, 5e-324, 101.0, 50.5]
    clean = spark.createDataFrame([(n, "e", value) for n, value in enumerate(stand_in)], SCHEMA)
    assert by_device(collect(clean, query(keep=["device"]), secret=SECRET).df) == noisy
    kept = by_device(collect(frame, query(keep=["device"], null_policy="drop"), secret=SECRET).df)
    assert kept == {device: value for device, value in noisy.items() if device > 1}


@pytest.mark.parametrize(
    ("changes", "value", "sentence"),
    [
        ({"null_policy": "error"}, None, "columns[0] (battery) must have no missing values"),
        ({"null_policy": "error"}, NAN, "columns[0] (battery) must have no missing values"),
        ({"invalid": "error"}, 101.25, "columns[0] (battery) must lie within lower and upper"),
        ({"invalid": "error"}, -INF, "columns[0] (battery) must lie within lower and upper"),
    ],
)
def test_policies_that_stop_the_job_name_no_value(
    spark: SparkSession, tmp_path: Path, changes: dict[str, Any], value: Any, sentence: str
) -> None:
    frame = spark.createDataFrame([(1, "e", 5.0), (2, "e", value)], SCHEMA)
    with pytest.raises(InvalidInput) as failure:
        collect(frame, query(**changes, output={"path": str(tmp_path / "out")}))
    assert str(failure.value).startswith(sentence)
    assert "101.25" not in str(failure.value)
    assert list(tmp_path.iterdir()) == []


def test_a_row_without_a_key_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, "e", 5.0), (2, None, 5.0)], SCHEMA)
    with pytest.raises(InvalidInput, match="row_key must not be null in any row"):
        collect(frame, query(output={"path": str(tmp_path / "out")}))


@pytest.mark.parametrize("kind", ["none", "one", "nulls"])
def test_little_data_is_answered_like_any_other(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    data: list[tuple[Any, ...]] = {"none": [], "one": [(1, "e", 5.0)], "nulls": [(1, "e", None), (2, "e", None)]}[kind]
    result = collect(spark.createDataFrame(data, SCHEMA), query(output={"path": str(tmp_path / "out")}))
    published = result.df.collect()
    assert len(published) == result.manifest["rows"] == len(data)
    assert all(row.battery is not None for row in published)
    assert result.df.dtypes == [("battery", "double")]


def test_every_type_of_number_and_time(spark: SparkSession) -> None:
    day, moment = datetime.date(2026, 11, 30), "2026-11-30 12:00:00.25"
    frame = spark.sql(
        f"SELECT 1 AS id, 7 AS i, 7L AS l, 7F AS f, 7.0BD AS d, DATE'{day}' AS day, "
        f"TIMESTAMP'{moment} UTC' AS at, 7 AS s, TRUE AS b, TIMESTAMP_NTZ'{moment}' AS wall"
    )
    days = (day - datetime.date(1970, 1, 1)).days
    seconds = days * 86400 + 43200.25
    exact = {"i": 7, "l": 7, "f": 7, "d": 7, "day": days, "at": seconds}
    # With a budget this large the noise is far below one unit: what remains is the documented number.
    columns = [
        {"column": name, "lower": value - 10, "upper": value + 10, "epsilon": 60, "mechanism": "podium"}
        for name, value in exact.items()
    ]
    asked = CollectQuery(name="types", row_key=["id"], columns=columns)
    row = collect(frame, asked).df.first()
    assert row is not None
    assert row.asDict() == pytest.approx(exact, abs=1e-3, rel=0)
    for name, kind in (("b", "boolean"), ("wall", "timestamp_ntz")):
        column = {"column": name, "lower": 0, "upper": 1, "epsilon": 1, "mechanism": "podium"}
        with pytest.raises(InvalidInput, match=rf"^columns\[0\]\.column must be a column of numbers.* not of {kind}"):
            collect(frame, CollectQuery(name="types", row_key=["id"], columns=[column]))
    with pytest.raises(InvalidInput, match=r"^keep\[0\] must be a column of the source"):
        collect(frame, CollectQuery(name="types", row_key=["id"], columns=columns, keep=["nowhere"]))


def test_the_mean_is_not_biased_and_the_support_is_one(spark: SparkSession) -> None:
    """200,000 rows, three inputs: means within 5.5 standard errors (false alarm 1e-7), the same ends for all inputs.

    A scale that is 3 % wrong makes the variance 6 % wrong, which is more than twice the tolerance.
    """
    inputs = {0: 0.0, 1: 30.0, 2: 101.0}
    value = F.element_at(F.array(*map(F.lit, inputs.values())), (F.col("id") % 3 + 1).cast("int"))
    frame = spark.range(200_000).select(F.col("id").alias("device"), F.lit("e").alias("event"), value.alias("battery"))
    collection = collect(frame.withColumn("input", F.col("device") % 3), query(keep=["input"]))
    table = collection.df.toArrow()
    inputs_drawn, drawn = (table[name].to_numpy() for name in ("input", "battery"))
    low, high = support(collection)
    plan = collection.plans["battery"]
    mechanism = build_local(plan.mechanism, plan.parameters)
    for number, truth in inputs.items():
        noisy = drawn[inputs_drawn == number]
        variance = float(mechanism.variance(np.array([truth]))[0])
        assert abs(noisy.mean() - truth) < 5.5 * math.sqrt(variance / len(noisy))
        spread = np.var((noisy - truth) ** 2)
        tolerance = 5.5 * math.sqrt(spread / len(noisy))
        assert abs(np.mean((noisy - truth) ** 2) - variance) < tolerance < 0.03 * variance
        assert low <= noisy.min() < low + 0.01 * (high - low)
        assert high >= noisy.max() > high - 0.01 * (high - low)


def test_a_collection_and_its_folder(rows: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLLECT_TEST_SECRET", SECRET.hex())
    asked = query(keep=["device"], secret="env:COLLECT_TEST_SECRET", output={"path": str(tmp_path / "out")})
    result = collect(rows, asked, run="1")
    folder = tmp_path / "out" / "run=1"
    assert result.folder == folder
    assert not result.already_published
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["manifest.json", *(f"part-{place:05d}.snappy.parquet" for place in range(4))]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest == result.manifest
    assert (manifest["release_id"], manifest["rows"], manifest["unit"]) == ("telemetry@1", 3001, "row")
    assert manifest["epsilon"] == {"total": 0.7, "by_column": {"battery": 0.7}, "covers": "each row"}
    for secret in (SECRET, SECRET.hex().encode()):
        assert all(secret not in file.read_bytes() for file in folder.iterdir())
    values = by_device(result.df)
    assert values == by_device(collect(rows, query(keep=["device"]), secret=SECRET).df)  # the same secret, another run
    monkeypatch.delenv("COLLECT_TEST_SECRET")  # reading back needs neither the secret nor the rows
    again = collect(rows.limit(0), asked, run="1")
    assert again.already_published
    assert again.plan == result.plan
    assert by_device(again.df) == values
    with pytest.raises(InvalidInput, match="another query"):
        collect(rows, query(output={"path": str(tmp_path / "out")}), run="1")
    with pytest.raises(InvalidInput, match="COLLECT_TEST_SECRET is not set"):
        collect(rows, asked, run="2")
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["run=1"]
